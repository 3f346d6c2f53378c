"""Every spec in specs/ loads, can be planned within its budget, and fits its table's header."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from synthdp.audit import shadow_spec
from synthdp.data import Domain, builtin, encode
from synthdp.model import plan_for
from synthdp.privacy.calibration import make_plan
from synthdp.release import release
from synthdp.spec import load_spec
from synthdp.spec.model import BuiltinSource, CsvSource, IdUnit
from synthdp.verify import verify_bundle

ROOT = Path(__file__).parent.parent / "specs"
SPECS = sorted(ROOT.glob("*.yaml"))
TRUE = builtin.graph("synthetic").pairs()


@pytest.mark.check
@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_a_spec_loads_is_planned_within_its_budget_and_fits_its_table(path: Path) -> None:
    spec = load_spec(path)
    domain = Domain.from_spec(spec.columns)
    plan = plan_for(spec, domain)
    assert (
        0.99 * spec.privacy.epsilon < plan.epsilon_spent <= spec.privacy.epsilon
        and plan.delta == spec.privacy.delta
    )
    shadow = make_plan(shadow_spec(spec), domain)
    assert shadow.epsilon == spec.privacy.epsilon and {s.purpose for s in shadow.spends} == {
        s.purpose for s in plan.spends if not s.purpose.startswith("graph")
    }

    source, unit = spec.dataset.source, spec.dataset.privacy_unit
    wanted = {*domain.names, *([unit.column] if isinstance(unit, IdUnit) else [])}
    if isinstance(source, BuiltinSource):
        table = builtin.frame(source.name)
    else:
        assert isinstance(source, CsvSource)
        with (ROOT / source.path).open(encoding="utf-8") as file:
            assert set(next(csv.reader(file))) == wanted
        table = pd.read_csv(
            ROOT / source.path,
            dtype=str,
            keep_default_na=False,
            na_values=list(source.missing_values),
        )
    assert set(table) == wanted
    codes, encoded = encode(domain, table)
    if spec.dataset.out_of_domain == "refuse":
        assert {n: e.misfits for n, e in encoded.items() if e.misfits} == {}
    if spec.dataset.rows.kind == "public":
        assert len(table) == spec.dataset.rows.value
    assert all(
        len(np.unique(codes[:, i])) > 1 for i in range(len(domain))
    )  # no column is read as one constant


@pytest.mark.slow
def test_the_learning_spec_is_released_as_it_stands(tmp_path: Path) -> None:
    """All rounds of tables, tracking and attack included; the other specs are released by the
    benchmark and the README.
    """
    shutil.copy(ROOT / "synthetic-learn.yaml", tmp_path)
    outcome = release(tmp_path / "synthetic-learn.yaml", out=tmp_path / "out")
    assert outcome.bundle is not None and verify_bundle(outcome.bundle).ok
    edges = json.loads((outcome.bundle / "graph.json").read_text())["edges"]
    learned = [(e["from"], e["to"]) for e in edges if e["provenance"] == "learned"]
    skeleton = {frozenset(e) for e in TRUE}
    assert len(learned) >= 4 and np.mean([frozenset(e) in skeleton for e in learned]) >= 0.6


def test_what_the_learning_spec_claims_to_know_is_true_of_its_table() -> None:
    graph = load_spec(ROOT / "synthetic-learn.yaml").graph
    tier = {name: i for i, names in enumerate(graph.tiers) for name in names}
    assert set(graph.pairs()) <= set(TRUE)
    assert not {(a, b) for e in graph.forbidden for a in e.causes for b in e.effects} & set(TRUE)
    assert all(tier.get(a, -1) <= tier[b] for a, b in TRUE if b in tier and a in tier)
