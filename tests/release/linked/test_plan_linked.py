"""What `plan` says of linked tables: what a release takes, and what its attack would."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.api.text import linked_plan_text
from synthdp.audit import (
    LinkedMeasurer,
    PersonRows,
    attack_persons,
    linked,
    random_persons,
    read,
    shadow_linked,
)
from synthdp.data import VisitFrame
from synthdp.model import plan_linked
from synthdp.progress import unheard
from synthdp.release import planned_linked
from tests.release.linked.conftest import PAID, PERSONS, SPEC, spec_at, write_spec

PREDICT = {"graph": {"mode": "predict", "edges": []}}
PROBE = """
import sys
from synthdp.cli.main import app
for spec in {specs!r}:
    sys.argv = ["synthdp", "plan", spec, "--json"]
    try:
        app()
    except SystemExit as done:
        assert not done.code, done
print(*(m for m in ("torch", "mlflow", "sklearn", "opacus") if m in sys.modules), file=sys.stderr)
"""


def facts_of(folder: Path, change: dict[str, Any]) -> dict[str, Any]:
    path = write_spec(folder, change)
    return planned_linked(spec_at(path), path)[0]


@pytest.mark.check
def test_a_plan_is_composed_without_torch(tmp_path: Path) -> None:
    attacks = {"attacks": {"membership": {"rows": 100, "pairs": 20}}}
    folders = [tmp_path / "paid", tmp_path / "predict"]
    for folder, change in zip(folders, (PAID, PREDICT), strict=True):
        folder.mkdir()
        write_spec(folder, change | attacks)
    probe = PROBE.format(specs=[str(folder / "ward.yaml") for folder in folders])
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stderr.splitlines()[-1] == "" and done.stdout.count('"dataset": "ward"') == 2


def test_a_plan_says_what_a_release_takes(tmp_path: Path) -> None:
    few, many = (
        facts_of(
            tmp_path,
            {
                "dataset": {"tables": _tables(persons)},
                "sampling": {"persons": persons},
                "privacy": {"epsilon": 5.0, "delta": 1e-8},
            },
        )
        for persons in (PERSONS, 1_000_000)
    )
    assert few["attack"] is None and few["notes"] == []
    assert 5 < few["expected"]["cpu_seconds"] < 15 and few["expected"]["memory_mb"] == 700
    assert many["expected"]["cpu_seconds"] > 2 * few["expected"]["cpu_seconds"]
    assert many["expected"]["memory_mb"] > 2 * few["expected"]["memory_mb"]
    told = linked_plan_text(few)
    assert f"expected: about {few['expected']['cpu_seconds']:g} CPU seconds and 700 MB" in told


def _tables(persons: int) -> dict[str, Any]:
    tables: dict[str, Any] = SPEC["dataset"]["tables"]
    rows = {"kind": "approximate", "value": persons}
    return {**tables, "patients": {**tables["patients"], "rows": rows}}


@pytest.mark.parametrize("change", [{}, PREDICT, PAID])
def test_the_forecast_of_the_attack_is_of_the_tables_that_it_counts(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    """So many that each more would mean fewer releases; those of estimands are among them."""
    size = {"rows": 300, "pairs": 10_000}
    attacked = {**change, "attacks": {"membership": size}}
    facts = facts_of(tmp_path, attacked)
    power = facts["attack"]
    spec = spec_at(write_spec(tmp_path, attacked))
    frame = VisitFrame.from_spec(spec)
    rows = PersonRows(frame, plan_linked(spec, frame))
    nobody = np.zeros((0, len(rows.public.sizes)), np.int64)
    tables = len(LinkedMeasurer(shadow_linked(spec), rows)(nobody))
    assert power["releases"] == max(10_000, 50_000 // (2 * tables))
    assert power["models"] == 20_000 and power["rows"] == 300
    told = linked_plan_text(facts)
    assert "trains 20,000 models on 300 persons each, and takes about" in told


@pytest.mark.check
def test_a_release_with_estimands_can_be_attacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shadow release counts their tables, too, however few persons it has."""
    change = {**PAID, "attacks": {"membership": {"rows": 40, "pairs": 4}}}
    spec = spec_at(write_spec(tmp_path, change))
    frame, rng = VisitFrame.from_spec(spec), np.random.default_rng(1)
    table = read(frame, random_persons(frame, 60, rng))
    board: list[Any] = []
    monkeypatch.setattr(linked, "attack_shadows", lambda *how, **_: board.extend(how))
    attack_persons(table, spec, folder=tmp_path, progress=unheard)
    trainer, measurer, drawn = board
    rows = drawn(rng).rows
    played = trainer(rows, seed_sequence=np.random.SeedSequence(1))
    assert len(played.synthetic) and "tables" in played.scores
    assert "estimand: 1" in measurer.looks and len(measurer(rows)) == 23
