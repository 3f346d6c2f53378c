"""Two linked tables are read person by person, and a view's rows are bounded."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.data import OUTER, PERSONS, SECOND, STEPS, Domain, VisitFrame
from synthdp.errors import BoundaryError, DataError
from synthdp.privacy import LinkedTable, as_view, fit_linked, read_linked, view_of
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY
from tests.visits import linked_spec, made_up

SPEC = linked_spec()
FRAME = VisitFrame.from_spec(SPEC)
MOST = {PERSONS: 1, OUTER: 1, SECOND: 1, STEPS: FRAME.most - 1}


def read(
    folder: Path, persons: pd.DataFrame, visits: pd.DataFrame, *, holdout: float = 0.0
) -> LinkedTable:
    """Both tables through their files, without the seal."""
    persons.to_csv(folder / "persons.csv", index=False)
    visits.to_csv(folder / "visits.csv", index=False)
    sealed = read_linked(SPEC, FRAME, folder=folder, holdout=holdout, streams=Streams.fresh())
    return sealed.unseal(key=_KERNEL_KEY)


def rows(table: LinkedTable, view: str) -> Counter[tuple[int, ...]]:
    """The rows of a view, however they are ordered."""
    return Counter(map(tuple, table.views[view].codes.tolist()))


@pytest.mark.parametrize("seed", range(6))
def test_one_person_more_adds_so_many_rows_and_moves_no_other(tmp_path: Path, seed: int) -> None:
    """The sensitivity of each view, through files: whoever the person is, others stay as they
    are, in whatever order the rows are written.
    """
    persons, visits = made_up(40, seed=seed)
    whole = read(tmp_path, persons, visits)
    reached = dict.fromkeys(MOST, 0)
    for out in persons["id"][:12]:
        shuffled = persons[persons["id"] != out].sample(frac=1, random_state=seed)
        others = visits[visits["id"] != out].sample(frac=1, random_state=seed + 1)
        without = read(tmp_path, shuffled, others)
        for view, most in MOST.items():
            more, fewer = (
                rows(whole, view) - rows(without, view),
                rows(without, view) - rows(whole, view),
            )
            assert not fewer and more.total() <= most
            reached[view] = max(reached[view], more.total())
    assert reached == MOST


def test_the_first_visits_are_kept_by_date_and_ties_by_levels(tmp_path: Path) -> None:
    persons = pd.DataFrame([("a", "F", "1950-01-01", "")], columns=["id", "sex", "birth", "death"])
    made: list[tuple[Any, ...]] = [
        ("a", "2020-05-01", 1, 100, "true"),
        ("a", "2020-01-01", 2, 90, "false"),
        ("a", "2020-05-01", 0, 110, "false"),
        ("a", "2020-06-01", 0, 120, "false"),
        ("a", "2020-07-01", 2, 130, "true"),
    ]
    columns = ["id", "date", "stage", "bp", "drug"]
    seen = []
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 1, 4, 3]):
        table = read(tmp_path, persons, pd.DataFrame([made[i] for i in order], columns=columns))
        steps = table.views[STEPS]
        stage = steps.codes[:, FRAME.views[STEPS].index("visits.stage")]
        number = steps.codes[:, FRAME.views[STEPS].index("visits.number")]
        assert stage[np.argsort(number)].tolist() == [0, 1, 0]  # the fifth visit is cut
        seen.append({view: rows(table, view) for view in MOST})
    assert seen[0] == seen[1] == seen[2]


def test_rows_of_nobody_and_visits_without_a_date_are_dropped_each_by_itself(
    tmp_path: Path,
) -> None:
    persons, visits = made_up(20)
    whole = read(tmp_path, persons, visits)
    strange = visits.iloc[:3].assign(id="nobody")
    undated = visits.iloc[:3].assign(date="")
    again = read(tmp_path, persons, pd.concat([strange, visits, undated]))
    assert all(rows(whole, view) == rows(again, view) for view in MOST)


def test_two_rows_of_one_key_are_one_person_whatever_their_order(tmp_path: Path) -> None:
    persons, visits = made_up(20)
    twin = persons.iloc[:1].assign(sex="M", birth="1990-01-01")
    before = read(tmp_path, pd.concat([twin, persons]), visits)
    after = read(tmp_path, pd.concat([persons, twin]), visits)
    assert len(before.codes) == len(persons)
    assert all(rows(before, view) == rows(after, view) for view in MOST)


@pytest.mark.parametrize("kind", ["uint64", "float64", "object"])
def test_long_ids_stay_apart_when_the_two_keys_differ_in_type(tmp_path: Path, kind: str) -> None:
    persons, visits = made_up(20)
    numbers = {name: 2**53 + place for place, name in enumerate(persons["id"])}
    whole = read(tmp_path, persons, visits)
    long = persons.replace("", None).assign(id=persons["id"].map(numbers).astype("int64"))
    of = visits.replace("", None).assign(id=visits["id"].map(numbers).astype("int64").astype(kind))
    columns = {name: Domain.from_spec(SPEC.columns[name]) for name in SPEC.columns}
    again = fit_linked(
        SPEC,
        FRAME,
        {"persons": long, "visits": of},
        columns,
        {},
        holdout=0.0,
        rng=np.random.default_rng(1),
    )
    assert len(again.codes) == len(persons)
    if kind != "float64":  # A float of the visits' own file is no longer the id that was meant.
        assert all(rows(whole, view) == rows(again, view) for view in MOST)


def test_a_person_is_held_out_of_all_views_or_of_none(tmp_path: Path) -> None:
    table = read(tmp_path, *made_up(200), holdout=0.5)
    out = table.views[PERSONS].held_out
    assert 50 < out.sum() < 150
    owners = table.views[STEPS].units
    assert owners is not None
    assert (table.views[STEPS].held_out == out[owners]).all()


def test_values_outside_the_domain_are_refused_by_name(tmp_path: Path) -> None:
    persons, visits = made_up(20)
    with pytest.raises(DataError) as error:
        read(tmp_path, persons, visits.assign(bp="999"))
    assert "'bp'" in str(error.value) and "999" not in str(error.value)


def test_a_view_that_is_not_there_is_no_view() -> None:
    with pytest.raises(BoundaryError):
        view_of(
            as_view(
                LinkedTable(np.zeros((1, 1), np.uint16), pd.DataFrame(), np.zeros(1, bool), {}),
                STEPS,
            ),
            OUTER,
        )
