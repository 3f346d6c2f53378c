"""Bugs planted on purpose, each of which the replay must catch and call by its name."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from synthdp.audit import Pair, ReplayFinding, neighbours, replay
from synthdp.data import Domain
from synthdp.privacy.noise import Streams
from tests.audit.planted.bugs import BUGS
from tests.audit.planted.readers import READERS
from tests.audit.reading_pairs import raw_neighbours, replay_reading
from tests.builders import build_spec, skeleton

ROWS_PER_UNIT, BATCH = 3, 8
WRONG = {name: bug for name, bug in BUGS.items() if bug.differs}


@pytest.fixture(scope="module")
def pairs(domain: Domain) -> list[Pair]:
    return list(neighbours(domain, batch=BATCH, max_rows=ROWS_PER_UNIT))


def found_by(mechanism: Any, pairs: list[Pair], domain: Domain) -> Iterator[ReplayFinding]:
    for pair in pairs:
        yield from replay(mechanism, [pair], domain=domain, rows_per_unit=ROWS_PER_UNIT).findings


@pytest.mark.check
@pytest.mark.parametrize("name", WRONG)
def test_a_planted_bug_is_caught_and_named(
    name: str, domain: Domain, pairs: list[Pair], figure: Callable[..., None]
) -> None:
    """Up to the first pair that shows it."""
    bug, mechanism = BUGS[name], BUGS[name](domain)
    caught = next((f for f in found_by(mechanism, pairs, domain) if f.differs == bug.differs), None)
    assert caught is not None
    assert caught.mechanism == mechanism.name and caught.where and caught.found != caught.allowed
    figure("planted bugs caught by the replay", 1, 1)


@pytest.mark.check
@pytest.mark.parametrize("name", [name for name in BUGS if name not in WRONG])
def test_what_is_right_is_not_called_a_bug(name: str, domain: Domain, pairs: list[Pair]) -> None:
    """A copy of each module with nothing planted: it is the bug that is found."""
    some = pairs if name.startswith(("search", "strata", "products")) else pairs[::5]
    done = replay(BUGS[name](domain), some, domain=domain, rows_per_unit=ROWS_PER_UNIT)
    furthest = 0.4 if name.startswith(("texts", "numbers", "screen", "products of")) else 0.99
    assert done.findings == () and done.largest_share > furthest


COLUMNS = {
    "sex": {"type": "categorical", "categories": ["f", "m"]},
    "pay": {"type": "number", "lower": -5, "upper": 5, "bins": 4, "missing": True},
    "day": {"type": "datetime", "lower": "2020-01-01", "upper": "2020-12-31", "bins": 4}
    | {"missing": True},
}
DOMAIN = Domain.from_spec(build_spec(COLUMNS).columns)
ID = {"kind": "id", "column": "person", "max_rows": 3, "meaning": "one person"}
ROW = {"kind": "row", "meaning": "one visit"}


def dataset(unit: dict[str, Any]) -> Any:
    return build_spec(COLUMNS, dataset=skeleton(100, privacy_unit=unit)["dataset"]).dataset


@pytest.mark.check
@pytest.mark.parametrize("name", READERS)
def test_a_planted_reader_is_caught(name: str, figure: Callable[..., None]) -> None:
    """Up to the first pair that shows it."""
    own = dataset(ID)
    pairs = ([pair] for pair in raw_neighbours(own, DOMAIN))
    found = (replay_reading(own, DOMAIN, pairs=pair, read=READERS[name]).findings for pair in pairs)
    assert any(found)
    figure("planted bugs caught by the replay", 1, 1)


@pytest.mark.check
@pytest.mark.parametrize("unit", [ROW, ID], ids=["row", "id"])
def test_the_kernels_reader_keeps_neighbours_neighbours(unit: dict[str, Any]) -> None:
    done = replay_reading(dataset(unit), DOMAIN)
    assert done.findings == () and done.pairs > 50 and done.largest_share == 1


class Continuous(Streams):
    """Noise of full precision on what was rounded."""

    def lattice_gaussian(self, values: Any, *, sigma: float, spacing: float) -> Any:
        return values + sigma * self.noise.standard_normal(values.shape)


def test_noise_off_the_lattice_is_caught(domain: Domain, pairs: list[Pair]) -> None:
    done = replay(
        BUGS["training, as it is"](domain),
        pairs[:3],
        domain=domain,
        rows_per_unit=ROWS_PER_UNIT,
        streams=Continuous.fresh,
    )
    assert {f.differs for f in done.findings} == {"lattice"}
