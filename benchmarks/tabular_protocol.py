"""Adult's protocol for other tables: a fixed split, a public grid, five classifiers on each target.

Everything is a spec's own: its domain is the grid, its `evaluation.targets` are predicted from all
other columns, each by the five classifiers of `benchmarks.adult_protocol`, fitted on synthetic rows
and tested on a fifth of the real ones. Total variation is the mean over all one-way, all two-way
and 64 fixed random three-way tables of that grid (for Adult: of the grid of its own protocol).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import adult_protocol
from synthdp.data import builtin
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import BuiltinSource, CsvSource, ReleaseSpec

SPECS = Path(__file__).parent.parent / "specs"
SHARE_TO_FIT = 0.8
# The means over targets that are told; `hgb` is the boosted trees.
SCORES = ("mean_auc", "hgb_auc", "mean_acc", "mean_f1")


@dataclass(frozen=True)
class Table:
    """A public table and how it is judged; `name` is that of its spec in specs/."""

    name: str

    @cached_property
    def spec(self) -> ReleaseSpec:
        """The spec."""
        return load_spec(SPECS / f"{self.name}.yaml")

    @cached_property
    def domain(self) -> Domain:
        """The public grid."""
        return Domain.from_spec(self.spec.columns)

    @cached_property
    def split(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Rows to fit and to test, as values, by a fixed permutation."""
        source = self.spec.dataset.source
        if isinstance(source, CsvSource):
            return adult_protocol.split(SPECS / source.path)
        assert isinstance(source, BuiltinSource)
        table = builtin.frame(source.name)
        table = table.assign(
            **{name: table[name].astype(str).str.lower() for name in table.select_dtypes("bool")}
        )  # as a CSV file holds them
        order = np.random.default_rng(0).permutation(len(table))
        cut = int(SHARE_TO_FIT * len(table))
        return table.iloc[order[:cut]].reset_index(drop=True), table.iloc[order[cut:]].reset_index(
            drop=True
        )

    def codes(self, frame: pd.DataFrame) -> Codes:
        """Levels of a table of values, shape `[rows, columns]`."""
        return encode(self.domain, frame.replace("", np.nan))[0]

    def score(self, synthetic: pd.DataFrame) -> dict[str, float]:
        """All figures of a synthetic table of values."""
        train, test = self.split
        figures = adult_protocol.total_variation(*self._grid(train, synthetic))
        each = list(self._utility(synthetic.replace("", np.nan), test.replace("", np.nan)))
        return figures | {name: float(np.nanmean([one[name] for one in each])) for name in SCORES}

    def _grid(
        self, train: pd.DataFrame, synthetic: pd.DataFrame
    ) -> tuple[tuple[int, ...], Codes, Codes]:
        codes = self.codes(train), self.codes(synthetic)
        if self.name != "adult":
            return self.domain.sizes, *codes
        numeric = {name: len(adult_protocol._edges(name)) - 1 for name in adult_protocol.NUMERIC}
        sizes = tuple(numeric.get(c.name, c.levels) for c in self.domain.columns)
        real, drawn = (
            adult_protocol.on_grid(self.domain, f, c)
            for f, c in zip((train, synthetic), codes, strict=True)
        )
        return sizes, real, drawn

    def _utility(self, synthetic: pd.DataFrame, test: pd.DataFrame) -> Iterator[dict[str, float]]:
        """Scores of the five classifiers for one target after the other."""
        for target in self.spec.evaluation.targets:
            # The protocol knows its target by name, so the target takes that name.
            names = {target: adult_protocol.TARGET}
            domain = Domain(
                tuple(replace(c, name=names.get(c.name, c.name)) for c in self.domain.columns)
            )
            frames = [f.rename(columns=names) for f in (synthetic, test)]
            codes = [encode(domain, f)[0] for f in frames]
            yield adult_protocol.train_synthetic_test_real(
                domain, frames[0], codes[0], frames[1], codes[1]
            )
