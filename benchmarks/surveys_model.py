"""Surveys of 29 columns from causal models, with answers that are missing together.

A model is drawn from a seed: each column has up to three causes among earlier ones, on a scale that
nobody sees, and shows categories, counts with a heap at 0, rounded minutes, skewed money or plain
numbers. `treated` adds a known effect to `outcome`. Two blocks of questions are missing together,
as after a filter question or a wave that some skipped. Nothing was tuned on seeds from 100 on.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

ROWS, REFERENCE_ROWS, GRID_BINS, TRIPLES = 1600, 100_000, 8, 64
EFFECT = 0.6
"""Added to the outcome's scale by treatment."""
BLOCKS = {"filter": ("cigarettes", "years", "brand"), "wave": ("mood2", "hours2", "pay2", "view2")}
BLOCK_SHARES = {"filter": 0.35, "wave": 0.2}
SINGLE = {"pay": 0.06, "pressure": 0.03}
"""Columns that are missing by themselves."""
KINDS: dict[str, str] = {
    **dict.fromkeys(("sex", "married", "treated", "smoker"), "two"),
    **dict.fromkeys(("region", "work", "brand"), "several"),
    **dict.fromkeys((f"item{i}" for i in range(1, 8)), "scale"),
    **dict.fromkeys(("view2", "school", "health"), "scale"),
    **dict.fromkeys(("children", "visits", "cigarettes", "years"), "count"),
    **dict.fromkeys(("commute", "hours2"), "minutes"),
    **dict.fromkeys(("pay", "pay2"), "money"),
    **dict.fromkeys(("age", "pressure", "mood2", "outcome"), "plain"),
}
COLUMNS: dict[str, dict[str, Any]] = {
    "two": {"type": "categorical", "categories": ["no", "yes"]},
    "several": {"type": "categorical", "categories": ["a", "b", "c", "d", "e"]},
    "scale": {"type": "ordinal", "categories": ["never", "seldom", "at times", "often", "always"]},
    "count": {"type": "integer", "lower": 0, "upper": 40},
    "minutes": {"type": "integer", "lower": 0, "upper": 240},
    "money": {"type": "number", "lower": 0, "upper": 40000, "decimals": 0},
    "plain": {"type": "number", "lower": 0, "upper": 200, "decimals": 1},
}
Levels = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Survey:
    """One causal model, its table, and how a synthetic version of it is judged."""

    seed: int

    @cached_property
    def names(self) -> list[str]:
        """The columns in causal order; the outcome is last."""
        names = sorted(KINDS, key=lambda n: (n == "outcome", n))
        order = np.random.default_rng([self.seed, 0]).permutation(len(names) - 1)
        return [*(names[i] for i in order), "outcome"]

    @cached_property
    def causes(self) -> dict[str, list[str]]:
        """The causes of each column."""
        rng, causes = np.random.default_rng([self.seed, 1]), dict[str, list[str]]()
        for i, name in enumerate(self.names):
            count = min(i, int(rng.integers(1, 4)))
            causes[name] = [self.names[j] for j in sorted(rng.permutation(i)[:count])]
        if "treated" not in causes["outcome"]:
            causes["outcome"].append("treated")
        return causes

    @cached_property
    def columns(self) -> dict[str, dict[str, Any]]:
        """The columns as a steward describes them."""
        absent = {*itertools.chain(*BLOCKS.values()), *SINGLE}
        return {
            n: COLUMNS[KINDS[n]] | ({"missing": True} if n in absent else {}) for n in self.names
        }

    @cached_property
    def table(self) -> pd.DataFrame:
        """The survey: `ROWS` rows."""
        return self.drawn(ROWS, 2)

    @cached_property
    def grid(self) -> dict[str, Floats]:
        """Edges between `GRID_BINS` bins of about equal mass, from other rows."""
        reference = self.drawn(REFERENCE_ROWS, 3)
        shares = np.linspace(0, 1, GRID_BINS + 1)[1:-1]
        numeric = (n for n in self.names if "lower" in self.columns[n])
        return {n: np.unique(np.nanquantile(reference[n].astype(float), shares)) for n in numeric}

    def drawn(self, rows: int, stream: int) -> pd.DataFrame:
        """Rows of the model."""
        rng = np.random.default_rng([self.seed, stream])
        weights = np.random.default_rng([self.seed, 4])
        scores, shown = dict[str, Floats](), dict[str, Any]()
        for name in self.names:
            causes = self.causes[name]
            pull = weights.uniform(0.35, 0.8, len(causes)) * weights.choice([-1, 1], len(causes))
            mean = sum((w * scores[c] for w, c in zip(pull, causes, strict=True)), np.zeros(rows))
            score = (mean + rng.normal(size=rows)) / math.sqrt(1 + np.square(pull).sum())
            if name == "outcome":
                score = score + EFFECT * (shown["treated"] == "yes")
            scores[name], shown[name] = score, _shown(name, score, weights, rng)
        for block, members in BLOCKS.items():
            cause = scores[self.names[int(weights.integers(8))]]
            absent = rng.random(rows) < _logistic(cause + _logit(BLOCK_SHARES[block]))
            for name in members:
                shown[name] = np.where(absent, None, shown[name])
        for name, share in SINGLE.items():
            shown[name] = np.where(rng.random(rows) < share, None, shown[name])
        return pd.DataFrame(shown, columns=self.names)

    def levels(self, table: pd.DataFrame) -> dict[str, Levels]:
        """Levels of each column on the grid; the last is that of a missing answer."""
        levels = {}
        for name in self.names:
            absent = table[name].isna().to_numpy()
            if name in self.grid:
                level = np.searchsorted(self.grid[name], table[name].astype(float), side="right")
                last = len(self.grid[name]) + 1
            else:
                level = pd.Index(self.columns[name]["categories"]).get_indexer(table[name])
                last = len(self.columns[name]["categories"])
            levels[name] = np.where(absent, last, level)
        return levels

    def score(self, synthetic: pd.DataFrame) -> dict[str, float]:
        """`tv1`, `tv2`, `tv3`; the largest error of a joint missing share, of an SD; the effect."""
        real, drawn = self.levels(self.table), self.levels(synthetic)
        triples = list(itertools.combinations(self.names, 3))
        order = np.random.default_rng(0).permutation(len(triples))[:TRIPLES]
        tables: dict[str, list[tuple[str, ...]]] = {
            "tv1": list(itertools.combinations(self.names, 1)),
            "tv2": list(itertools.combinations(self.names, 2)),
            "tv3": [triples[i] for i in order],
        }
        spread = {
            n: abs(synthetic[n].astype(float).std() / self.table[n].astype(float).std() - 1)
            for n in self.grid
        }
        return {
            **{k: float(np.mean([_tv(real, drawn, t) for t in ts])) for k, ts in tables.items()},
            "missing": max(self._missing_errors(synthetic)),
            "sd_worst": max(spread.values()),
            "sd_mean": float(np.mean(list(spread.values()))),
            "effect_error": _effect(synthetic) - _effect(self.table),
        }

    def _missing_errors(self, synthetic: pd.DataFrame) -> list[float]:
        """Of each block: share where all, and where some but not all, are missing."""
        errors = []
        for members in BLOCKS.values():
            real, drawn = (t[list(members)].isna() for t in (self.table, synthetic))
            errors.append(abs(real.all(axis=1).mean() - drawn.all(axis=1).mean()))
            errors.append((drawn.any(axis=1) & ~drawn.all(axis=1)).mean())
        for name in SINGLE:
            errors.append(abs(self.table[name].isna().mean() - synthetic[name].isna().mean()))
        return [float(e) for e in errors]


def _shown(name: str, score: Floats, weights: np.random.Generator, rng: np.random.Generator) -> Any:
    """What the survey shows of a score."""
    kind = KINDS[name]
    if kind in ("two", "several", "scale"):
        categories = np.array(COLUMNS[kind]["categories"], dtype=object)
        cuts = np.sort(weights.normal(0, 0.8, len(categories) - 1))
        level = np.searchsorted(cuts, score)
        return categories[
            weights.permutation(len(categories))[level] if kind == "several" else level
        ]
    if kind == "count":
        return np.floor(np.exp(1.2 + 0.45 * score) - 1).clip(0, 40)
    if kind == "minutes":
        minutes = (40 * np.exp(0.4 * score)).clip(0, 240).round()
        return np.where(rng.random(len(score)) < 0.7, (minutes / 5).round() * 5, minutes)
    if kind == "money":
        return np.where(score < -1.3, 0, np.exp(7.8 + 0.4 * score).round()).clip(0, 40000)
    return (70 + 15 * score).clip(0, 200).round(1)


def _effect(table: pd.DataFrame) -> float:
    """Difference of mean outcomes, treated less untreated."""
    outcome, treated = table["outcome"].astype(float), table["treated"] == "yes"
    return float(outcome[treated].mean() - outcome[~treated].mean())


def _tv(real: dict[str, Levels], drawn: dict[str, Levels], names: tuple[str, ...]) -> float:
    shares = []
    sizes = [1 + max(int(real[n].max()), int(drawn[n].max())) for n in names]
    for levels in (real, drawn):
        cell = np.ravel_multi_index(tuple(levels[n] for n in names), sizes)
        shares.append(np.bincount(cell, minlength=math.prod(sizes)) / len(cell))
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def _logistic(score: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-score)))


def _logit(share: float) -> float:
    return math.log(share / (1 - share))
