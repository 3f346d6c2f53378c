"""Releases that look at rows in one pass: charged one by one, seen once, the same numbers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.errors import BoundaryError, BudgetError
from synthdp.ledger import Ledger
from synthdp.privacy import session as together
from synthdp.privacy.engines import EngineTable
from synthdp.privacy.engines.on_arrow import ArrowEngine
from synthdp.privacy.engines.opening import find_parts
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.privacy.mechanisms.sums import NUMBER, Arm, Bounded, ProductSums, StratumSums
from synthdp.privacy.noise import Streams
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.private import _KERNEL_KEY, Private
from synthdp.privacy.session import CellsOf, Joined, Rehearsal, Session, tables_for
from synthdp.privacy.table import Table
from tests.privacy.conftest import Silent
from tests.privacy.engines.tables import Here, reading_of, write
from tests.privacy.engines.test_sums import DOMAIN, HELD, in_memory, paid

NOISE = 30.0
PRODUCTS = ((), (("sex", 1),), (("age", NUMBER),))
ESTIMANDS: dict[str, Any] = {
    "1": StratumSums(DOMAIN, (Arm(),), ("ward",), Bounded("pay", 0.5, 7.3), NOISE),
    "2": NoisyMarginals(DOMAIN, (("sex", "ward"),), NOISE),
    "3": ProductSums(DOMAIN, Arm(), (Bounded("age", 0.0, 90.0),), PRODUCTS, NOISE),
    "4": NoisyMarginals(DOMAIN, (("age",),), NOISE),
}
PLANNED = {f"estimand: {name}": mechanism for name, mechanism in ESTIMANDS.items()}
TABLES = {p: m for p, m in PLANNED.items() if isinstance(m, NoisyMarginals)}
PLAN = ReleasePlan(
    5.0, 1e-5, "add_remove", 1, measure=NoisyMarginals(DOMAIN, (("sex",),), NOISE),
    estimands=ESTIMANDS,
)  # fmt: skip
KINDS = ["memory", "arrow", "arrow, held out", "ids"]


class Killed(BaseException):
    """As a kill -9 would end the process."""


class Passes:
    """An engine or a table that counts how often it is asked, and says what is charged then."""

    def __init__(self, inner: Any, charged: Callable[[], list[str]] = list) -> None:
        self.inner, self.charged = inner, charged
        self.asked: list[str] = []
        self.knew: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        true = getattr(self.inner, name)
        if name not in ("count", "add_up", "sample", "draw"):
            return true

        def ask(*args: Any) -> Any:
            self.asked.append(name)
            self.knew.append(self.charged())
            return true(*args)

        return ask


def made(kind: str, folder: Path) -> Any:
    """300 rows in memory, or in three files of an engine."""
    table = paid(300, ids=50)
    if kind == "memory":
        return in_memory(DOMAIN, table)
    write(table, folder, files=3)
    parts = find_parts(".", folder)
    if kind == "ids":
        return Here(replace(reading_of(DOMAIN, "id", 3), **HELD), parts, 300)
    reading = replace(reading_of(DOMAIN), **(HELD if "held" in kind else {}))
    return ArrowEngine(reading, parts)


def table_of(passes: Passes, kind: str) -> Any:
    return passes if kind == "memory" else EngineTable(passes, {})  # type: ignore[arg-type]


class Scene:
    """A reserved run over a table that counts its passes."""

    def __init__(self, folder: Path, ledger: Ledger, kind: str) -> None:
        self.ledger, self.journal, self.kind = ledger, folder / "journal", kind
        (folder / "rows").mkdir()
        self.journal.mkdir()
        ledger.reserve("d", "r", epsilon=5.0, delta=1e-5, cap=None, body={})
        self.passes = Passes(made(kind, folder / "rows"), lambda: charges(Ledger(ledger.url)))

    def session(self, streams: Streams | None = None) -> Session:
        return Session(
            Private(table_of(self.passes, self.kind), key=_KERNEL_KEY),
            PLAN,
            self.ledger,
            dataset="d",
            run="r",
            streams=streams or Silent.fresh(),
            journal=self.journal,
        )


def charges(ledger: Ledger) -> list[str]:
    return [e.body["purpose"] for e in ledger.run_entries("r") if e.kind == "charge"]


def packed(released: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        p: {n: a.tolist() for n, a in PLANNED[p].pack(v.value).items()} for p, v in released.items()
    }


@pytest.fixture
def scene(tmp_path: Path, ledger: Ledger) -> Scene:
    return Scene(tmp_path, ledger, "arrow")


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_one_by_one_in_one_pass(
    tmp_path: Path, ledger: Ledger, kind: str
) -> None:
    scene = Scene(tmp_path, ledger, kind)
    found = scene.session().release_together(PLANNED)
    assert scene.passes.asked == ["add_up"]
    assert scene.passes.knew == [list(PLANNED)]
    table = table_of(scene.passes, kind)
    for purpose, mechanism in PLANNED.items():
        alone = mechanism.pack(mechanism.run(table, Silent.fresh()))
        together_ = mechanism.pack(found[purpose].value)
        assert alone.keys() == together_.keys() and all(
            np.array_equal(alone[k], together_[k]) for k in alone
        )
        assert any(np.any(a) for a in alone.values())
    assert len(scene.passes.asked) == 1 + len(PLANNED)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_alone_are_one_counting_plan(tmp_path: Path, ledger: Ledger, kind: str) -> None:
    scene = Scene(tmp_path, ledger, kind)
    found = scene.session().release_together(TABLES)
    assert scene.passes.asked == ["count"]
    table = table_of(scene.passes, kind)
    for purpose, mechanism in TABLES.items():
        (alone,), (own,) = mechanism.run(table, Silent.fresh()), found[purpose].value
        assert np.array_equal(alone.counts, own.counts)


def test_a_large_table_takes_a_pass_of_its_own(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = packed(scene.session().release_together(PLANNED))
    monkeypatch.setattr(together, "MAX_CELLS", 20)
    silent = Silent.fresh()
    tables = tables_for(table_of(scene.passes, "arrow"), list(PLANNED.values()))
    assert scene.passes.asked == ["add_up", "count", "add_up"]
    for (purpose, mechanism), table in zip(PLANNED.items(), tables, strict=True):
        own = mechanism.pack(mechanism.run(table, silent))
        assert {n: a.tolist() for n, a in own.items()} == expected[purpose]


def test_each_is_charged_by_itself_and_has_its_own_receipt(scene: Scene) -> None:
    found = scene.session(Streams.fresh()).release_together(PLANNED)
    book = {e.hash: e.body["purpose"] for e in scene.ledger.run_entries("r") if e.kind == "charge"}
    assert list(book.values()) == list(PLANNED) == list(found)
    for purpose, released in found.items():
        (receipt,) = released.receipts
        assert book[receipt.entry] == purpose


def test_noise_is_drawn_for_each(scene: Scene) -> None:
    """Noise of at least three numbers of deviation 30 is the same twice below 1e-5."""
    found = packed(scene.session(Streams.fresh()).release_together(PLANNED))
    tables = tables_for(table_of(scene.passes, "arrow"), list(PLANNED.values()))
    for (purpose, mechanism), table in zip(PLANNED.items(), tables, strict=True):
        exact = mechanism.pack(mechanism.run(table, Silent.fresh()))
        noisy = mechanism.pack(mechanism.run(table, Streams.fresh()))
        for name in exact:
            assert noisy[name].tolist() != exact[name].tolist() != found[purpose][name]


def test_killed_between_the_charges_and_the_look(scene: Scene) -> None:
    def die() -> list[str]:
        raise Killed

    true, scene.passes.charged = scene.passes.charged, die
    with pytest.raises(Killed):
        scene.session().release_together(PLANNED)
    assert charges(scene.ledger) == list(PLANNED) and not list(scene.journal.iterdir())
    scene.passes.charged, scene.passes.asked = true, []
    found = packed(scene.session(Streams.fresh()).release_together(PLANNED))
    assert charges(scene.ledger) == list(PLANNED) and scene.passes.asked == ["add_up"]
    assert packed(scene.session().release_together(PLANNED)) == found
    assert scene.passes.asked == ["add_up"]


def test_killed_between_two_values_keeps_the_first_and_looks_for_the_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def die_at_the_third(path: Path, content: bytes) -> None:
        if len(written) == 2:
            raise Killed
        written.append(path.name)
        path.write_bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr("synthdp.privacy.session._write", die_at_the_third)
        with pytest.raises(Killed):
            scene.session(Streams.fresh()).release_together(PLANNED)
    kept = {path.name: path.read_bytes() for path in scene.journal.iterdir()}
    assert len(kept) == 2
    first = scene.session()
    looked: list[Any] = []
    true = together.tables_for
    monkeypatch.setattr(
        "synthdp.privacy.session.tables_for", lambda t, m: looked.extend(m) or true(t, m)
    )
    first.release_together(PLANNED)
    assert looked == list(PLANNED.values())[2:]
    assert {n: (scene.journal / n).read_bytes() for n in kept} == kept
    assert charges(scene.ledger) == list(PLANNED)


@pytest.mark.parametrize("case", ["not planned", "other noise", "used", "settled"])
def test_one_that_may_not_be_released_keeps_the_rows_shut(scene: Scene, case: str) -> None:
    session, wanted = scene.session(), dict(PLANNED)
    if case == "not planned":
        wanted["estimand: 9"] = ESTIMANDS["4"]
    elif case == "other noise":
        wanted["estimand: 4"] = replace(ESTIMANDS["4"], sigma=29.0)
    elif case == "used":
        session.release(ESTIMANDS["4"], purpose="estimand: 4")
    else:
        session.settle()
    before, seen = charges(scene.ledger), list(scene.passes.asked)
    with pytest.raises(BudgetError):
        session.release_together(wanted)
    assert charges(scene.ledger) == before and scene.passes.asked == seen


def test_charged_in_vain_and_settled_gives_no_look(scene: Scene) -> None:
    def die() -> list[str]:
        raise Killed

    scene.passes.charged = die
    session = scene.session()
    with pytest.raises(Killed):
        session.release_together(PLANNED)
    session.settle()
    scene.passes.asked = []
    with pytest.raises(BudgetError, match="has settled, and kept no value"):
        scene.session().release_together(PLANNED)
    assert scene.passes.asked == []


def test_what_was_seen_answers_nothing_else() -> None:
    tables = tables_for(in_memory(DOMAIN, paid(60, ids=9)), list(PLANNED.values()))
    seen = tables[0]
    assert all(table is seen for table in tables)
    asks: list[Callable[[], object]] = [
        lambda: seen.codes,
        lambda: seen.frame,
        lambda: seen.fit_codes,
        lambda: seen.sampled_codes(0.5, Streams.fresh()),
        lambda: seen.add_up(ESTIMANDS["1"], "all"),
        lambda: seen.add_up(StratumSums(DOMAIN, (Arm(),), (), None, 1.0)),
        lambda: NoisyMarginals(DOMAIN, (("ward",),), 2.0).run(seen, Streams.fresh()),
    ]
    for ask in asks:
        with pytest.raises(BoundaryError):
            ask()


def test_joined_sums_are_cut_where_they_were_joined() -> None:
    """Falsifier: an order of parts that differs from the cuts would swap answers."""
    table = in_memory(DOMAIN, paid(60, ids=9))
    parts = (ESTIMANDS["3"], CellsOf(DOMAIN, ("ward", "sex")), ESTIMANDS["1"])
    for own, total in zip(parts, Joined(parts).cut(table.add_up(Joined(parts))), strict=True):
        assert np.array_equal(total, table.add_up(own))


def test_a_rehearsal_releases_each(tmp_path: Path) -> None:
    table: Table = in_memory(DOMAIN, paid(60, ids=9))
    rehearsal = Rehearsal(table.codes, DOMAIN, PLAN, frame=table.frame)
    assert list(rehearsal.release_together(PLANNED)) == list(PLANNED)
    with pytest.raises(BudgetError, match="already released"):
        rehearsal.release_together(TABLES)


def test_what_was_released_together_is_released_once(scene: Scene) -> None:
    session = scene.session()
    session.release_together(TABLES)
    (purpose, mechanism), *_ = TABLES.items()
    for again in (
        lambda: session.release_together(PLANNED),
        lambda: session.release(mechanism, purpose=purpose),
    ):
        with pytest.raises(BudgetError, match="already released"):
            again()
    assert scene.passes.asked == ["count"] and charges(scene.ledger) == list(TABLES)
