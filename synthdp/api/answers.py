"""What a bundle can be asked for: numbers, effects and copies, with right intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from synthdp.api.tables import CopiedTables

if TYPE_CHECKING:
    from synthdp.inference.answer import Answer
    from synthdp.inference.effect import EffectAnswer
    from synthdp.inference.estimands import EstimandResult


class Answers:
    """The questions that a bundle's noisy tables and sums answer. None of them costs privacy.

    >>> import synthdp
    >>> synthdp.Bundle("releases/clinic/bundle").answer("share(smoker)").tier
    'A'
    """

    path: Path

    def copies(
        self,
        m: int = 20,
        *,
        columns: Sequence[str] | None = None,
        rows: int | None = None,
        seed: int | None = None,
    ) -> CopiedTables:
        """Tables whose pooled analyses have right 95% intervals for what the noisy tables span.

        Args:
            m: how many, at least 2.
            columns: those of an analysis; all, if they are few.
            rows: of each; five times as many as were counted, unless told otherwise.
            seed: for copies that can be repeated.

        The result has `tables`, typed as in `table`, and `spanned`, the content of `spanned.json`:
        for which analyses the intervals are right, and the rule that combines them. It costs no
        privacy.

        Raises:
            OutputError: the columns are too many for these tables, or no table has two of them.
            VerifyError: a file was changed, or the tables do not agree.

        >>> import synthdp
        >>> copies = synthdp.Bundle("releases/clinic/bundle").copies(3, columns=["smoker"], rows=50)
        >>> [len(table) for table in copies.tables], copies.spanned["sets"][0]["columns"]
        ([50, 50, 50], ['smoker'])
        """
        from synthdp.inference.copies import copies_of
        from synthdp.sample.files import typed_rows

        found = copies_of(self.path, m, columns=columns, rows=rows, seed=seed)
        tables = [typed_rows(iter([table]), found.columns) for table in found]
        return CopiedTables(tables, found.spanned)

    def answer(self, query: str) -> Answer:
        """A number with a 95% interval, from the noisy tables. It costs no privacy.

        Args:
            query: `share(CONDITION)`, `count(CONDITION)`, `mean(COLUMN)` or `quantile(COLUMN, P)`,
                then perhaps `where CONDITION`, then perhaps `by COLUMN`.

        The answer has `tier` (A measured, B spanned, C model only: no interval), `figures` (one for
        each group of `by`) and `about` (what they are of, in words). `estimate` and `interval` are
        of an answer without `by`.

        Raises:
            QueryError: the question cannot be read.
            OutputError: it has too many cells or groups.
            VerifyError: a file was changed, or the tables do not agree.

        >>> import synthdp
        >>> answer = synthdp.Bundle("releases/clinic/bundle").answer("share(smoker) by sex")
        >>> answer.tier, [figure.group for figure in answer.figures]
        ('C', ['female', 'male'])
        """
        from synthdp.inference.answer import answer_bundle

        return answer_bundle(self.path, query)

    def effect(
        self,
        treatment: str,
        outcome: str,
        adjust: Sequence[str] | None = None,
        *,
        reference: str | None = None,
        level: str | None = None,
    ) -> EffectAnswer:
        """The effect of one column on another, by graph and noisy tables. It costs no privacy.

        It is on the mean of a number, or on the share of a category's `level`. None of `adjust`
        leaves to the graph what is adjusted for; `reference` is the treatment's first level.

        Raises:
            OutputError: the graph does not identify the effect, or a name is unknown.
            VerifyError: a file was changed, or the tables do not agree.

        >>> import synthdp
        >>> effect = synthdp.Bundle("releases/clinic/bundle").effect("sex", "smoker")
        >>> effect.tier, [figure.group for figure in effect.figures], effect.adjusted
        ('C', ['male against female'], ((),))
        """
        from synthdp.inference.effect import effect_of_bundle
        from synthdp.inference.effect_query import EffectQuery

        names = None if adjust is None else tuple(adjust)
        return effect_of_bundle(self.path, EffectQuery(treatment, outcome, names, reference, level))

    @property
    def estimands(self) -> tuple[EstimandResult, ...]:
        """What the release was asked and paid for, with 95% intervals, in the order of the spec.

        Raises:
            VerifyError: a file was changed, or cannot be read.

        >>> import synthdp
        >>> synthdp.Bundle("releases/clinic/bundle").estimands
        ()
        """
        from synthdp.inference.estimands import bundle_estimands

        return bundle_estimands(self.path)
