"""How often pooled analyses of copies hold the population's value, for all that they claim.

Every draw follows a seed. The figures stand in docs/inference.md.
"""

from collections import Counter

import pytest

from tests.inference.copied import ANALYSES, held

pytestmark = pytest.mark.check

EVEN, SKEWED = (0.4, 0.3, 0.2, 0.1), (0.6, 0.25, 0.13, 0.02)


def test_intervals_hold_the_population_seeded() -> None:
    found = list(held(EVEN, 20_000, 12, m=10))
    assert {name for name, _ in found} >= set(ANALYSES)
    assert sum(inside for _, inside in found) > 0.92 * len(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shares", "rows", "times"),
    [
        (EVEN, 20_000, 5),
        (SKEWED, 20_000, 5),
        (EVEN, 2_000, 5),
        (SKEWED, 2_000, 5),
        (EVEN, 2_000, 1),
    ],
)
def test_intervals_hold_the_population(shares: tuple[float, ...], rows: int, times: int) -> None:
    """200 releases, or 600 of few rows. Analyses of one release share its noise."""
    hits, all_of = Counter[str](), Counter[str]()
    for name, inside in held(shares, rows, 200 if rows == 20_000 else 600, times=times):
        hits[name] += inside
        all_of[name] += 1
    total = hits.total() / all_of.total()
    print(f"{shares} {rows} rows, times {times}: {total:.3f} of {all_of.total()}")
    for name, count in all_of.items():
        print(f"  {name}: {hits[name] / count:.3f} of {count}")
    assert total > 0.93
    assert all(hits[name] >= 0.9 * count for name, count in all_of.items() if count >= 100)
    assert times == 1 or total < 0.97
