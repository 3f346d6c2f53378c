"""Values planted in the table turn up nowhere: not in files, output, errors, databases or tracking.

The canaries are an id, an out-of-domain category and a number off the grid that synthetic numbers
are written on, so none of them can come up by chance. Only the table itself may hold them.
"""

import struct
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.privacy.dpsgd.training import Training
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.release import judge
from tests.release.conftest import internal

pytestmark = pytest.mark.check

ID, CATEGORY, NUMBER, DATE = (
    "patient-Zq7Xw1",
    "canaryCategoryK9",
    73.9182736455,
    "2021-07-13T11:22:33",
)
UNIT = {
    "privacy_unit": {"kind": "id", "column": "patient", "max_rows": 1, "meaning": "one patient"}
}
# As long as chance does not write them: figures have three decimals or many, and a clock may show
# the time without this day.
TRACES = [text.encode() for text in (ID, CATEGORY, "73.918273", DATE, DATE.replace("T", " "))] + [
    struct.pack("<d", NUMBER),
    struct.pack("<f", NUMBER),
]


@pytest.fixture
def planted(make_table: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    """The table with one row of canaries."""
    frame = make_table().assign(patient=[f"p{i // 2}" for i in range(400)])
    frame.loc[17, ["patient", "sex", "joined"]] = [ID, CATEGORY, DATE]
    frame.loc[17, "weight"] = NUMBER
    return frame


def traces_in(content: bytes) -> list[bytes]:
    return [t for t in TRACES if t in content]


def leaks(folder: Path, *texts: str) -> dict[str, list[bytes]]:
    """Where canaries are found, outside the table itself."""
    files = {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != "table.csv"
    }
    found = files | {f"text {i}": t.encode() for i, t in enumerate(texts)}
    return {name: traces for name, content in found.items() if (traces := traces_in(content))}


def test_the_search_finds_what_it_looks_for(tiny: Any, planted: pd.DataFrame) -> None:
    tiny.write(planted, dataset=UNIT)
    assert len(traces_in((tiny.folder / "table.csv").read_bytes())) == 4
    (tiny.folder / "leak.bin").write_bytes(np.asarray([1.0, NUMBER]).tobytes())
    assert list(leaks(tiny.folder, f"row of {ID}")) == ["leak.bin", "text 0"]


@pytest.mark.parametrize("attacked", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_whole_tracked_release_shows_no_planted_value(
    tiny: Any, planted: pd.DataFrame, synthdp: Any, attacked: bool
) -> None:
    tiny.write(
        planted,
        dataset={**UNIT, "out_of_domain": "clamp"},
        attacks={"membership": {"enabled": attacked, "rows": 40, "pairs": 4, "steps": 2}},
        tracking={"enabled": True},
    )
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 0, done.err
    assert (tiny.folder / "mlflow.db").stat().st_size > 100_000 and tiny.bundle.is_dir()
    assert leaks(tiny.folder, done.out, done.err) == {}
    report = internal(tiny.out)
    assert report["misfits"]["sex"]["outside the domain"] == 1  # its declared place: a count
    assert (report["attack"] is not None) == attacked


@pytest.mark.parametrize("column", ["sex", "visits", "weight", "joined"])
def test_refusing_says_which_column_and_no_more(
    tiny: Any, planted: pd.DataFrame, synthdp: Any, column: str
) -> None:
    if column != "sex":  # a value of the wrong type, in every row: a unit's are drawn at random
        planted = planted.assign(**{"sex": "male", "joined": "2021-07-13", column: CATEGORY})
    done = synthdp("release", tiny.write(planted, dataset=UNIT).spec, "--out", tiny.out)
    assert done.code == 5 and f"'{column}'" in done.err
    assert leaks(tiny.folder, done.out, done.err) == {}


def test_a_broken_file_is_not_quoted(tiny: Any, planted: pd.DataFrame, synthdp: Any) -> None:
    tiny.write(planted, dataset=UNIT)
    with (tiny.folder / "table.csv").open("a") as file:
        file.write(f"{ID},{CATEGORY},1,2,3,4,5,6,7,8,9\n")
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 5 and "cannot read" in done.err
    assert "402" not in done.err  # nor which row it is
    assert leaks(tiny.folder, done.out, done.err) == {}


def _dies(self: Any, table: Any, streams: Any) -> Any:
    raise ValueError(f"cannot handle {table.frame.to_dict('records')} {ID} {CATEGORY} {NUMBER}")


def _dies_judging(table: Any, *_: Any) -> Any:
    raise KeyError(f"{ID} {CATEGORY} {NUMBER}")


@pytest.mark.parametrize("where", ["measuring", "training"])
def test_a_bug_in_the_middle_is_reported_by_kind_and_place(
    tiny: Any, planted: pd.DataFrame, synthdp: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(NoisyMarginals if where == "measuring" else Training, "run", _dies)
    tiny.write(
        planted,
        dataset={**UNIT, "out_of_domain": "clamp"},
        tracking={"enabled": where == "training"},
    )
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 1
    assert "internal error" in done.err
    assert "message withheld" in done.err
    assert "_dies" in done.err
    assert leaks(tiny.folder, done.out, done.err) == {}
    assert tiny.kinds()[:2] == ["cap", "reserve"]  # what was reserved stays visible


def test_a_bug_in_judging_is_told_by_its_kind_in_the_stewards_report_alone(
    tiny: Any, planted: pd.DataFrame, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "_evaluate", _dies_judging)
    tiny.write(planted, dataset={**UNIT, "out_of_domain": "clamp"})
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 0 and "KeyError" not in done.out + done.err
    assert leaks(tiny.folder, done.out, done.err) == {}
    told = internal(tiny.out)
    assert told["absent"] == {"evaluation": "not judged: KeyError"} and told["evaluation"] is None


def test_errors_raised_to_python_callers_hold_no_value(tiny: Any, planted: pd.DataFrame) -> None:
    """Message, cause and traceback of what a table that does not fit raises, chained errors
    included.
    """
    for frame in (planted, planted.assign(extra=ID), planted.drop(columns="sex")):
        with pytest.raises(Exception) as caught:
            tiny.write(frame, dataset=UNIT).release()
        assert traces_in("".join(traceback.format_exception(caught.value)).encode()) == []
