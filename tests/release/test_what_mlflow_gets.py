"""What MLflow gets of a release, to the name: settings from the spec, what was released, and
figures of quality and attack; no count of rows.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from synthdp.release import TRACKED
from synthdp.tracking import AttackOutcome, PublicationVerdict, Tracker

pytestmark = pytest.mark.check

MISFITS = 37
METRICS = {
    *("epsilon_planned", "epsilon_spent", "tv1_noisy", "edges_given"),
    *("columns_noise", "pairs_noise"),
    *("told_apart_auc", "told_apart_auc_low", "told_apart_auc_high"),
    *("tv1", "tv2", "tv3", "tstr_auc", "tstr_ratio", "trtr_auc"),
}


class Told(Tracker):
    """Writes down what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.figures: dict[str, float] = {}
        self.files: list[str] = []
        self.settings: dict[str, Any] = {}
        self.words: list[str] = []

    def params(self, values: Mapping[str, Any]) -> None:
        self.settings |= values

    def metrics(self, values: Mapping[str, float]) -> None:
        self.figures |= values

    def artifact(self, path: Path, *, folder: str | None = None) -> None:
        self.files.append(f"{folder or ''}/{path.name}")

    def attack(self, outcome: AttackOutcome) -> None:
        self.words.append(str(outcome))

    def conclude(self, verdict: PublicationVerdict) -> None:
        self.words.append(str(verdict))


def test_a_release_tells_no_count_of_real_rows(
    tiny: Any, make_table: Callable[..., pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor how many of them do not fit the domain."""
    rows = make_table()
    rows.loc[: MISFITS - 1, "weight"] = 500.0
    told = Told()
    monkeypatch.setattr("synthdp.release.tracked.tracker", lambda *_, **__: told)
    tiny.write(rows, dataset={"out_of_domain": "clamp"}).release()
    # Associations are told where both tables have some: with noise as it is, not always.
    assert set(told.figures) - {"association_rmse"} == METRICS and told.settings == {}
    assert not {float(MISFITS), float(len(rows))} & set(told.figures.values())
    assert str(MISFITS) not in "".join(told.words)
    assert sorted(told.files) == sorted(
        ["/internal.html", *(f"bundle/{'privacy/' * (n == 'privacy')}{n}" for n in TRACKED)]
    )


def test_questions_that_got_an_answer_are_counted(
    tiny: Any, make_table: Callable[..., pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    told, asks = Told(), ("share(sex == 'female')", "mean(weight) where visits > 9999")
    asked = [{"kind": "question", "ask": ask} for ask in asks]
    monkeypatch.setattr("synthdp.release.tracked.tracker", lambda *_, **__: told)
    shares = {"measure": 0.2, "train": 0.3, "estimands": 0.5}
    tiny.write(make_table(), privacy={"shares": shares}, estimands=asked).release(
        accept_refusals=True
    )
    assert (told.figures["estimands_asked"], told.figures["estimands_answered"]) == (2, 1)
