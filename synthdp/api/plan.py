"""What a release would spend and cost. Nothing here comes from rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from synthdp.api.cards import cards_html

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class BudgetPlan:
    """Every planned spend, and the ledger before and after; made by `Spec.plan`.

    `epsilon` is what all spends compose to, and is the release's guarantee at `delta`. The spec
    allows `epsilon_allowed`.

    >>> import synthdp
    >>> plan = synthdp.Spec.load("clinic.yaml").plan()
    >>> plan.epsilon <= plan.epsilon_allowed == 1.0
    True
    >>> list(plan.spends.columns)
    ['purpose', 'mechanism', 'epsilon_alone', 'serves']
    """

    dataset: str
    epsilon: float
    epsilon_allowed: float
    delta: float
    warnings: tuple[str, ...]
    facts: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> BudgetPlan:
        """From the object that `synthdp plan --json` prints."""
        return cls(
            dataset=facts["dataset"],
            epsilon=facts["epsilon_spent"],
            epsilon_allowed=facts["epsilon"],
            delta=facts["delta"],
            warnings=tuple(facts["warnings"]),
            facts=facts,
        )

    @property
    def spends(self) -> pd.DataFrame:
        """One row a spend; `epsilon_alone` is the epsilon of that spend by itself at `delta`.

        Together the spends cost less than the sum, since one accountant composes them.

        >>> import synthdp
        >>> synthdp.Spec.load("clinic.yaml").plan().spends["purpose"].tolist()
        ['measure', 'train']
        """
        import pandas as pd

        columns = ["purpose", "mechanism", "epsilon_alone", "serves"]
        return pd.DataFrame(self.facts["spends"], columns=columns)

    @property
    def what_if(self) -> pd.DataFrame:
        """One row for each epsilon that `Spec.plan` was asked about; empty if it was not.

        `right_at_most` is the highest probability that someone who knows every other row is right
        about one unit, `tv1` the expected mean total variation of single columns,
        `weakest_correlation` and `weakest_link` (Cohen's w) the least that mode predict and the
        first test of a graph are likely to see. All else is in `facts["what_if"]`.

        >>> import synthdp
        >>> asked = synthdp.Spec.load("clinic.yaml").plan(what_if=[0.5, 2]).what_if
        >>> bool(asked["right_at_most"].is_monotonic_increasing)
        True
        """
        import pandas as pd

        columns = ["epsilon", "right_at_most", "tv1", "weakest_correlation", "weakest_link"]
        rows = []
        for option in self.facts.get("what_if", ()):
            quality = option.get("quality", {})
            links = [link["typical"] for link in quality.get("links", ())[:1]]
            rows.append({**option, **quality, "weakest_link": next(iter(links), None)})
        return pd.DataFrame(rows, columns=columns)

    @property
    def rehearsal(self) -> Mapping[str, Any] | None:
        """A release on simulated rows held against them, if `Spec.plan` was asked to rehearse.

        `tv1` and `tv2` are of the released rows, `answers` of the noisy tables: bias, error and how
        many intervals hold the truth, for means, shares and shares of pairs.

        >>> import synthdp
        >>> rehearsed = synthdp.Spec.load("clinic.yaml").plan(rehearse=True).rehearsal
        >>> [answers["kind"] for answers in rehearsed["answers"]]
        ['means', 'shares', 'pair shares']
        """
        rehearsal: Mapping[str, Any] | None = self.facts.get("rehearsal")
        return rehearsal

    @property
    def ledger(self) -> Mapping[str, float | None]:
        """Epsilon of this dataset in the ledger: `spent_before`, `spent_after` and `cap`.

        >>> import synthdp
        >>> synthdp.Spec.load("clinic.yaml").plan().ledger["cap"]
        9.0
        """
        ledger: Mapping[str, float | None] = self.facts["ledger"]
        return ledger

    def to_json(self) -> dict[str, Any]:
        """The object that `synthdp plan --json` prints.

        >>> import synthdp
        >>> synthdp.Spec.load("clinic.yaml").plan().to_json()["delta"]
        1e-05
        """
        return dict(self.facts)

    def _repr_html_(self) -> str:
        from synthdp.report.tables import ReportTable
        from synthdp.report.verdicts import Verdict

        facts, ledger, expected = self.facts, self.ledger, self.facts["expected"]
        cap = "no cap" if ledger["cap"] is None else f"cap {ledger['cap']:g}"
        cards = [
            Verdict(
                "Guarantee",
                f"epsilon {self.epsilon:.4f}",
                f"of {self.epsilon_allowed:g} allowed, at delta {self.delta:g};"
                f" {facts['adjacency']} neighbours",
            ),
            Verdict(
                "Ledger",
                f"{ledger['spent_after']:g} after this release",
                f"{ledger['spent_before']:g} before, {cap}",
            ),
            Verdict(
                "Expected cost",
                f"{expected['cpu_seconds']:g} CPU seconds",
                f"and {expected['memory_mb']} MB, for measuring, fitting and sampling",
            ),
        ]
        quality = facts["quality"]
        cards.append(
            Verdict(
                "Expected quality",
                f"TV1 about {quality['tv1']:.2g}",
                "mean total variation of single columns, by public facts and the planned noise",
            )
        )
        spends = ReportTable(
            "Spends, each with its epsilon alone",
            ("spend", "epsilon alone", "mechanism", "serves"),
            tuple(
                (s["purpose"], f"{s['epsilon_alone']:.3f}", s["mechanism"], ", ".join(s["serves"]))
                for s in facts["spends"]
            ),
        )
        tables, notes = [spends], (*facts.get("notes", ()), *self.warnings)
        if "what_if" in facts:
            from synthdp.release.what_if import figures_table

            head, rows = figures_table(facts["what_if"])
            tables.append(ReportTable("At other budgets", tuple(head), tuple(map(tuple, rows))))
        return cards_html(f"Plan for {self.dataset}", cards, tables=tables, notes=notes)
