"""A noisy table as pandas has it."""

from __future__ import annotations

import pandas as pd

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.privacy.mechanisms.marginals import NoisyTable


def noisy_series(table: NoisyTable, domain: Domain) -> pd.Series[float]:
    """The counts by the labels of their levels or groups; `attrs["sigma"]` has their noise.

    >>> import synthdp
    >>> synthdp.Bundle("releases/clinic/bundle").marginals["sex",].index.name
    'sex'
    """
    columns, coarse = table.columns, LevelGroups(domain, table.starts).coarse
    labels = [list(coarse[name].labels) for name in columns]
    index = (
        pd.Index(labels[0], name=columns[0])
        if len(columns) == 1
        else pd.MultiIndex.from_product(labels, names=columns)
    )
    series = pd.Series(table.counts.ravel(), index=index, name="noisy count")
    series.attrs["sigma"] = table.sigma
    return series
