"""`gates`: bounds on the result that must hold, or the bundle is withheld."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from synthdp.spec.model.fields import Flag, Model, Real, renamed, wrong

ATTACK_FIGURES = ("advantage_upper", "auc_upper", "tpr_upper", "epsilon_lower")
"""Of the declared attack that does best: upper limits of the advantage, of the AUC and of the
true-positive rate at 1% false positives, and what was proved of epsilon. As `attack_...` on real
rows, as `simulated_...` in the public audit on the simulated twin.
"""

DP_METRICS = ("tv1_dp", "tv2_dp", "tstr_accuracy_dp")
"""Published scores of `evaluation.disclosure: private`; the last is the mean over the targets that
are no numbers.
"""
RENAMED_METRICS = {f"{name.removesuffix('_dp')}_charged": name for name in DP_METRICS}
PUBLIC_METRICS = (
    "tv1_noisy",
    *DP_METRICS,
    "simulated_advantage_upper",
    "simulated_auc_upper",
    "simulated_tpr_upper",
    "simulated_epsilon_lower",
)
ATTACK_METRICS = (
    "attack_advantage_upper",
    "attack_auc_upper",
    "attack_tpr_upper",
    "attack_epsilon_lower",
)
CONFIDENTIAL_METRICS = ("tv1", "tv2", "tv3", "tstr_auc", "tstr_ratio", *ATTACK_METRICS)


class Gate(Model):
    """A bound that must hold or the bundle is withheld.

    A gate on a figure of real rows makes publishing itself depend on them: it must be opted into
    with `outside_guarantee: true`, and the certificate says so. Gates on `simulated_...` figures
    are held against the audit of the plan on its simulated twin (`synthdp audit SPEC --simulated`),
    before anything is spent.

    Gates on attacks take the largest figure of the three attacks. `..._upper` are upper ends of 95%
    intervals, which luck moves: a limit that more than 5% of runs without any leak would exceed is
    refused, and the lowest possible is told.
    """

    metric: Annotated[
        Literal[
            "tv1_noisy",
            "tv1_dp",
            "tv2_dp",
            "tstr_accuracy_dp",
            "simulated_advantage_upper",
            "simulated_auc_upper",
            "simulated_tpr_upper",
            "simulated_epsilon_lower",
            "tv1",
            "tv2",
            "tv3",
            "tstr_auc",
            "tstr_ratio",
            "attack_advantage_upper",
            "attack_auc_upper",
            "attack_tpr_upper",
            "attack_epsilon_lower",
        ],
        renamed(RENAMED_METRICS),
    ] = Field(
        description=(
            "the bounded figure; all but tv1_noisy, ..._dp and simulated_... are of real"
            " rows, without noise"
        ),
        examples=["tv1_noisy"],
    )
    at_most: Real | None = Field(
        default=None, description="the most that it may be", examples=[0.05]
    )
    at_least: Real | None = Field(
        default=None, description="the least that it may be, instead of at_most", examples=[0.8]
    )
    outside_guarantee: Flag = Field(
        default=False,
        description="accept that publishing then depends on real rows, which no epsilon covers",
        examples=[True],
    )

    @model_validator(mode="after")
    def _one_bound(self) -> Gate:
        if (self.at_most is None) == (self.at_least is None):
            raise wrong(("", "give exactly one of at_most, at_least"))
        if self.attacked and self.at_most is None:
            raise wrong(("at_least", f"{self.metric} is better the lower it is; give at_most"))
        if self.metric in CONFIDENTIAL_METRICS and not self.outside_guarantee:
            raise wrong(
                (
                    "metric",
                    (
                        f"{self.metric} is computed on real rows, so a gate on it is outside the"
                        " guarantee; say outside_guarantee: true to accept that, or use one of"
                        f" {', '.join(PUBLIC_METRICS)}"
                    ),
                )
            )
        if self.simulated and self.outside_guarantee:
            raise wrong(
                (
                    "outside_guarantee",
                    (
                        f"{self.metric} is computed on simulated rows alone, so a gate on it is"
                        " inside; delete this line"
                    ),
                )
            )
        if self.on_dp_score and self.outside_guarantee:
            raise wrong(
                (
                    "outside_guarantee",
                    (
                        f"{self.metric} is paid for, so a gate on it is inside the guarantee;"
                        " delete this line"
                    ),
                )
            )
        return self

    @property
    def on_dp_score(self) -> bool:
        """Whether the figure is a published score, so that the gate is inside the guarantee."""
        return self.metric in DP_METRICS

    @property
    def simulated(self) -> bool:
        """Whether the figure is one of the public audit's."""
        return self.metric.startswith("simulated_")

    @property
    def attacked(self) -> str | None:
        """The figure of an attack that the gate is about, or None for other gates.

        The place where the figure was measured is left out.
        """
        figure = self.metric.removeprefix("simulated_").removeprefix("attack_")
        return figure if figure in ATTACK_FIGURES else None
