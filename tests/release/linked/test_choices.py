"""What mode predict chose is derived again on other machines, which differ in last digits."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.bundle import LinkedBundle
from synthdp.data import ColumnDomain
from synthdp.graph.level_groups import starts_of
from synthdp.graph.predict import SETTINGS, PairTables, SmoothPair
from synthdp.model import NEAR, settled, worth_counting
from synthdp.model.visits import fit
from tests.release.linked.conftest import problems, run, write_spec, write_tables

PREDICT = {"graph": {"mode": "predict", "edges": []}, "evaluation": {"enabled": False}}
pytestmark = pytest.mark.check


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of mode predict; not to be changed."""
    folder = tmp_path_factory.mktemp("predicted")
    write_tables(folder)
    return run(write_spec(folder, PREDICT)).bundle


@pytest.fixture
def bundle(predicted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(predicted, tmp_path / "bundle"))


def pairs_at(above: float, pair: tuple[str, str]) -> Callable[..., PairTables]:
    """`settled` of tables in which the evidence of a pair is so far above what decides."""

    def moved(known: PairTables, stated: Any) -> PairTables:
        pairs = {**known.pairs}
        if pair in pairs:
            pairs[pair] = replace(pairs[pair], evidence=SETTINGS.min_evidence + above)
        return settled(replace(known, pairs=pairs), stated)

    return moved


@pytest.mark.parametrize("kind", ["dependent", "independent"])
def test_evidence_that_rounding_decides_is_as_it_was_stated(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Both ways; and a hair's breadth further it is found."""
    told = [tuple(p) for p in json.loads((bundle / "marginals.json").read_text())["dependent"]]
    assert told
    every = [t.columns for own in LinkedBundle.stated(bundle).measured.values() for t in own]
    others = [c for c in every if len(c) == 2 and c not in told and c[::-1] not in told]
    others = [c for c in others if "patients.sex" in c and "stays[1].cost" in c]
    pair = told[0] if kind == "dependent" else others[0]
    away = -1 if kind == "dependent" else 1
    monkeypatch.setattr(fit, "settled", pairs_at(away * NEAR / 10, pair))
    assert problems(bundle) == ""
    monkeypatch.setattr(fit, "settled", pairs_at(away * NEAR * 10, pair))
    found = problems(bundle)
    assert f"whether {' and '.join(pair)} depend" in found or "tables are not those" in found


def test_gains_that_differ_in_their_last_digits_change_nothing(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, error = np.random.default_rng(1), SmoothPair.expected_error

    def rounded(pair: SmoothPair, sigma: float) -> float:
        return error(pair, sigma) * (1 + 1e-12 * float(rng.uniform(-1, 1)))

    monkeypatch.setattr(SmoothPair, "expected_error", rounded)
    assert problems(bundle) == ""


def test_a_choice_that_gains_less_is_found(bundle: Path) -> None:
    """`dependent` loses a pair: the arrows are then others."""
    path = bundle / "marginals.json"
    content = json.loads(path.read_text())
    del content["dependent"][0]
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    assert "whether" in problems(bundle)


def test_of_choices_that_gain_as_much_the_stated_one_is_kept(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def counted(*known: Any, **how: Any) -> Any:
        seen.append((known, how))
        return worth_counting(*known, **how)

    monkeypatch.setattr(fit, "worth_counting", counted)
    _ = LinkedBundle.stated(bundle).arrows
    ((known, how),) = seen
    how = {**how, "noise": how["noise"] / 50}  # so that many are worth it
    best = worth_counting(*known, **{**how, "stated": None})
    own = len(worth_counting(*known, **{**how, "noise": 1e9, "stated": None}))
    assert len(best) > own + 1
    turned = [*best[:own], *best[own:][::-1]]
    assert worth_counting(*known, **{**how, "stated": turned}) == best
    assert worth_counting(*known, **{**how, "stated": best[: own + 1]}) == best
    monkeypatch.setattr(SmoothPair, "expected_error", lambda _, sigma: 1 - 1 / (1 + sigma))
    flat = {**known[2].sigmas, **known[3].sigmas}
    for tables in known[2:]:
        monkeypatch.setitem(tables.__dict__, "sigmas", dict.fromkeys(flat, 1e6))
        monkeypatch.setitem(tables.__dict__, "rows", 100.0)
    one = worth_counting(*known, **{**how, "stated": None})
    assert len(one) > own + 1
    turned = [*one[:own], *one[own:][::-1]]
    assert worth_counting(*known, **{**how, "stated": turned}) == turned
    assert worth_counting(*known, **{**how, "stated": [*turned, turned[-1]]}) == one


def test_groups_that_rounding_decides_are_as_they_were_stated() -> None:
    """Shares of whole rows, of which many stand at what decides."""
    labels = tuple(map(str, range(24)))
    column = ColumnDomain("x", "integer", labels, False, edges=tuple(range(24)), stop=24)
    rng, flipped = np.random.default_rng(5), 0
    for _ in range(300):
        counts = rng.integers(0, 5, 24)
        margin = counts / max(1, counts.sum())
        stated = starts_of(column, margin, groups=6)
        for _ in range(3):
            other = margin * (1 + 1e-13 * rng.uniform(-1, 1, 24))
            flipped += starts_of(column, other, groups=6) != stated
            assert starts_of(column, other, groups=6, stated=stated) == stated
        wrong = tuple(s for s in range(24) if s == 0 or s not in stated)
        assert starts_of(column, margin, groups=6, stated=wrong) != wrong
    assert flipped > 20
