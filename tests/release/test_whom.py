"""Whom rows and figures are of, where an id has several rows: said in the bundle and by `plan`."""

import json
from pathlib import Path

import numpy as np
import pytest

from synthdp.api.text import plan_text
from synthdp.ledger import Balance
from synthdp.release.plan_view import plan_facts
from synthdp.spec import load_spec, parse_spec
from tests.differential.coins import CoinsInTurn
from tests.differential.harness import Tape, run
from tests.inference.conftest import stated
from tests.release.test_golden_bundles import ASKED, ROWS, case_of

NOTHING = Balance("s", 0.0, 0.0, None, None)


@pytest.mark.check
@pytest.mark.parametrize(("name", "said"), [("persons", True), ("none", False)])
def test_the_bundle_says_it_in_every_text(name: str, said: bool, tmp_path: Path) -> None:
    mode, source, options = ASKED[name]
    case = case_of(mode, source, list(options), np.random.default_rng(0), rows=ROWS)
    assert case is not None
    run(*case, tmp_path, Tape(), seed=name, coins=CoinsInTurn)
    bundle = next(tmp_path.rglob("DATACARD.md")).parent
    unit = load_spec(bundle / "spec.yaml").dataset.privacy_unit
    assert (unit.whom is not None) is said
    for file in ("README.md", "DATACARD.md", "report.html"):
        text = " ".join((bundle / file).read_text(encoding="utf-8").split())
        assert ("rows and figures stand for" in text) is said, file
        assert f"of each id ({unit.meaning}), not for all rows" in text or not said


def test_a_plan_shows_what_more_rows_of_an_id_cost() -> None:
    unit = {"kind": "id", "column": "patient", "max_rows": 4, "meaning": "one patient"}
    spec = parse_spec(json.dumps(stated(privacy_unit=unit)), path="s")
    facts = plan_facts(spec, NOTHING)
    assert [row["max_rows"] for row in facts["rows_of_one"]] == [1, 2, 3, 4, 5, 10]
    rng = np.random.default_rng(3)
    rows = rng.geometric(1 / 4, 200_000)
    for row in facts["rows_of_one"]:
        kept = np.minimum(rows, row["max_rows"]).sum() / rows.sum()
        assert row["kept"]["4"] == pytest.approx(kept, abs=0.01)
    text = plan_text(facts)
    assert "58% kept, x 5.2" in text and "25% kept, x 4.0" in text
    assert spec.dataset.privacy_unit.whom in text
    alone = plan_facts(parse_spec(json.dumps(stated()), path="s"), NOTHING)
    assert alone["rows_of_one"] == [] and "kept" not in plan_text(alone)
