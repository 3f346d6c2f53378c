"""`gates`: bounds on the result that must hold, or the bundle is withheld."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from synthdp.spec.fields import Flag, Model, Real, wrong

PUBLIC_METRICS = ("tv1_noisy",)
CONFIDENTIAL_METRICS = ("tv1", "tv2", "tv3", "tstr_auc", "tstr_ratio", "attack_advantage_upper", "attack_auc")


class Gate(Model):
    """A bound that must hold or the bundle is withheld.

    A gate on a figure computed on real rows makes publishing itself depend on rows: it must be opted into
    with `outside_guarantee: true`, and the certificate then says so.
    """

    metric: Literal["tv1_noisy", "tv1", "tv2", "tv3", "tstr_auc", "tstr_ratio", "attack_advantage_upper", "attack_auc"] = Field(
        description="the figure that is bounded; all but tv1_noisy are computed on real rows", examples=["tv1_noisy"]
    )
    at_most: Real | None = Field(default=None, description="the most that it may be; give this or at_least", examples=[0.05])
    at_least: Real | None = Field(default=None, description="the least that it may be; give this or at_most", examples=[0.8])
    outside_guarantee: Flag = Field(
        default=False, description="accept that publishing itself then depends on real rows, which no epsilon covers", examples=[True]
    )

    @model_validator(mode="after")
    def _one_bound(self) -> Gate:
        if (self.at_most is None) == (self.at_least is None):
            raise wrong(("", "give exactly one of at_most, at_least"))
        if self.metric in CONFIDENTIAL_METRICS and not self.outside_guarantee:
            raise wrong(
                (
                    "metric",
                    f"{self.metric} is computed on real rows, so a gate on it is outside the guarantee; "
                    f"say outside_guarantee: true to accept that, or use one of {', '.join(PUBLIC_METRICS)}",
                )
            )
        return self
