"""Whatever a valid spec asks for, on rows that hold nothing but noise: no error after a charge.

What can fail by what is public alone fails before, and costs nothing.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp.data import Domain
from synthdp.errors import BudgetError, GateError, SynthdpError, WrongTableError, budget_note
from synthdp.ledger import Ledger
from synthdp.model import plan_for
from synthdp.privacy import accounting, plan
from synthdp.privacy.events.kinds import kind_of
from synthdp.release import release
from synthdp.spec import parse_spec
from synthdp.verify import verify_bundle
from tests.builders import PREDICT_COLUMNS, build_spec, skeleton

pytestmark = pytest.mark.check

MODES = ("none", "given", "validate", "learn", "predict")
EDGES = ["sex -> smoker", "smoker -> visits"]
ESTIMANDS: list[dict[str, Any]] = [
    {"kind": "table", "columns": ["sex", "smoker"]},
    {"kind": "question", "ask": "mean(age) by sex"},
    {"kind": "question", "ask": "share(visits >= 3) where age >= 65"},
    {"kind": "regression", "outcome": "visits", "terms": ["age", "smoker"]},
]
GROUP_SIZES = plan.GROUP_SIZES


def any_spec(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    """A spec of any mode, budget and unit; it need not be valid."""
    mode = str(rng.choice(MODES))
    person = rng.random() < 0.4
    unit = {"kind": "id", "column": "person", "max_rows": int(rng.integers(1, 6))}
    asked = [e for e in ESTIMANDS if rng.random() < 0.25]
    scored = rng.random() < 0.3
    parts = {"measure": 1.0, "train": 0.0 if mode == "predict" else 1.0}
    parts |= {"graph": 1.0} if mode in MODES[2:] else {}
    parts |= {"estimands": 1.0} if asked else {}
    weights = np.round(rng.dirichlet([3.0 * w for w in parts.values() if w]), 2)
    weights[0] = round(1 - float(weights[1:].sum()), 2)
    weighed = iter(weights.tolist())
    spec = skeleton(rows, source={"kind": "csv", "path": "table.csv"})
    spec["dataset"]["rows"]["kind"] = "approximate"
    if person:
        spec["dataset"]["privacy_unit"] = unit | {"meaning": "one person"}
    return spec | {
        "columns": PREDICT_COLUMNS,
        "privacy": {
            "epsilon": float(f"{10 ** rng.uniform(-2, 2):.3g}"),
            "delta": float(f"{10 ** rng.uniform(-9, -4):.2g}"),
            "adjacency": "replace_one" if not person and rng.random() < 0.5 else "add_remove",
            "shares": {name: next(weighed) if w else 0 for name, w in parts.items()},
        },
        "graph": {"mode": mode} | ({"edges": EDGES} if mode in ("given", "validate") else {}),
        "estimands": asked,
        "synthesizer": {"steps": 3, "batch": 16, "hidden": 8, "latent": 2},
        "sampling": {"rows": 50, "oversample": 2},
        "evaluation": {"targets": ["smoker"], "classifiers": ["logistic"]}
        | ({"disclosure": "private", "disclosure_share": 0.2} if scored else {}),
        "attacks": {"membership": {"enabled": False}},
        "tracking": {"enabled": False},
        "compute": {"threads": 1},
    }


def noise_only(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    """Columns that have nothing to do with each other, of `PREDICT_COLUMNS`."""
    return pd.DataFrame(
        {
            "smoker": rng.choice(["no", "yes"], rows),
            "sex": rng.choice(["female", "male"], rows),
            "age": rng.integers(18, 91, rows),
            "grade": rng.choice(["low", "middle", "high", ""], rows),
            "visits": rng.integers(0, 21, rows),
        }
    )


def outcome_of(folder: Path, seed: int, *, verified: bool) -> str:
    """What became of the spec of `seed`: invalid, refused (nothing charged), released, withheld.

    An error after a charge is raised, but for those that released values call for: a graph that
    they refute, and a table that they show to be another one.
    """
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([60, 300, 1000]))
    text, path = yaml.safe_dump(any_spec(rng, rows), sort_keys=False), folder / "spec.yaml"
    try:
        spec = parse_spec(text, path=str(path))
    except SynthdpError:
        return "invalid"
    path.write_text(text)
    frame = noise_only(rng, rows)
    if spec.dataset.privacy_unit.kind == "id":
        frame["person"] = [f"p{i // 2}" for i in range(rows)]
    frame.to_csv(folder / "table.csv", index=False)
    try:
        made = release(path, out=folder / "out", accept_refusals=True)
    except Exception as error:
        charged = Ledger(f"sqlite:///{folder / '.synthdp' / 'ledger.db'}").entries()
        spent = any(entry.kind == "charge" for entry in charged)
        if isinstance(error, SynthdpError) and not spent:
            return "refused"
        if isinstance(error, GateError | WrongTableError):
            return "withheld"
        raise AssertionError(f"seed {seed}, charged: {spent}\n{text}") from error
    if verified:
        assert made.bundle is not None
        verify_bundle(made.bundle)
    return "released"


def test_there_is_no_bound_where_nothing_protects_or_the_accountant_breaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At epsilon 90 a group of ten has next to no protection, where dp-accounting's own composition
    raises IndexError.
    """
    spec = build_spec(
        PREDICT_COLUMNS,
        rows=60,
        privacy={
            "epsilon": 90.0,
            "delta": 1e-5,
            "shares": {"measure": 0.2, "train": 0.5, "estimands": 0.3},
        },
        estimands=ESTIMANDS[:1],
        synthesizer={"batch": 16},
    )
    made = plan_for(spec, Domain.from_spec(spec.columns))
    events = [kind_of(event).widened(10) for event in made.events]
    assert math.isinf(accounting.epsilon(events, delta=1e-5, adjacency="add_remove"))
    profile = {"epsilons": (1,), "adjacency": "add_remove"}
    assert accounting.delta_profile(events, **profile) == ((1, 1.0),)

    def breaks(*_: Any) -> Any:
        raise IndexError

    monkeypatch.setattr(accounting, "composed", breaks)
    other = made.events[:1]
    assert math.isinf(accounting.epsilon(other, delta=1.7e-5, adjacency="add_remove"))
    assert accounting.delta_profile(other, **profile) == ((1, 1.0),)
    with pytest.raises(BudgetError, match="no bound"):
        accounting.compose(other, "add_remove")
    accounting._remembered.cache_clear()
    accounting._epsilon.cache_clear()


def test_what_a_plan_cannot_say_is_an_error_before_it_costs_anything(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    tiny.write()
    for what in (
        "synthdp.privacy.plan.ReleasePlan._group_epsilon",
        "synthdp.bundle.certificate._purposes",
        "synthdp.bundle.write.profile_of",
        "synthdp.bundle.write.profile_svg",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(what, breaks)
            with pytest.raises(ZeroDivisionError) as error:
                tiny.release()
        assert budget_note(error.value) == "budget: nothing was spent" and tiny.kinds() == []


@pytest.mark.parametrize(
    "seeds",
    [range(10), pytest.param(range(1000, 1500), marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_no_valid_spec_ends_in_an_error_after_a_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    monkeypatch.setattr(plan, "GROUP_SIZES", GROUP_SIZES)
    found = []
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        found.append(outcome_of(folder, seed, verified=seed % 10 == 0))
    counts = {word: found.count(word) for word in dict.fromkeys(found)}
    assert counts.get("released", 0) > len(seeds) / 3, counts
