"""The protocol behind every Adult figure: one split, one public grid, five classifiers.

The split is a fixed permutation of the 48,842 rows, 80% to fit and 20% to test. Total variation is
the mean over all 14 one-way, all 91 two-way and 64 fixed random three-way tables on a grid of at
most 32 bins per column, against the fit rows. AUC, accuracy and macro-F1 are means over logistic
regression, random forest, 15 nearest neighbours, a linear SVC and boosted trees, fitted on
synthetic rows and tested on real ones. Where one of the two tables holds a single class, or the
synthetic one a second class once, there is nothing to learn: see `_constant`. `c2st` is the AUC of
boosted trees that tell synthetic rows from those of the test, by their values; .5 is best.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from benchmarks.tables_protocol import told_apart
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode

TARGET = "income"
# The public grid, whatever bins a spec chooses: lowest value and number of values of each numeric
# column.
NUMERIC = {
    "age": (16, 85),
    "fnlwgt": (0, 100),
    "education-num": (1, 16),
    "capital-gain": (0, 100),
    "capital-loss": (0, 100),
    "hours-per-week": (1, 99),
}
MODELS = ("lr", "rf", "knn", "svc", "hgb")

Matrix = npt.NDArray[np.float32]


def split(csv: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Fit and test rows of the public table."""
    table = pd.read_csv(csv, dtype=str, keep_default_na=False)
    order = np.random.default_rng(0).permutation(len(table))
    cut = int(0.8 * len(table))
    return table.iloc[order[:cut]].reset_index(drop=True), table.iloc[order[cut:]].reset_index(
        drop=True
    )


def score(
    domain: Domain, train: pd.DataFrame, test: pd.DataFrame, synthetic: pd.DataFrame
) -> dict[str, float]:
    """All figures of one synthetic table; `domain` gives the categories."""
    frames = [f.replace("", np.nan) for f in (train, test, synthetic)]
    codes = [encode(domain, f)[0] for f in frames]
    cells = [on_grid(domain, f, c) for f, c in zip(frames, codes, strict=True)]
    sizes = tuple(
        len(_edges(c.name)) - 1 if c.name in NUMERIC else c.levels for c in domain.columns
    )
    held, drawn = (_values(domain, frames[i], codes[i]) for i in (1, 2))
    return (
        total_variation(sizes, cells[0], cells[2])
        | {"c2st": told_apart(held, drawn)}
        | train_synthetic_test_real(domain, frames[2], codes[2], frames[1], codes[1])
    )


def _values(
    domain: Domain, frame: pd.DataFrame, codes: npt.NDArray[np.uint16]
) -> npt.NDArray[np.float64]:
    """Numbers as they are and categories by their codes, `[rows, columns]`."""
    values = codes.astype(np.float64)
    for name in NUMERIC:
        values[:, domain.index(name)] = pd.to_numeric(frame[name])
    return values


def _edges(column: str) -> list[int]:
    """Edges of at most 32 bins, half-open; nothing gained or lost has a bin of its own."""
    lowest, size = NUMERIC[column]
    if size <= 32:
        return list(range(lowest, lowest + size + 1))
    if column.startswith("capital"):
        return [0, *(round(x) for x in np.linspace(1, size, 32))]
    return [lowest + round(x) for x in np.linspace(0, size, 33)]


def on_grid(
    domain: Domain, frame: pd.DataFrame, codes: npt.NDArray[np.uint16]
) -> npt.NDArray[np.uint16]:
    """Cells of the public grid, shape `[rows, columns]`: numbers by its edges, categories by their
    codes.
    """
    cells = codes.copy()
    for name in NUMERIC:
        bins = (
            np.searchsorted(
                _edges(name), pd.to_numeric(frame[name]).to_numpy(np.float64), side="right"
            )
            - 1
        )
        cells[:, domain.index(name)] = np.clip(bins, 0, len(_edges(name)) - 2)
    return cells


def total_variation(
    sizes: tuple[int, ...], real: npt.NDArray[np.uint16], synthetic: npt.NDArray[np.uint16]
) -> dict[str, float]:
    """Mean total variation of one-, two- and three-way tables."""
    columns = range(len(sizes))
    triples = list(itertools.combinations(columns, 3))
    chosen = [triples[i] for i in np.random.default_rng(0).permutation(len(triples))[:64]]
    orders: dict[str, list[tuple[int, ...]]] = {
        "tv1": [(c,) for c in columns],
        "tv2": list(itertools.combinations(columns, 2)),
        "tv3": chosen,
    }
    return {
        name: float(np.mean([_distance(sizes, real, synthetic, t) for t in tables]))
        for name, tables in orders.items()
    }


def _distance(
    sizes: tuple[int, ...],
    real: npt.NDArray[np.uint16],
    synthetic: npt.NDArray[np.uint16],
    columns: tuple[int, ...],
) -> float:
    shares = []
    for codes in (real, synthetic):
        cell = np.zeros(len(codes), dtype=np.int64)
        for c in columns:
            cell = cell * sizes[c] + codes[:, c]
        shares.append(
            np.bincount(cell, minlength=int(np.prod([sizes[c] for c in columns]))) / len(codes)
        )
    return float(0.5 * np.abs(shares[0] - shares[1]).sum())


def train_synthetic_test_real(
    domain: Domain,
    synthetic: pd.DataFrame,
    synthetic_codes: npt.NDArray[np.uint16],
    test: pd.DataFrame,
    test_codes: npt.NDArray[np.uint16],
) -> dict[str, float]:
    """AUC, accuracy and macro-F1 of each classifier, and their means."""
    target = domain.index(TARGET)
    y, y_test = synthetic_codes[:, target].astype(int), test_codes[:, target].astype(int)
    if np.sort(np.bincount(y, minlength=2))[-2] < 2 or len(np.unique(y_test)) < 2:
        return _means({name: _constant(y, y_test) for name in MODELS})
    pairs = list(_blocks(domain, synthetic, synthetic_codes, test, test_codes))
    x, x_test = np.hstack([a for a, _ in pairs]), np.hstack([b for _, b in pairs])
    scores: dict[str, dict[str, float]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in _models().items():
            model.fit(x, y)
            margin = (
                model.decision_function(x_test)
                if name == "svc"
                else model.predict_proba(x_test)[:, 1]
            )
            guess = model.predict(x_test)
            scores[name] = {"auc": float(roc_auc_score(y_test, margin))} | _right(y_test, guess)
    return _means(scores)


def _right(truth: npt.NDArray[np.int_], guess: npt.NDArray[np.int_]) -> dict[str, float]:
    return {
        "acc": float(accuracy_score(truth, guess)),
        "f1": float(f1_score(truth, guess, average="macro")),
    }


def _constant(y: npt.NDArray[np.int_], y_test: npt.NDArray[np.int_]) -> dict[str, float]:
    """Scores of the commonest class, which is all that can be said: it ranks nothing, so its AUC is
    .5 (of a single class there is none).
    """
    auc = 0.5 if len(np.unique(y_test)) > 1 else math.nan
    return {"auc": auc} | _right(y_test, np.full_like(y_test, np.bincount(y).argmax()))


def _means(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Figures of each classifier by one name, and the means over all."""
    each = {
        f"{name}_{figure}": value for name, own in scores.items() for figure, value in own.items()
    }
    return each | {
        f"mean_{figure}": float(np.mean([own[figure] for own in scores.values()]))
        for figure in ("auc", "acc", "f1")
    }


def _blocks(
    domain: Domain,
    synthetic: pd.DataFrame,
    synthetic_codes: npt.NDArray[np.uint16],
    test: pd.DataFrame,
    test_codes: npt.NDArray[np.uint16],
) -> Iterator[tuple[Matrix, Matrix]]:
    """Standardised numbers (by the synthetic rows), one-hot categories, two-valued ones as one
    column.
    """
    for i, column in enumerate(domain.columns):
        if column.name == TARGET:
            continue
        if column.ranged:
            values = [pd.to_numeric(f[column.name]).to_numpy(np.float64) for f in (synthetic, test)]
            mean, deviation = values[0].mean(), values[0].std() + 1e-9
            a, b = (((v - mean) / deviation)[:, None].astype(np.float32) for v in values)
            yield a, b
        elif column.levels > 2:
            one_hot = np.eye(column.levels, dtype=np.float32)
            yield one_hot[synthetic_codes[:, i]], one_hot[test_codes[:, i]]
        else:
            yield (
                synthetic_codes[:, i, None].astype(np.float32),
                test_codes[:, i, None].astype(np.float32),
            )


def _models() -> dict[str, Any]:
    return {
        "lr": LogisticRegression(max_iter=300),
        "rf": RandomForestClassifier(100, random_state=0),
        "knn": KNeighborsClassifier(15),
        "svc": LinearSVC(dual=False, max_iter=300),
        "hgb": HistGradientBoostingClassifier(random_state=0),
    }
