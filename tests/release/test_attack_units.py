"""Where a unit has several rows, the attack of a release and of an audit is on whole units, and its
texts say so.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from synthdp.audit import (
    AttackFolder,
    ShadowTrainer,
    attack_facts,
    attack_rows,
    membership,
    plan,
    sub_sample,
    two_worlds,
)
from synthdp.audit import folder as power
from synthdp.audit.plan import twin_units
from synthdp.bundle import audit_markdown
from synthdp.data import Domain
from synthdp.graph import CausalGraph
from synthdp.privacy.private import _KERNEL_KEY, Confidential
from synthdp.privacy.table import Table
from synthdp.progress import unheard
from synthdp.release import judge
from synthdp.report import audit_tables
from synthdp.spec import load_spec
from synthdp.spec.model import ReleaseSpec
from tests.builders import audit_record, one_audit

UNIT = {"kind": "id", "column": "person", "max_rows": 3, "meaning": "one *person*"}
ATTACK = {"membership": {"enabled": True, "rows": 40, "pairs": 4, "steps": 2}}
PLAN = {"epsilon": 1.0, "delta": 1e-5, "profile": (), "spends": (), "rows_per_unit": 3}
UNITS = np.repeat(np.arange(30) * 7, 3)


def spec_of(tiny: Any) -> ReleaseSpec:
    return load_spec(tiny.write(dataset={"privacy_unit": UNIT}, attacks=ATTACK).spec)


class Stop(Exception):
    """The seam was reached."""


def test_a_sub_sample_has_whole_units_in_a_random_order() -> None:
    rng, codes = np.random.default_rng(1), np.stack([np.arange(90), UNITS], axis=1)
    rows, units = sub_sample(codes, UNITS, 40, rng)
    assert units is not None and len(rows) == 39 and (rows[:, 1] == units).all()
    assert set(np.unique(units, return_counts=True)[1]) == {3}
    other, _ = sub_sample(codes, UNITS, 40, rng)
    assert set(other[:, 1]) != set(units)
    assert len(sub_sample(codes, UNITS, 2, rng)[0]) == 0  # no part of a unit
    assert len(sub_sample(codes, UNITS, 500, rng)[0]) == 90


def test_two_worlds_differ_in_a_whole_unit() -> None:
    rows, units = np.arange(12).reshape(6, 2), np.array([4, 9, 4, 1, 9, 1])
    outside, inside = two_worlds(rows, 9, "add_remove", units)
    assert outside[:, 0].tolist() == [0, 4, 6, 10]
    assert inside[:, 0].tolist() == [0, 4, 6, 10, 2, 8]
    outside, inside = two_worlds(rows, 9, "replace_one", units)
    assert outside[:, 0].tolist() == [0, 4, 6, 10] and inside[:, 0].tolist() == [6, 10, 2, 8]


def test_simulated_rows_have_as_many_to_a_unit_as_the_spec_allows(tiny: Any) -> None:
    twin = np.zeros((7, 2), dtype=np.uint16)
    units = twin_units(spec_of(tiny), twin)
    assert units is not None and units.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert twin_units(load_spec(tiny.write().spec), twin) is None


def test_a_release_and_an_audit_hand_on_the_units_of_fitted_rows(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, domain = spec_of(tiny), Domain.from_spec(spec_of(tiny).columns)
    seen = list[Any]()
    held_out = UNITS < 70
    table = Table(np.zeros((90, len(domain)), np.uint16), None, held_out, {}, UNITS)  # type: ignore[arg-type]

    def attack(codes: Any, *_: Any, units: Any, **__: Any) -> None:
        seen.append((len(codes), units.tolist()))
        raise Stop

    def inspect(fn: Any, *, reason: str) -> Confidential[Any]:
        return Confidential(fn(table), reason, key=_KERNEL_KEY)

    monkeypatch.setattr("synthdp.audit.membership.attack_rows", attack)
    parts = {
        "session": SimpleNamespace(inspect=inspect),
        "job": SimpleNamespace(spec=own, domain=domain, folder=SimpleNamespace(shadows=tmp_path)),
        "fitted": SimpleNamespace(graph=SimpleNamespace(graph=None)),
        "drawn": None,
    }
    found = judge.Judge(**parts).attacked(judge.Judgement(None))  # type: ignore[arg-type]
    assert found.absent_for_steward() == {judge.ATTACK: "not judged: Stop"}
    monkeypatch.setattr(plan, "attack_rows", attack)
    monkeypatch.setattr(plan, "audit_canaries", lambda *_, **__: one_audit())
    monkeypatch.setattr(plan, "read_private", lambda *_, **__: table)
    monkeypatch.setattr(plan, "inspect", lambda private, fn, reason: fn(private))
    job = plan.AuditJob(own, domain, plan.plan_for(own, domain), tmp_path)
    record = audit_record(rows="real")
    folder = AttackFolder.open(tmp_path / "a")
    with pytest.raises(Stop):
        job.on_real(record, folder, tmp_path, None)
    assert seen == [(60, UNITS[~held_out].tolist())] * 2


@pytest.mark.parametrize("sample", [None, 20])
def test_models_of_secret_samples_are_attacked_by_row(
    sample: int | None, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They draw rows one by one, so that the claim, which is for units, need not hold for a unit of
    them.
    """
    own, seen = spec_of(tiny), list[Any]()
    synthesizer = own.synthesizer.model_copy(update={"sample": sample})
    own = own.model_copy(update={"synthesizer": synthesizer})
    domain = Domain.from_spec(own.columns)

    def attack(rows: Any, *_: Any, units: Any, **__: Any) -> None:
        seen.append((len(rows), units is None))
        raise Stop

    monkeypatch.setattr(membership, "attack_membership", attack)
    monkeypatch.setattr(membership, "plan_for", lambda *_, **__: SimpleNamespace(**PLAN))
    monkeypatch.setattr(membership, "cpu_seconds", lambda *_: (1.0, 1.0))
    with pytest.raises(Stop):
        attack_rows(
            np.zeros((90, len(domain)), dtype=np.int64),
            own,
            domain,
            CausalGraph.from_spec(own.graph, domain.names),
            folder=tiny.folder / "shadows",
            progress=unheard,
            units=UNITS,
        )
    assert seen == ([(39, False)] if sample is None else [(40, True)])


@pytest.mark.check
def test_the_attack_on_a_release_is_by_unit_and_says_so(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On ninety made-up rows of thirty units."""
    monkeypatch.setattr(power, "TABLE_RELEASES", 1)
    own, trained = spec_of(tiny), list[Any]()
    domain = Domain.from_spec(own.columns)
    many = ShadowTrainer.many

    def listed(self: Any, rows: Any, *, seed_sequences: Any) -> Any:
        trained.extend(rows)
        return many(self, rows, seed_sequences=seed_sequences)

    monkeypatch.setattr(ShadowTrainer, "many", listed)
    rng = np.random.default_rng(1)
    codes = rng.integers(0, domain.sizes, (90, len(domain)))
    graph = CausalGraph.from_spec(own.graph, domain.names)
    report = attack_rows(
        codes,
        own,
        domain,
        graph,
        folder=tiny.folder / "shadows",
        progress=unheard,
        units=UNITS,
    )
    assert sorted({len(rows) for rows in trained}) == [36, 39]  # three rows more or less
    assert "the target unit (one *person*, with all rows) from" in report.conclusion
    facts = attack_facts(report, pairs=4, unit="one *person*")
    record = audit_record(membership=facts)
    assert "one unit with all its rows: one \\*person\\*." in audit_markdown(record)
    tables = audit_tables([record.model_dump() | {"refuted": ()}])
    (main,) = [t for t in tables if t.caption.startswith("Membership attack")]
    assert main.rows[0][0] == "all rows of one *person*"
