"""Persons as neighbours of linked tables: replay, canaries, attacks, and broken kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.audit import (
    ALIKE,
    SPREAD,
    CanaryGame,
    LinkedMeasurer,
    LinkedShadow,
    PersonRows,
    Replayed,
    attack_persons,
    linked,
    membership,
    person_neighbours,
    random_persons,
    read,
    replay_persons,
)
from synthdp.bundle import Audit
from synthdp.data import STEPS, CodedVisits, Views, VisitFrame, views_of
from synthdp.model import STEP_PAIRS, plan_linked
from synthdp.model.visits.fit import fit
from synthdp.privacy import LinkedTable, OnView, in_views, session
from synthdp.privacy.calibration import mu_of
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.session import Rehearsal
from synthdp.progress import unheard
from synthdp.spec.model import LinkedSpec
from synthdp_attacks import Codes, MembershipReport, Serial, WhiteBox, counted, table_score
from tests.audit.broken import HalfNoise, LittleLessNoise
from tests.chance import fails_so_often
from tests.visits import EDGES, linked_spec

RELEASES = 800


def spec_of(mode: str = "given", **privacy: Any) -> LinkedSpec:
    graph = {"mode": mode, "edges": EDGES if mode == "given" else []}
    return linked_spec(graph=graph, privacy={"epsilon": 4.0, "delta": 1e-4, **privacy})


def planned(spec: LinkedSpec) -> ReleasePlan:
    return plan_linked(spec, VisitFrame.from_spec(spec))


def one_row(purpose: str, look: Any) -> Any:
    """The look as one whose event is of one row of a person."""
    return replace(look, inner=look.inner.scaled(1 / look.rows), rows=1)


# --- replay ---


@pytest.mark.check
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("mode", ["given", "predict"])
def test_nothing_but_what_is_paid_for_tells_a_person(mode: str, adjacency: str) -> None:
    spec = spec_of(mode, adjacency=adjacency)
    found = replay_persons(spec, planned(spec), random_pairs=6, progress=unheard)
    assert found.findings == () and found.largest_share == pytest.approx(1)
    assert len(found.mechanisms) == len(planned(spec).linked)


def test_a_person_who_is_held_out_of_some_views_alone_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec, true = spec_of(), linked.in_views

    def of_persons_alone(views: Any, out: Any, misfits: Any) -> LinkedTable:
        made = true(views, out, misfits)
        own = made.views[STEPS]
        views_of_all = {**made.views, STEPS: replace(own, held_out=np.zeros_like(own.held_out))}
        return replace(made, views=views_of_all)

    monkeypatch.setattr(linked, "in_views", of_persons_alone)
    found = replay_persons(spec, planned(spec), random_pairs=0, progress=unheard)
    assert {f.pair for f in found.findings} == {"a person who is held out"}
    assert {f.differs for f in found.findings} == {"moved"}


def test_the_event_of_one_row_on_tables_of_steps_is_caught() -> None:
    spec = spec_of()
    plan = planned(spec).map(lambda p, look: one_row(p, look) if p == STEP_PAIRS else look)
    found = replay_persons(spec, plan, random_pairs=0, progress=unheard)
    (mechanism,) = {f.mechanism for f in found.findings}
    assert mechanism.endswith("of steps") and {f.differs for f in found.findings} == {"moved"}
    assert any(ALIKE in f.pair for f in found.findings)
    assert found.largest_share == pytest.approx(3, rel=0.2)  # most - 1


@pytest.mark.check
@pytest.mark.parametrize("fault", ["levels by the mean of all", "as many visits as others leave"])
def test_a_reader_that_looks_at_others_is_caught(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def by_mean(frame: VisitFrame, read: CodedVisits) -> Views:
        views = views_of(frame, read)
        steps = views.codes[STEPS]
        above = (steps > steps.mean(0)) if len(steps) else steps
        return replace(views, codes={**views.codes, STEPS: above.astype(np.uint16)})

    def others_leave(frame: VisitFrame, read: CodedVisits) -> Views:
        return views_of(replace(frame, most=2 + len(read.visits) % 3), read)

    patched = {"levels by the mean of all": by_mean}.get(fault, others_leave)
    monkeypatch.setattr(linked, "views_of", patched)
    found = replay_persons(spec_of(), planned(spec_of()), random_pairs=20, progress=unheard)
    assert {f.differs for f in found.findings} == {"moved"}


SUMS = {"persons": 0.2, "first": 0.2, "steps": 0.4, "ends": 0.1, "moments": 0.1}


def sums_replayed(adjacency: str = "add_remove") -> Replayed:
    spec = spec_of(shares=SUMS, adjacency=adjacency)
    alone = replace(planned(spec), linked={})
    return replay_persons(spec, alone, random_pairs=10, progress=unheard)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_sums_of_numbers_move_as_far_as_one_row_of_a_person(adjacency: str) -> None:
    found = sums_replayed(adjacency)
    assert found.findings == () and len(found.mechanisms) == 1
    assert found.largest_share > (0.95 if adjacency == "add_remove" else 0.5)


@pytest.mark.parametrize("fault", ["a row for each visit", "parts of the largest"])
def test_sums_of_more_than_a_person_are_caught(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    def spoilt(views: Views, *more: Any) -> LinkedTable:
        table = in_views(views, *more)
        if fault == "a row for each visit":
            rows = np.append(np.arange(len(table.codes)), views.owners[STEPS])
            codes, numbers = table.codes[rows], table.frame.iloc[rows].reset_index(drop=True)
            return replace(table, codes=codes, frame=numbers, held_out=table.held_out[rows])
        return replace(table, frame=(table.frame / table.frame.abs().max()).fillna(0.0))

    monkeypatch.setattr(linked, "in_views", spoilt)
    assert "moved" in {f.differs for f in sums_replayed().findings}


def test_neighbours_have_the_canaries_and_a_person_beyond_the_cut() -> None:
    frame = VisitFrame.from_spec(spec_of())
    pairs = {p.name: p for p in person_neighbours(frame)}
    steps = {n: [len(t.views[STEPS].codes) for t in p.tables] for n, p in pairs.items()}
    assert abs(np.subtract(*steps[f"{ALIKE} beside nobody"])) == frame.most - 1
    beyond = pairs["visits beyond those that are kept beside nobody"]
    assert abs(np.subtract(*[len(t.views[STEPS].codes) for t in beyond.tables])) == frame.most - 1
    alike = pairs[f"{ALIKE} beside nobody"].tables
    rows = max((t.views[STEPS].codes for t in alike), key=len)
    stage = frame.views[STEPS].index("visits.stage")
    assert set(rows[:, stage]) == {2} and len(rows) == 3


# --- canaries ---


def game(canary: str, spec: LinkedSpec, plan: ReleasePlan) -> CanaryGame:
    frame = VisitFrame.from_spec(spec)
    others = read(frame, random_persons(frame, 60, np.random.default_rng(3)))
    return CanaryGame.of(canary, spec, plan, others)


def audited(canary: str = ALIKE, spec: LinkedSpec | None = None) -> Audit:
    spec = spec or spec_of()
    return game(canary, spec, planned(spec)).audit(releases=RELEASES, progress=unheard)


def test_the_worst_canary_is_as_far_as_the_plan_allows() -> None:
    spec, most = spec_of(), mu_of(4.0, 1e-4)
    alike, spread = (game(c, spec, planned(spec)).separation for c in (ALIKE, SPREAD))
    assert 0.95 * most < alike <= most * 1.02 and 0.6 * most < spread < alike
    broken = planned(spec).map(lambda p, look: one_row(p, look) if p == STEP_PAIRS else look)
    assert game(ALIKE, spec, broken).separation > 2 * most


@pytest.mark.slow
@pytest.mark.parametrize("canary", [ALIKE, SPREAD])
def test_a_canary_shows_no_more_than_the_plan_claims(
    canary: str, figure: Callable[..., None]
) -> None:
    shown = [audited(canary) for _ in range(3)]
    assert sum(a.refuted for a in shown) <= 1
    below = sum(0.2 < a.epsilon_lower <= 4.0 for a in shown)
    assert below == len(shown)
    assert all(a.power > 0.9 for a in shown)
    figure(f"audits of persons, {canary}: lower bound is at most the claim", below, len(shown))


@pytest.mark.slow
@pytest.mark.parametrize("noise", [HalfNoise, LittleLessNoise])
def test_too_little_noise_is_caught(monkeypatch: pytest.MonkeyPatch, noise: type) -> None:
    monkeypatch.setattr(session, "Streams", noise)
    assert not fails_so_often(lambda: audited().refuted, 4)


@pytest.mark.slow
def test_a_plan_that_takes_a_person_for_one_row_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it states agrees with itself: calibration, claim and profile."""
    monkeypatch.setattr(OnView, "event", lambda self, persons: self.inner.event(persons))
    assert audited().refuted


def test_power_is_that_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    own = game(ALIKE, spec_of(), planned(spec_of()))
    assert own.power(RELEASES) == 1 and own.power(RELEASES, noise=1.0) < 0.2
    assert own.power(RELEASES, noise=0.7) > 0.9


# --- both tables as one array ---


@pytest.mark.parametrize("mode", ["given", "predict"])
def test_one_array_has_all_rows_of_the_views(mode: str) -> None:
    spec = spec_of(mode)
    frame = VisitFrame.from_spec(spec)
    rows = PersonRows(frame, planned(spec))
    table = read(frame, random_persons(frame, 50, np.random.default_rng(0)))
    codes, units = rows.of(table)
    assert rows.public.checked(codes, "rows") is codes and len(units) == len(codes)
    assert rows.public.of_kind(codes, rows.public.columns[0]).sum() == 50
    shuffled = codes[np.random.default_rng(1).permutation(len(codes))]
    again = rows.table(shuffled)
    for view in rows.domains:
        before, after = (np.sort(t.views[view].codes, axis=0) for t in (table, again))
        assert (before == after).all()
    assert np.unique(units).tolist() == list(range(50))


@pytest.mark.check
@pytest.mark.parametrize("mode", ["given", "predict"])
def test_positions_of_released_tables_are_those_of_the_array(mode: str) -> None:
    """Next to no noise: what is counted of the array is what each table says."""
    spec = spec_of(mode)
    frame = VisitFrame.from_spec(spec)
    rows = PersonRows(frame, planned(spec).map(lambda purpose, look: look.scaled(1e-9)))
    codes, units = rows.of(read(frame, random_persons(frame, 50, np.random.default_rng(0))))
    shadow = LinkedShadow(spec, rows.plan)
    fitted = fit(Rehearsal.of(rows.table(codes), rows.plan), spec, frame, rng=fresh_generator())
    for tables in (LinkedMeasurer(spec, rows)(codes), shadow.rows.counts(fitted.tables.value)):
        for table in tables:
            assert (table.counts.ravel() == counted(codes, table)).all()
        person = codes[units == 7]
        score = table_score(tables)
        assert sum(map(score, person)) > 0


# --- membership ---


def attacked(folder: Path, spec: LinkedSpec, people: int) -> MembershipReport:
    frame = VisitFrame.from_spec(spec)
    table = read(frame, random_persons(frame, people, np.random.default_rng(5)))
    return attack_persons(table, spec, folder=folder, progress=unheard)


def spec_with(*, epsilon: float = 4.0, **attack: Any) -> LinkedSpec:
    return linked_spec(
        graph={"mode": "given", "edges": EDGES},
        privacy={"epsilon": epsilon, "delta": 1e-4},
        attacks={"membership": attack},
    )


@pytest.fixture
def serial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shadow releases in this process, so that what is patched is patched there."""
    monkeypatch.setattr(membership, "_runner", lambda spec: Serial())


def copying(self: LinkedShadow, rows: Codes, *, seed_sequence: np.random.SeedSequence) -> WhiteBox:
    """A hundred persons copied out among 200 that nobody gave it."""
    rng, frame = np.random.default_rng(seed_sequence), self.rows.frame
    others, _ = self.rows.of(read(frame, random_persons(frame, 200, rng)))
    return WhiteBox(np.concatenate([others, rows]), {"tables": lambda row: float(rng.normal())})


@pytest.mark.check
@pytest.mark.usefixtures("serial")
def test_a_model_that_copies_a_hundred_persons_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinkedShadow, "__call__", copying)
    report = attacked(tmp_path, spec_with(epsilon=0.5, rows=100, pairs=32), 130)
    assert report.main.auc.value > 0.95 and report.refutes_claim
    assert report.target == "unit (one patient with all visits, with all rows)"
    assert "sanity check, not a proof" in report.conclusion
    control = report.verdict.control
    assert control is not None and control.contains(0)


@pytest.mark.slow
@pytest.mark.usefixtures("serial")
def test_a_release_shows_no_more_of_a_person_than_it_claims(
    tmp_path: Path, figure: Callable[..., None]
) -> None:
    report = attacked(tmp_path, spec_with(rows=60, pairs=12), 80)
    assert not report.refutes_claim
    assert not any("number of released rows" in w for w in report.warnings)
    assert [v.name for v in report.declared] == [
        "targeted with random_forest",
        "tables with lira_online",
        "tables with exact_ratio",
    ]
    shown = report.declared[-1].row.auc.value
    assert 0.55 < shown < 0.8  # the best that there is at this budget is .76
    figure("attack on persons of linked tables at epsilon 4: AUC of the noisy tables", shown, 1)
