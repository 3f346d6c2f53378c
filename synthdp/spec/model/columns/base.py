"""What every column of a spec has, and what the rest of the spec asks of a column's type.

A type is a model: its fields are the keys in YAML, and what is declared here says how the type
behaves in expressions, checks and the questions of `synthdp init`. How values of the type are read
and written is its `ColumnKind` (`synthdp.data.kinds`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from synthdp.spec.model.fields import FewCodes, Flag, Model

CODEBOOK = "from the codebook, never from the rows"

Operand = Literal["text", "number", "date", "unread"]


@dataclass(frozen=True)
class Question:
    """What `synthdp init` asks for one field of a column.

    `text` follows the column's name. `answer` is the type that the answer must have, None for free
    text. With `many` the answer is a list, parted by commas, of texts or else of plain YAML values.
    An empty answer is the `default`; where that is empty too, the field is left out.
    """

    field: str
    text: str
    answer: Any = None
    many: bool = False
    texts: bool = False
    default: str | None = None


class ColumnBase(Model):
    """What every column has."""

    ranged: ClassVar[bool] = False
    """Whether values are numbers or instants rather than categories."""
    ordered: ClassVar[bool] = False
    """Whether the order of the levels means something."""
    continuous: ClassVar[bool] = False
    """Whether values are real numbers, which lie between any two others."""
    truth: ClassVar[bool] = False
    """Whether the column may stand by itself where something true or false is needed."""
    operand: ClassVar[Operand] = "text"
    """What the column is in expressions."""
    questions: ClassVar[tuple[Question, ...]] = ()
    """What `synthdp init` asks, in this order; whether values may be missing is asked after it."""
    sketch: ClassVar[tuple[str, ...]] = ()
    """The type's own keys with a word on each, for the head of a draft; one line each."""

    missing: Flag = Field(
        default=False,
        description="whether values may be missing, as a state of their own",
        examples=[True],
    )
    missing_codes: FewCodes = Field(
        default=(),
        description=(
            "codes of the source that stand for a missing value; compared like categories,"
            " and as numbers in ranges"
        ),
        examples=[[-9, 999]],
    )
    description: str | None = Field(
        default=None,
        description="what the column holds, for the bundle's metadata",
        examples=["outpatient visits"],
    )
    unit: str | None = Field(
        default=None,
        description="unit of its values, for the bundle's metadata",
        examples=["years"],
    )

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories, in the order of their levels; empty for numbers and dates."""
        return ()

    @property
    def level_count(self) -> int:
        """Number of levels, the missing one included."""
        return len(self.labels) + self.missing

    def texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Every text that stands for a value, and its place inside the column's entry."""
        return iter(())

    def holds(self, code: str) -> bool:
        """Whether a code of the source is a value of the column."""
        return code in self.labels

    def mistakes(self) -> Iterator[tuple[str, str, str]]:
        """Mistakes that are told with a hint, as (field, message, hint)."""
        if self.missing_codes and not self.missing:
            message = "codes of missing values, and no value may be missing"
            yield "missing_codes", message, "set missing: true"
        if held := [code for code in self.missing_codes if self.holds(code)]:
            message = f"a value of the column cannot also stand for a missing one: {held[0]}"
            yield "missing_codes", message, "take it out here, or out of the column's values"
