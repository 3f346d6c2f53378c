"""Moment matrices: exact sums, the sensitivity by adversarial search, noise of the stated scale,
and nothing lost in the journal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from scipy.stats import kstest

from synthdp.data.basis import Basis
from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import encode
from synthdp.privacy import table as adding
from synthdp.privacy.mechanisms import moments
from synthdp.privacy.mechanisms.moments import GRID, MomentMatrix
from synthdp.privacy.noise import Integers, Streams
from synthdp.privacy.table import Table


class Silent(Streams):
    """Fresh streams whose noise is zero: what a mechanism would say without it."""

    def rounded_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        return counts


def numbers(count: int) -> Domain:
    edges = tuple(np.linspace(-1, 1, 5)[:-1])
    return Domain(
        tuple(
            ColumnDomain(
                f"x{i}",
                "number",
                ("a", "b", "c", "d"),
                False,
                edges=edges,
                stop=1.0,
                lower=-1.0,
                upper=1.0,
            )
            for i in range(count)
        )
    )


def table_of(
    domain: Domain, values: npt.NDArray[np.float64], held_out: npt.NDArray[np.bool_] | None = None
) -> Table:
    frame = pd.DataFrame(values, columns=list(domain.names))
    codes, _ = encode(domain, frame)
    return Table(
        codes, frame, np.zeros(len(values), dtype=bool) if held_out is None else held_out, {}
    )


def matrix(
    count: int, *, degree: int = 2, deviations: float = 2.0, noise: float = 1.0
) -> MomentMatrix:
    domain = numbers(count)
    basis = Basis(domain, domain.names, degree=degree, interaction=degree)
    return MomentMatrix(basis, basis.norm(deviations=deviations), noise)


def test_sums_equal_a_loop_over_the_rows_that_are_not_held_out() -> None:
    mechanism = matrix(3)
    rng = np.random.default_rng(0)
    values, held_out = rng.uniform(-1, 1, (500, 3)), rng.random(500) < 0.3
    table = table_of(mechanism.basis.domain, values, held_out)
    released = mechanism.run(table, Silent.fresh())
    expected = np.zeros_like(released.sums)
    for row in mechanism.bounded(mechanism.basis.matrix(table.frame, table.codes))[~held_out]:
        expected += np.outer(row, row) * GRID**2
    assert np.array_equal(released.sums, expected)
    assert released.sums[0, 0] == pytest.approx(
        (~held_out).sum(), rel=0.1
    )  # rows beyond the norm count for less


def test_sums_do_not_depend_on_the_order_or_the_size_of_the_table() -> None:
    """Exact arithmetic: the order of rows and blocks leaves no trace in the low bits."""
    mechanism = matrix(3, degree=3)
    rng = np.random.default_rng(1)
    values = rng.uniform(-1, 1, (40_000, 3))
    first, row, turned = (
        mechanism.run(table_of(mechanism.basis.domain, v), Silent.fresh()).sums
        for v in (values, values[:1], values[::-1])
    )
    without = mechanism.run(table_of(mechanism.basis.domain, values[1:]), Silent.fresh()).sums
    assert np.array_equal(first, turned)
    assert np.array_equal(first - without, row)


@pytest.mark.parametrize(
    ("count", "degree", "deviations"),
    [(1, 1, 2.0), (4, 1, 2.0), (4, 1, 1e9), (8, 1, 1e9), (3, 2, 2.0), (3, 3, 1e9)],
)
def test_no_row_moves_the_sums_further_than_the_sensitivity_and_some_come_near(
    count: int, degree: int, deviations: float
) -> None:
    mechanism = matrix(count, degree=degree, deviations=deviations)
    rng = np.random.default_rng(count)
    rows = rng.uniform(-1, 1, (4000, count))
    rows[:1000] = rng.choice([-1.0, 1.0], (1000, count))  # corners
    for _ in range(20):  # climb: keep the worst half, and move it a little
        moved = _moves(mechanism, rows)
        assert moved.max() <= mechanism.sensitivity
        worst = rows[np.argsort(moved)[-2000:]]
        rows = np.concatenate([worst, np.clip(worst + rng.normal(0, 0.2, worst.shape), -1, 1)])
    assert _moves(mechanism, rows).max() >= mechanism.sensitivity / 2


def _moves(mechanism: MomentMatrix, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    table = table_of(mechanism.basis.domain, rows)
    functions = mechanism.bounded(mechanism.basis.matrix(table.frame, table.codes)) * GRID
    upper = np.triu_indices(functions.shape[1])
    moved: npt.NDArray[np.float64] = np.sqrt(
        ((functions[:, upper[0]] * functions[:, upper[1]]) ** 2).sum(1)
    )
    return moved


@pytest.mark.parametrize(("count", "degree", "deviations"), [(1, 1, 2.0), (4, 1, 1e9), (3, 2, 2.0)])
def test_no_replaced_unit_moves_the_sums_further_than_is_charged_and_some_come_near(
    count: int, degree: int, deviations: float
) -> None:
    """Pairs of units of one row, and of three, at corners and inside."""
    mechanism = matrix(count, degree=degree, deviations=deviations)
    rng = np.random.default_rng(count)
    rows = np.concatenate([rng.choice([-1.0, 1.0], (60, count)), rng.uniform(-1, 1, (60, count))])
    table = table_of(mechanism.basis.domain, rows)
    functions = mechanism.bounded(mechanism.basis.matrix(table.frame, table.codes)) * GRID
    upper = np.triu_indices(functions.shape[1])
    one = functions[:, upper[0]] * functions[:, upper[1]]
    for size in (1, 3):
        units = one[rng.integers(0, len(one), (400, size))].sum(1) if size > 1 else one
        units = np.concatenate([units, size * one])
        squares = (units**2).sum(1)
        moved = np.sqrt((squares[:, None] + squares - 2 * units @ units.T).max())
        allowed = mechanism.sigma * mechanism.event(size).moved("replace_one")
        assert mechanism.sensitivity * size <= allowed / 1.4 and moved <= allowed
        assert moved >= 0.4 * allowed


def test_a_search_would_notice_a_sensitivity_that_forgets_the_diagonal() -> None:
    """The search above is sharp: half the Frobenius norm, which leaves the diagonal out, is
    exceeded.
    """
    mechanism = matrix(8, degree=1, deviations=1e9)
    corner = np.ones((1, 8))
    assert _moves(mechanism, corner)[0] > mechanism.norm**2 / np.sqrt(2)


@pytest.mark.parametrize(("claimed", "accepted"), [(1.0, True), (0.7, False), (1.3, False)])
def test_noise_has_the_stated_scale(claimed: float, accepted: bool) -> None:
    mechanism = matrix(4, noise=1.7)
    table = table_of(mechanism.basis.domain, np.zeros((3, 4)))
    exact = mechanism.run(table, Silent.fresh()).sums
    upper = np.triu_indices(len(exact))
    noise = np.concatenate(
        [(mechanism.run(table, Streams.fresh()).sums - exact)[upper] for _ in range(60)]
    )
    p = kstest(noise / (claimed * mechanism.sigma), "norm").pvalue
    assert bool(p > 1e-7) is accepted


def test_noisy_sums_lie_on_the_lattice_and_are_symmetric() -> None:
    mechanism = matrix(3)
    sums = mechanism.run(
        table_of(mechanism.basis.domain, np.full((7, 3), 0.3)), Streams.fresh()
    ).sums
    assert np.array_equal(sums, sums.T)
    assert np.array_equal(sums / GRID**2, np.rint(sums / GRID**2))


def test_an_empty_table_releases_noise_alone() -> None:
    mechanism = matrix(3)
    assert not mechanism.run(
        table_of(mechanism.basis.domain, np.zeros((0, 3))), Silent.fresh()
    ).sums.any()


def test_other_scales_and_more_noise_are_charged_as_planned() -> None:
    mechanism = matrix(3, noise=2.0)
    assert mechanism.with_scales(()).event(3) == mechanism.event(3)
    assert mechanism.scaled(2.5).event(1).noise_multiplier == 5.0
    assert mechanism.event(4).noise_multiplier == 0.5
    assert mechanism.scaled(2.5).sigma == pytest.approx(2.5 * mechanism.sigma)


def test_the_journal_gives_back_what_was_released() -> None:
    mechanism = matrix(3)
    released = mechanism.run(table_of(mechanism.basis.domain, np.zeros((5, 3))), Streams.fresh())
    again = mechanism.unpack(mechanism.pack(released))
    assert np.array_equal(again.sums, released.sums)
    assert again.sigma == released.sigma == mechanism.sigma


def test_sums_beyond_what_floating_point_holds_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row moves them by its own products, on a grid so fine that these are near 2^52, as sums
    over billions of rows are on the true one.
    """
    monkeypatch.setattr(moments, "GRID", 2.0**-26)
    monkeypatch.setattr(adding, "CHUNK_OF_NUMBERS", 1)
    mechanism = matrix(2)
    values = np.random.default_rng(6).uniform(-1, 1, (60, 2))
    longer, shorter = (table_of(mechanism.basis.domain, values[:rows]) for rows in (60, 59))
    one, other = (t.add_up(mechanism) for t in (longer, shorter))
    row = mechanism.bounded(mechanism.basis.matrix(longer.frame, longer.codes))[-1].astype(np.int64)
    assert one[0] > 2**53 and np.array_equal(
        one - other, np.outer(row, row)[np.triu_indices(len(row))]
    )
