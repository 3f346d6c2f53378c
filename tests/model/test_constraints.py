"""Constraints hold on written values, the law is the model's given them, culprits are named."""

from io import StringIO
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from synthdp.bundle import write_csv_blocks
from synthdp.data import Codes, Domain
from synthdp.model import Constraints, ConstraintsUnmet, DrawSettings
from synthdp.spec.model import ReleaseSpec
from tests.builders import build_spec

WHOLE = {"type": "integer", "lower": 0, "upper": 99}
REAL = {"type": "number", "lower": 0, "upper": 10, "bins": 2, "decimals": 1}
DAY = {"type": "datetime", "lower": "2020-01-01", "upper": "2020-12-31", "bins": 2}
COLUMNS: dict[str, Any] = {
    "age": WHOLE | {"bins": 4},
    "worked": WHOLE | {"bins": 2, "missing": True, "spikes": [0]},
    "civil-status": {"type": "categorical", "categories": ["single", "married"]},
    "low": REAL,
    "high": REAL,
    "admitted": DAY,
    "left": DAY | {"missing": True, "resolution": "hour"},
}
NUMBERS = ("age", "worked")
TEXTS = (
    "worked <= age",
    "age >= 18 or `civil-status` == 'single'",
    "low <= high",
    "left >= admitted",
)


def release(*texts: str) -> ReleaseSpec:
    return build_spec(COLUMNS, constraints=texts)


def constraints(*texts: str) -> Constraints:
    return Constraints.from_spec(release(*texts), Domain.from_spec(release().columns))


class Even:
    """A model that draws every level alike, and remembers how much it drew."""

    def __init__(self, seed: int = 1) -> None:
        self.rng, self.drawn = np.random.default_rng(seed), 0

    def __call__(self, rows: int) -> Codes:
        self.drawn += rows
        sizes = Domain.from_spec(release().columns).sizes
        return np.column_stack([self.rng.integers(0, size, rows) for size in sizes]).astype(
            np.uint16
        )


def written(frame: pd.DataFrame) -> pd.DataFrame:
    """The table as a reader of the CSV sees it."""
    text = StringIO()
    write_csv_blocks([frame], release().columns, text)
    return pd.read_csv(StringIO(text.getvalue()), parse_dates=["admitted", "left"])


def test_constraints_hold_on_the_values_that_are_written() -> None:
    held = constraints(*TEXTS)
    codes = held.draw(Even(), 6000, rng=np.random.default_rng(2))
    table = written(held.decode(codes, rng=np.random.default_rng(3)))
    assert len(table) == 6000
    assert (table["worked"].isna() | (table["worked"] <= table["age"])).all()
    assert ((table["age"] >= 18) | (table["civil-status"] == "single")).all()
    assert (table["low"] <= table["high"]).all() and (
        table["left"].isna() | (table["left"] >= table["admitted"])
    ).all()
    assert (
        table["worked"].isna().any()
        and table["left"].isna().any()
        and (table["low"] == table["low"].round(1)).all()
    )
    text = (
        table.assign(**{c: table[c].dt.strftime("%Y-%m-%dT%H:%M:%S") for c in ("admitted", "left")})
        .astype("str")
        .fillna("")
    )
    assert not any(
        v.any() for v in held.violated_in(text.replace({"nan": "", "<NA>": ""})).values()
    )


def test_levels_alone_are_not_enough() -> None:
    """The same levels decoded anew violate what a decoding of them fulfilled."""
    held = constraints("low <= high")
    codes = held.draw(Even(), 2000, rng=np.random.default_rng(2))
    assert held.violated_by(codes, held.decode_ranged(codes, np.random.default_rng(4))).any()


def test_the_law_is_the_models_given_that_the_constraints_hold() -> None:
    """Against plain rejection of whole rows; keeping each that could hold is another law."""
    held = constraints("low <= high", "worked <= age")
    codes = held.draw(Even(5), 60_000, rng=np.random.default_rng(2))
    table = held.decode(codes, rng=np.random.default_rng(3))
    free = Even(6)(200_000)
    plain = constraints().decode(free, rng=np.random.default_rng(7))
    keep = (plain["low"] <= plain["high"]) & (
        plain["worked"].isna() | (plain["worked"] <= plain["age"])
    )

    def shares(frame: pd.DataFrame) -> npt.NDArray[np.float64]:
        cells = [
            np.histogram(frame[c].dropna().astype(float), 20, (0, 100 if c in NUMBERS else 10))[0]
            for c in (*NUMBERS, "low", "high")
        ]
        gap = np.histogram(frame["high"] - frame["low"], bins=20, range=(-10, 10))[0]
        return np.stack([*cells, gap]) / len(frame)

    difference = np.abs(shares(table) - shares(plain[keep])).max()
    assert difference < 0.01 < np.abs(shares(table) - shares(plain)).max()
    assert abs(table["worked"].isna().mean() - plain[keep]["worked"].isna().mean()) < 0.01


def test_types_are_those_without_constraints() -> None:
    held = constraints(*TEXTS)
    codes = held.draw(Even(), 500, rng=np.random.default_rng(2))
    with_them, without = (
        held.decode(codes, rng=np.random.default_rng(3)),
        constraints().decode(codes, rng=np.random.default_rng(3)),
    )
    assert with_them.dtypes.equals(without.dtypes) and str(with_them["worked"].dtype) == "Int64"
    text = StringIO()
    write_csv_blocks([with_them], release().columns, text)
    worked = [line.split(",")[1] for line in text.getvalue().splitlines()[1:]]
    assert "" in worked and all(w == "" or w.isdigit() for w in worked)  # 3, and not 3.0


def test_without_constraints_nothing_more_is_drawn() -> None:
    draw = Even()
    assert (
        constraints().draw(draw, 10, rng=np.random.default_rng(1)).shape == (10, 7)
        and draw.drawn == 10
    )


def test_more_is_drawn_until_there_are_enough_rows() -> None:
    draw = Even()
    assert (
        len(
            constraints("age < 5").draw(draw, DrawSettings.first_draw, rng=np.random.default_rng(1))
        )
        == DrawSettings.first_draw
    )
    assert (
        15 * DrawSettings.first_draw < draw.drawn < 30 * DrawSettings.first_draw
    )  # a twentieth of all rows hold


def test_what_next_to_no_row_fulfils_is_given_up_naming_the_hardest() -> None:
    with pytest.raises(ConstraintsUnmet) as caught:
        constraints("low <= 9", "age == 7 and worked == 3").draw(
            Even(), 100, rng=np.random.default_rng(1)
        )
    assert (
        "'age == 7 and worked == 3', holds for 0.00" in str(caught.value)
        and "0.01" in str(caught.value)
        and caught.value.exit_code == 4
    )
