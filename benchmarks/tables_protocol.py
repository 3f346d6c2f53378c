"""Figures of a synthetic version of one of the public tables in benchmarks/data/tables.

A fifth of the rows, by a fixed permutation, is kept to test. `grid` below is the table's public
grid in NAME.domain.json: categories, or spikes and left ends of bins, with a level for the empty
field. Figures: `tv1`, `tv2`, `tv3` are mean total variations of all one-way, all two-way and 64
fixed three-way tables on the grid, against the rows to fit; `c2st_grid` is the AUC of boosted trees
that tell synthetic rows from test rows, on the grid; `kept` is the median share that is kept of the
mutual information of two columns, of all pairs that have more than `CERTAIN` nats on the grid;
`auc` is the mean AUC on test rows of five classifiers of the label that learn on synthetic rows.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

FOLDER = Path(__file__).parent / "data" / "tables"
TRIPLES, TOLD_APART, CERTAIN = 64, 8000, 1.0

Levels = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PublicTable:
    """One of the tables, and how it is judged; its rows are in `folder`."""

    name: str
    folder: Path = FOLDER

    @cached_property
    def described(self) -> dict[str, Any]:
        """The public description of the table."""
        text = (FOLDER / f"{self.name}.domain.json").read_text(encoding="utf-8")
        described: dict[str, Any] = json.loads(text)
        return described

    @cached_property
    def columns(self) -> dict[str, dict[str, Any]]:
        """The public grid of each column."""
        columns: dict[str, dict[str, Any]] = self.described["columns"]
        return columns

    @cached_property
    def split(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Rows to fit and rows to test, every field as text."""
        table = pd.read_csv(self.folder / f"{self.name}.csv", dtype=str, keep_default_na=False)
        order, cut = np.random.default_rng(0).permutation(len(table)), int(0.8 * len(table))
        return table.iloc[order[:cut]], table.iloc[order[cut:]]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Levels of each column on the grid; the last one is missing, where that may be."""
        return tuple(
            len(s["categories"] if s["kind"] == "cat" else s["spikes"] + s["edges"])
            + bool(s.get("missing"))
            for s in self.columns.values()
        )

    def levels(self, table: pd.DataFrame) -> Levels:
        """Levels of a table of texts `[rows, columns]`."""
        return np.column_stack([self._levels_of(name, table[name]) for name in self.columns])

    def _levels_of(self, name: str, texts: pd.Series[str]) -> Levels:
        grid, absent = self.columns[name], (texts == "").to_numpy()
        if grid["kind"] == "cat":
            level = pd.Index(grid["categories"]).get_indexer(texts)
        else:
            spikes, numbers = grid["spikes"], _numbers(texts).clip(grid["lower"], grid["upper"])
            bins = np.searchsorted(grid["edges"], numbers, side="right") - 1
            level = len(spikes) + bins.clip(0, len(grid["edges"]) - 1)
            for i, spike in enumerate(spikes):
                level = np.where(numbers == spike, i, level)
        last = self.sizes[list(self.columns).index(name)] - 1
        return np.where(absent, last, level).astype(np.int64)

    def score(self, synthetic: pd.DataFrame) -> dict[str, float]:
        """All figures of a synthetic table of texts."""
        train, test = self.split
        real, drawn, held = (self.levels(table) for table in (train, synthetic, test))
        columns = range(len(self.sizes))
        triples = list(itertools.combinations(columns, 3))
        chosen = np.random.default_rng(0).permutation(len(triples))[:TRIPLES]
        return {
            "tv1": self._variation(real, drawn, itertools.combinations(columns, 1)),
            "tv2": self._variation(real, drawn, itertools.combinations(columns, 2)),
            "tv3": self._variation(real, drawn, [triples[i] for i in chosen]),
            "c2st_grid": told_apart(held, drawn),
            "kept": self._kept(real, drawn),
            **self.utility(synthetic, test),
        }

    def _shares(self, levels: Levels, columns: tuple[int, ...]) -> Floats:
        """The shares of all cells of some columns, an axis for each."""
        shape = [self.sizes[c] for c in columns]
        cell = np.ravel_multi_index(tuple(levels[:, c] for c in columns), shape)
        return np.bincount(cell, minlength=math.prod(shape)).reshape(shape) / len(levels)

    def _variation(self, a: Levels, b: Levels, tables: Iterable[tuple[int, ...]]) -> float:
        distances = [np.abs(self._shares(a, c) - self._shares(b, c)).sum() / 2 for c in tables]
        return float(np.mean(distances))

    def _kept(self, real: Levels, drawn: Levels) -> float:
        """NaN where no pair has so much."""
        pairs = itertools.combinations(range(len(self.sizes)), 2)
        known = {pair: information(self._shares(real, pair)) for pair in pairs}
        kept = [
            information(self._shares(drawn, pair)) / nats
            for pair, nats in known.items()
            if nats > CERTAIN
        ]
        return float(np.median(kept)) if kept else math.nan

    def utility(self, synthetic: pd.DataFrame, test: pd.DataFrame) -> dict[str, float]:
        """AUC of the five classifiers, and of boosted trees alone (`hgb`)."""
        target = self.described["target"]
        label, truth = (self._levels_of(target, t[target]) for t in (synthetic, test))
        if len(np.unique(label)) == 1:  # nothing to learn from
            return {"auc": 0.5, "hgb": 0.5}
        scale: dict[str, tuple[float, float]] = {}
        x, held = (self._features(table, scale) for table in (synthetic, test))
        models = {
            "lr": LogisticRegression(max_iter=300),
            "rf": RandomForestClassifier(100, random_state=0),
            "knn": KNeighborsClassifier(15),
            "svc": LinearSVC(dual=False, max_iter=300),
            "hgb": HistGradientBoostingClassifier(random_state=0),
        }
        scores = {}
        for name, model in models.items():
            model.fit(x, label)
            shown = (
                model.decision_function(held) if name == "svc" else model.predict_proba(held)[:, 1]
            )
            scores[name] = float(roc_auc_score(truth, shown))
        return {"auc": float(np.mean(list(scores.values()))), "hgb": scores["hgb"]}

    def _features(self, table: pd.DataFrame, scale: dict[str, tuple[float, float]]) -> Floats:
        """Categories one by one, standardised numbers, and a flag where missing."""
        parts = []
        left_out = {self.described["target"], *self.described["not_a_feature"]}
        for (name, grid), size in zip(self.columns.items(), self.sizes, strict=True):
            if name in left_out:
                continue
            if grid["kind"] == "cat":
                parts.append(np.eye(size)[self._levels_of(name, table[name])])
                continue
            numbers = _numbers(table[name])
            known = (float(np.nanmean(numbers)), float(np.nanstd(numbers)) + 1e-9)
            mean, deviation = scale.setdefault(name, known)
            parts.append(np.nan_to_num((numbers - mean) / deviation)[:, None])
            if grid.get("missing"):
                parts.append(np.isnan(numbers)[:, None].astype(float))
        return np.hstack(parts)


def _numbers(texts: pd.Series[str]) -> Floats:
    """Numbers of texts; NaN for the empty field."""
    numbers: Floats = pd.to_numeric(texts.replace("", np.nan)).to_numpy(float)
    return numbers


def information(shares: Floats) -> float:
    """Mutual information of a two-way table of shares, in nats."""
    apart = np.outer(shares.sum(1), shares.sum(0))
    cells = shares > 0
    return float((shares[cells] * np.log(shares[cells] / apart[cells])).sum())


def told_apart(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """AUC of boosted trees that tell rows of `a` from rows of `b`, four folds."""
    rows, rng = min(len(a), len(b), TOLD_APART), np.random.default_rng(0)
    x = np.vstack([table[rng.permutation(len(table))[:rows]] for table in (a, b)]).astype(float)
    y = np.repeat([0, 1], rows)
    trees = HistGradientBoostingClassifier(max_iter=150, early_stopping=False, random_state=0)
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    return float(
        roc_auc_score(y, cross_val_predict(trees, x, y, cv=folds, method="predict_proba")[:, 1])
    )
