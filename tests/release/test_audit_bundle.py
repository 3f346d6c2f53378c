"""`synthdp audit BUNDLE`: all that needs no rows, a clear word on what does, and noise that is not
what was claimed is seen in the tables.
"""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from synthdp.audit.plan import FALSE_ALARMS, audit_bundle
from synthdp.bundle import AuditRecord, audit_markdown, read_tables, spends_of
from synthdp.errors import OutputError
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.verify import VERIFY
from synthdp.verify import rows as noise
from tests.builders import audit_record

pytestmark = pytest.mark.check

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 6}


noise_of = partial(noise.noise_of, false_alarms=FALSE_ALARMS)


def tables(
    factor: float, rng: np.random.Generator, *, pair: bool = True, sigma: float = 7.0
) -> list[NoisyTable]:
    """One-way tables of 500 rows, and a two-way table, that claim noise of `sigma` and have
    `factor` times that.
    """
    rows = {name: rng.integers(size, size=500) for name, size in SIZES.items()}
    shown = [(name,) for name in SIZES] + ([("b", "e")] if pair else [])
    found = []
    for columns in shown:
        counts = np.zeros([SIZES[c] for c in columns])
        np.add.at(counts, tuple(rows[c] for c in columns), 1)
        found.append(
            NoisyTable(
                columns,
                np.round(counts + rng.normal(scale=factor * sigma, size=counts.shape)),
                sigma,
            )
        )
    return found


def test_noise_of_the_claimed_size_is_believed_and_a_tenth_or_three_times_of_it_is_not() -> None:
    rng = np.random.default_rng(5)
    found = {
        factor: [n for _ in range(300) if (n := noise_of(tables(factor, rng)))]
        for factor in (1.0, 0.1, 0.5, 3.0)
    }
    degrees = 4 + 3 + 6 - 1  # totals, two margins, whose totals are the same
    assert all((n.tables, n.comparisons) == (6, degrees) for some in found.values() for n in some)
    assert sum(n.too_little or n.too_much for n in found[1.0]) <= 3
    shares = np.array([n.share for n in found[1.0]])
    assert shares.mean() == pytest.approx(1, abs=0.08) and shares.var() == pytest.approx(
        2 / degrees, rel=0.25
    )  # those of chi-square
    assert (
        all(n.too_little and not n.too_much for n in found[0.1])
        and sum(n.too_little for n in found[0.5]) > 10
    )  # fewer than chi-square would: counts are whole
    assert np.mean([n.too_much for n in found[3.0]]) > 0.95
    of_others = [
        *tables(0.1, rng)[:-1],
        *tables(0.1, np.random.default_rng(6))[-1:],
    ]  # as large a table of other rows, with too little noise
    wrong = noise_of(of_others)
    assert wrong is not None and not wrong.too_little


def test_one_way_tables_alone_are_compared_by_their_totals() -> None:
    rng = np.random.default_rng(7)
    shares = [
        n.share
        for _ in range(1000)
        if (n := noise_of(tables(1.0, rng, pair=False))) and n.comparisons == 4
    ]
    assert len(shares) == 1000
    assert np.mean(shares) == pytest.approx(1, abs=0.08)
    assert np.var(shares) == pytest.approx(0.5, rel=0.25)
    assert noise_of(tables(1.0, rng)[:1]) is None and noise_of([]) is None
    whole = noise_of(
        tables(1.0, rng, sigma=2.0)[4:]
    )  # the margin of one column alone can be compared where the other was not measured
    assert whole is None


def test_no_more_cells_are_compared_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    some = tables(1.0, np.random.default_rng(8))
    fewer = replace(VERIFY, noisy_cells=sum(t.counts.size for t in some) - 1)
    monkeypatch.setattr("synthdp.verify.rows.VERIFY", fewer)
    kept = noise_of(some)
    assert kept is not None and kept.tables == len(some) - 1


@pytest.mark.slow
def test_a_bundle_is_audited_by_whoever_holds_it(released: Any, synthdp: Any) -> None:
    (released.folder / "table.csv").unlink()
    released.spec.unlink()
    out = released.folder / "elsewhere"
    printed = synthdp("audit", released.bundle, "--replay", "--out", out, "--json")
    assert printed.code == 0, printed.err
    facts = json.loads(printed.out)
    assert facts["rows"] == "none"
    assert facts["replay"]["findings"] == []
    assert facts["replay"]["pairs"] > 50
    assert "synthdp audit SPEC" in facts["not_audited"] and "verify:" in printed.err


def test_the_record_of_a_bundle_is_of_its_plan_and_has_its_tables(
    released: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the replay, which has tests of its own and takes most of the time."""

    def nothing(job: Any, rows: Any, **settings: int) -> AuditRecord:
        return audit_record(rows=rows, spends=spends_of(job.plan) if planned else ())

    monkeypatch.setattr("synthdp.audit.plan.AuditJob.replayed", nothing)
    planned = True
    record, path = audit_bundle(
        released.bundle, replay_only=True, out=released.folder / "elsewhere"
    )
    assert record == AuditRecord.model_validate_json(path.read_text())
    assert record.rows == "none"
    assert not record.refuted
    assert record.tables is not None and (record.tables.tables, record.tables.comparisons) == (6, 5)
    assert "6 noisy tables count the same rows" in audit_markdown(record)
    assert "Nothing found speaks against the claim." in audit_markdown(record)
    planned = False
    with pytest.raises(OutputError, match="plans other spends here than its ledger charged"):
        audit_bundle(released.bundle, replay_only=True, out=released.folder / "elsewhere")


def test_noise_that_was_not_there_refutes_the_bundle() -> None:
    rng = np.random.default_rng(8)
    record = audit_record(rows="none", tables=noise_of(tables(0.1, rng)))
    assert record.refuted == (
        "published tables: they agree better than noise of the size that was claimed lets them",
    )
    assert "The claim is refuted" in audit_markdown(record)


def test_games_of_many_runs_are_refused_with_what_plays_them(tiny: Any, synthdp: Any) -> None:
    asked = synthdp("audit", tiny.write().spec, "--replay", "--runs", 400)
    assert asked.code == 2 and "tests/audit/test_worst_case.py" in asked.err
    assert "--runs" not in synthdp("audit", "--help").out


def test_what_is_no_bundle_is_told(released: Any, synthdp: Any) -> None:
    folder = synthdp("audit", released.out, "--replay")
    assert folder.code == 6 and f"did you mean {released.bundle}?" in folder.err
    path = released.bundle / "marginals.json"
    path.write_text(path.read_text().replace('"sigma"', '"sigm"', 1))
    damaged = synthdp("audit", released.bundle, "--replay")
    assert damaged.code == 6 and "marginals.json" in damaged.err


@pytest.mark.slow
def test_all_that_needs_no_real_rows(released: Any, synthdp: Any) -> None:
    """The tiny spec has its membership attack off, so that canaries are left."""
    printed = synthdp("audit", released.bundle, "--out", released.folder / "elsewhere", "--json")
    assert printed.code == 0, printed.err
    facts = json.loads(printed.out)
    assert facts["rows"] == "simulated" and any("canaries" in a["method"] for a in facts["audits"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["validate", "learn"])
def test_tables_that_a_graph_was_found_with_agree_with_the_others(
    tiny: Any, modes: Any, mode: str
) -> None:
    tiny.write(**modes[mode]).release()
    found = noise_of(read_tables(tiny.bundle))
    assert (
        found is not None and found.comparisons > 1 and not found.too_little and not found.too_much
    )
