"""Columns of categories: texts without an order, texts with one, and two texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from synthdp.spec.model.columns.base import CODEBOOK, ColumnBase, Operand, Question
from synthdp.spec.model.fields import (
    CONTROL,
    Categories,
    Category,
    Name,
    ValueMap,
    alike,
    as_text,
    wrong,
)

_ALL = f"categories: [a, b]   all that can occur, {CODEBOOK}; ordinal from lowest to highest"


def _plain(label: str) -> str:
    if CONTROL.search(label):
        raise ValueError(f"label {label!a} holds a control character or a line break")
    return label


Label = Annotated[
    str,
    Field(min_length=1, max_length=500),
    BeforeValidator(as_text, json_schema_input_type=str | int | float | bool),
    AfterValidator(_plain),
]


class Mapped(ColumnBase):
    """Categories that may have other texts in the source."""

    values: ValueMap = Field(
        default={},
        description=(
            "texts of the source that are published as another: that category; several may"
            " become one, and all others stay"
        ),
        examples=[{"+": "positive", "-": "negative"}],
    )
    map: Name | None = Field(
        default=None,
        description="the name of a map under `maps`, in place of `values`",
        examples=["status"],
    )


class Labelled(Mapped):
    """Categories that are codes, and what they stand for."""

    value_labels: dict[Category, Label] = Field(
        default={},
        description="what codes among the categories stand for, for the bundle's metadata",
        examples=[{"0": "never", "1": "daily"}],
    )

    def mistakes(self) -> Iterator[tuple[str, str, str]]:
        """Labels of what is no category, too."""
        yield from super().mistakes()
        if strange := [code for code in self.value_labels if code not in self.labels]:
            message = f"a label for {strange[0]!r}, which is no category"
            yield "value_labels", message, "list the code under categories, or delete its label"


class Categorical(Labelled):
    """One of a list of texts, in no order.

    Texts are compared letter by letter. Typed whole numbers are written without a point, decimal
    ones without zeros at their end, truth values as true and false, times of day as 08:30:00.
    """

    questions: ClassVar = (
        Question(
            "categories",
            f"all categories, parted by commas ({CODEBOOK})?",
            Categories,
            many=True,
            texts=True,
        ),
    )
    sketch: ClassVar = (_ALL,)

    type: Literal["categorical"] = Field(
        description="texts without an order", examples=["categorical"]
    )
    categories: Categories = Field(
        description=(
            "every allowed text, codes such as 0 too; `{file: F}` reads them from a text file"
            " beside the spec, one a line"
        ),
        examples=[["Female", "Male"]],
    )

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories as declared."""
        return self.categories

    def texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Each category."""
        yield from ((("categories", i), text) for i, text in enumerate(self.categories))


class Unread(Categorical):
    """Stands for a column whose entry is wrong: its name may be used, and its values are unknown.

    No finished spec has one.
    """

    truth: ClassVar[bool] = True
    operand: ClassVar[Operand] = "unread"


class Ordinal(Labelled):
    """One of a list of texts, in order."""

    ordered: ClassVar[bool] = True
    questions: ClassVar = (
        Question(
            "categories",
            f"all categories, parted by commas, from lowest to highest ({CODEBOOK})?",
            Categories,
            many=True,
            texts=True,
        ),
    )
    sketch: ClassVar = (_ALL,)

    type: Literal["ordinal"] = Field(description="texts with an order", examples=["ordinal"])
    categories: Categories = Field(
        description="every allowed text, from lowest to highest; or their file",
        examples=[["low", "medium", "high"]],
    )

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories, from lowest to highest."""
        return self.categories

    def texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Each category."""
        yield from ((("categories", i), text) for i, text in enumerate(self.categories))


class Boolean(Mapped):
    """One of two texts. Typed truth values are false and true whatever these texts are."""

    truth: ClassVar[bool] = True
    questions: ClassVar = (
        Question("false", "which text stands for false?", Category, default="false"),
        Question("true", "which text stands for true?", Category, default="true"),
    )
    sketch: ClassVar = ("false: no, true: yes   the texts in the table",)

    type: Literal["boolean"] = Field(description="two texts", examples=["boolean"])
    false: Category = Field(
        default="false", description="the text that stands for false", examples=["no"]
    )
    true: Category = Field(
        default="true", description="the text that stands for true", examples=["yes"]
    )

    @model_validator(mode="after")
    def _two_labels(self) -> Boolean:
        if self.false == self.true:
            raise wrong(("true", f"labels of false and true are both {self.true!r}"))
        if alike((self.false, self.true)) is not None:
            raise wrong(
                (
                    "true",
                    (
                        f"labels of false and true, {self.false!a} and {self.true!a}, look the same"
                        " and are not"
                    ),
                )
            )
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """The text of false, then the text of true."""
        return (self.false, self.true)

    def texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Both texts."""
        yield from ((("false",), self.false), (("true",), self.true))
