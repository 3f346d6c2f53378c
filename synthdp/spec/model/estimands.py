"""`estimands`: numbers that are paid for, so that the bundle has them with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from annotated_types import Unit
from pydantic import Field

from synthdp.spec.model.columns import Column, Integer, Number
from synthdp.spec.model.evaluation import Effect
from synthdp.spec.model.fields import Model, Name, Names, Real

MAX_TABLE = 6  # columns of a table
MAX_TERMS = 20  # of a regression
MAX_COEFFICIENTS = 30  # of a regression

Clip = Annotated[tuple[Real, ...], Field(min_length=2, max_length=2), Unit("that of the column")]
"""Where a number ends for the sums: what lies beyond counts as the nearer end."""


class AskedEstimand(Model):
    """A share, a count, a mean or a quantile, as `synthdp answer` is asked for it.

    A quantile is read off a histogram of the column's levels: declare bins as narrow as its answer
    shall be.
    """

    kind: Literal["question"] = Field(description="a question", examples=["question"])
    ask: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        description=(
            "share(CONDITION), count(CONDITION), mean(COLUMN), median(COLUMN) or"
            " quantile(COLUMN, P), perhaps `where CONDITION`, perhaps `by COLUMN`; conditions"
            " see the values themselves"
        ),
        examples=["mean(mdvis) where hlthp == '1' by idp"],
    )
    clip: Clip | None = Field(
        default=None,
        description="of a mean: where its numbers end; default: the column's bounds",
        examples=[[0, 30]],
    )


class TableEstimand(Model):
    """A contingency table of several columns, in all their levels.

    It joins the noisy tables of the bundle: `synthdp answer` reads it, and the rows are held to it.
    """

    kind: Literal["table"] = Field(description="a contingency table", examples=["table"])
    columns: Annotated[Names, Field(min_length=2, max_length=MAX_TABLE)] = Field(
        description="its columns, of at most 100,000 cells together",
        examples=[["hlthp", "idp", "hlthg"]],
    )


class EffectEstimand(Effect):
    """The average effect of a treatment, by strata of the adjusted columns.

    Without `adjust` columns it is a difference of means.
    """

    kind: Literal["effect"] = Field(description="an average effect", examples=["effect"])
    clip: Clip | None = Field(
        default=None,
        description="where the outcome's numbers end; default: the column's bounds",
        examples=[[0, 30]],
    )


class RegressionEstimand(Model):
    """A linear regression by least squares: the intercept, and a coefficient for each term.

    Numbers are told in their own unit; a category has a coefficient for each level but its first.
    Rows that lack one of the columns are left out.
    """

    kind: Literal["regression"] = Field(description="a linear regression", examples=["regression"])
    outcome: Name = Field(
        description="column that is explained: a number, or categories by their position",
        examples=["mdvis"],
    )
    terms: Annotated[Names, Field(min_length=1, max_length=MAX_TERMS)] = Field(
        description=(
            "columns, and products of two that are terms, too, e.g. age:sex; at most"
            f" {MAX_COEFFICIENTS} coefficients"
        ),
        examples=[["lpi", "hlthp", "lpi:hlthp"]],
    )
    where: Annotated[str, Field(min_length=1, max_length=1000)] | None = Field(
        default=None,
        description="condition on the rows that are asked about; default: all",
        examples=["idp == '1'"],
    )
    clips: dict[Name, Clip] = Field(
        default={},
        description="where numbers of a column end; default: the column's bounds",
        examples=[{"mdvis": [0, 30]}],
    )


Estimand = Annotated[
    AskedEstimand | TableEstimand | EffectEstimand | RegressionEstimand,
    Field(discriminator="kind"),
]
"""One number, or one table of numbers, that is paid for."""


def term_columns(term: str, columns: Mapping[str, Column]) -> tuple[str, ...]:
    """The columns of a term: one, or the two of a product.

    >>> age = Integer(type="integer", lower=0, upper=99)
    >>> term_columns("age:sex", {"age": age}), term_columns("a:b", {"a:b": age})
    (('age', 'sex'), ('a:b',))
    """
    return (term,) if term in columns else tuple(term.split(":"))


def number_bounds(column: Column) -> tuple[float, float]:
    """The least and the largest number of a column; categories count by their position.

    >>> number_bounds(Integer(type="integer", lower=0, upper=99))
    (0.0, 99.0)
    """
    if isinstance(column, Integer | Number):
        return float(column.lower), float(column.upper)
    return 0.0, float(max(len(column.labels) - 1, 1))
