"""Columns of codes from a public list, such as ICD-10; only the first characters are kept."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from annotated_types import Unit
from pydantic import AfterValidator, Field, model_validator

from synthdp.spec.model.columns.base import CODEBOOK, ColumnBase, Question
from synthdp.spec.model.fields import (
    Category,
    OrFile,
    Whole,
    alike,
    distinct,
    starts_formula,
    wrong,
)

MAX_CODES, MAX_LEVELS = 100_000, 4096

Codes = Annotated[
    tuple[Category, ...],
    Field(min_length=1, max_length=MAX_CODES),
    AfterValidator(distinct),
    OrFile(),
]
Prefix = Annotated[Whole, Field(ge=1, le=64), Unit("characters")]


class TextCode(ColumnBase):
    """One of a list of codes, of which the first `prefix` characters are read and released.

    With `prefix: 3` the codes E11.9 and E11.65 are one level, E11, and so is E11.8, which is not
    listed. Values are compared letter by letter; what begins like no code is a misfit.
    """

    questions: ClassVar = (
        Question(
            "codes",
            f"all codes, parted by commas ({CODEBOOK})?",
            Codes,
            many=True,
            texts=True,
        ),
        Question(
            "prefix",
            "how many characters from the left are kept of a code, such as 3 for E11 of E11.9?",
            Prefix,
        ),
    )
    sketch: ClassVar = (
        f"codes: [E11.9, I10]   all that can occur, {CODEBOOK}",
        "prefix: 3   characters that are kept of a code",
    )

    type: Literal["text-code"] = Field(
        description="codes of which the beginning is kept", examples=["text-code"]
    )
    codes: Codes = Field(
        description=(
            "every allowed code, from a public list, not the table; or their file, one a line"
        ),
        examples=[["E10.1", "E11.9", "E11.65", "I10"]],
    )
    prefix: Prefix = Field(
        description="how many characters from the left make a level; the rest is never read",
        examples=[3],
    )

    @model_validator(mode="after")
    def _prefixes(self) -> TextCode:
        longest, labels = max(map(len, self.codes)), self.labels
        if self.prefix > longest:
            raise wrong(("prefix", f"got {self.prefix}, and no code has more than {longest}"))
        pair, formula = alike(labels), next(filter(starts_formula, labels), None)
        if len(labels) > MAX_LEVELS:
            message = f"codes with {len(labels):,} different prefixes; at most {MAX_LEVELS:,} are"
            raise wrong(("prefix", f"{message} levels of a column: use a shorter prefix"))
        if pair is not None:
            raise wrong(("prefix", f"{pair[0]!a} and {pair[1]!a} look the same and are not"))
        if formula is not None:
            raise wrong(("prefix", f"the level {formula!r} starts like a spreadsheet formula"))
        return self

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The different prefixes, in the order of the codes."""
        return tuple(dict.fromkeys(code[: self.prefix] for code in self.codes))

    def holds(self, code: str) -> bool:
        """Whether a code begins like one of the codes."""
        return code[: self.prefix] in self.labels

    def texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Each code, and its level."""
        for i, code in enumerate(self.codes):
            yield from ((("codes", i), text) for text in {code: 0, code[: self.prefix]: 0})
