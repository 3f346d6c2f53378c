"""What acts on a label together and shows in no pair: simulated tables, and ordinary ones.

    python -m benchmarks.interactions [--tables parity3 numbers2 employee ...] [--epsilon 1]
                                      [--runs 3] [--ways without with]

Simulated tables have 16,000 rows to fit, as many to test, and a label of one half that depends on
no column, nor on a pair of them: the parity of 2, 3 or 4 of ten signs, the sign of a product of 2
or 3 of ten numbers, whether two of five cards have one rank; one label in ten is flipped. Beside
them are the public tables of `benchmarks.tables` that are long enough. Each has a newcomer's spec
in mode predict; `without` is the program that looks for no interactions. Figures are those of
`benchmarks.tables`; `real` rows are scored once. Writes results/interactions.csv, a row for each
run; runs that it holds are not run again.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks import tables
from benchmarks.tables_protocol import PublicTable
from synthdp.model import interactions
from synthdp.spec.load.loader import parse_spec

RESULTS = Path(__file__).parent / "results" / "interactions.csv"
KEY = ["table", "way", "epsilon", "run"]
FIGURES = ("auc", "hgb", "tv2", "tv3", "cpu_s")
ROWS, FLIPPED = 16_000, 0.1
Rng = np.random.Generator
Label = npt.NDArray[np.bool_]
Table = tuple[dict[str, Any], dict[str, npt.NDArray[Any]], Label]
"""The public grid of each column, values by column, and the label before some are flipped."""

SIGN = {"kind": "cat", "categories": ["no", "yes"]}
NUMBER = {"kind": "num", "lower": 0.0, "upper": 1.0, "decimals": 3, "spikes": []}
NUMBER |= {"edges": [i / 16 for i in range(16)], "stop": 1.0}


def parity(order: int) -> Callable[[Rng], Table]:
    def drawn(rng: Rng) -> Table:
        signs = rng.random((2 * ROWS, 10)) < 0.5
        names = [f"s{i}" for i in range(10)]
        values = {n: np.where(s, "yes", "no") for n, s in zip(names, signs.T, strict=True)}
        return dict.fromkeys(names, SIGN), values, signs[:, :order].sum(1) % 2 == 1

    return drawn


def numbers(order: int) -> Callable[[Rng], Table]:
    def drawn(rng: Rng) -> Table:
        values = rng.random((2 * ROWS, 10))
        names = [f"x{i}" for i in range(10)]
        texts = {n: np.char.mod("%.3f", v) for n, v in zip(names, values.T, strict=True)}
        sign = np.prod(2 * values[:, :order] - 1, axis=1) > 0
        return dict.fromkeys(names, NUMBER), texts, sign

    return drawn


def cards(rng: Rng) -> Table:
    deck = rng.permuted(np.tile(np.arange(52), (2 * ROWS, 1)), axis=1)[:, :5]
    grids, values = dict[str, Any](), dict[str, npt.NDArray[Any]]()
    for i, card in enumerate(deck.T):
        for name, size, part in (("suit", 4, card % 4), ("rank", 13, card // 4)):
            grids[f"{name}{i}"] = {"kind": "cat", "categories": [str(k) for k in range(size)]}
            values[f"{name}{i}"] = part.astype(str)
    ranks = np.sort(deck // 4, axis=1)
    return grids, values, (np.diff(ranks, axis=1) == 0).any(1)


SIMULATED: Mapping[str, Callable[[Rng], Table]] = {
    **{f"parity{k}": parity(k) for k in (2, 3, 4)},
    **{f"numbers{k}": numbers(k) for k in (2, 3)},
    "cards": cards,
}


@dataclass(frozen=True)
class SimulatedTable(PublicTable):
    """A table whose label depends on several columns at once."""

    @cached_property
    def _drawn(self) -> Table:
        return SIMULATED[self.name](np.random.default_rng(0))

    @cached_property
    def described(self) -> dict[str, Any]:
        """The grid of each column, and the label."""
        columns = {**self._drawn[0], "label": SIGN}
        columns = {name: copy.deepcopy(grid) for name, grid in columns.items()}  # YAML has aliases
        return {"columns": columns, "target": "label", "not_a_feature": []}

    @cached_property
    def split(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Rows to fit and rows to test, every field as text."""
        _, values, label = self._drawn
        flipped = label ^ (np.random.default_rng(1).random(2 * ROWS) < FLIPPED)
        table = pd.DataFrame(values | {"label": np.where(flipped, "yes", "no")})
        return table.iloc[:ROWS], table.iloc[ROWS:]


def table_named(name: str) -> PublicTable:
    return SimulatedTable(name) if name in SIMULATED else PublicTable(name)


def measure(name: str, way: str, epsilon: float) -> dict[str, float]:
    """Figures of one run."""
    table = table_named(name)
    train, _ = table.split
    if way == "real":
        return table.score(train) | {"cpu_s": 0.0}
    text = tables.newcomer_spec(
        table, rows=len(train), epsilon=epsilon, mode="predict", bins="init"
    )
    spec = parse_spec(text, path=name)
    evaluation = spec.evaluation.model_copy(update={"holdout": 0.0})
    compute = spec.compute.model_copy(update={"threads": 1})
    spec = spec.model_copy(update={"evaluation": evaluation, "compute": compute})
    settings = interactions.SETTINGS
    if way == "without":
        settings = replace(settings, min_rows=float("inf"))
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(interactions, "SETTINGS", settings),
    ):
        start = time.process_time()
        synthetic = tables.released(spec, train, Path(folder))
        seconds = time.process_time() - start
    return {**table.score(synthetic), "cpu_s": seconds}


def main() -> None:
    """Run what is missing, and print the means."""
    every = (*SIMULATED, "employee", "bike", "grid", "hotel")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", default=every, choices=every)
    parser.add_argument("--epsilon", nargs="+", type=float, default=(1.0,))
    parser.add_argument("--ways", nargs="+", default=("without", "with"))
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    known = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=KEY)
    real = [(0, name, "real", np.inf) for name in asked.tables]
    drawn = itertools.product(range(asked.runs), asked.tables, asked.ways, asked.epsilon)
    for number, name, way, epsilon in (*real, *drawn):
        key = dict(zip(KEY, (name, way, epsilon, number), strict=True))
        if (known[KEY] == pd.Series(key)).all(axis=1).any():
            continue
        figures = {k: v for k, v in measure(name, way, epsilon).items() if k in FIGURES}
        known = pd.concat([known, pd.DataFrame([key | figures])], ignore_index=True)
        known.round(4).to_csv(RESULTS, index=False)
        print(key | figures, flush=True)
    print(known.drop(columns="run").groupby(KEY[:-1]).mean().round(4).to_string())


if __name__ == "__main__":
    main()
