"""Content of the public report: plain values that other files of the bundle publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.report.graph_view import GraphView
from synthdp.report.measured_vs_synthetic import NoisyCounts


@dataclass(frozen=True, kw_only=True)
class PublicContent:
    """What the page shows. All of it stands in other files of the bundle.

    `facts` are those of `privacy/certificate.json`. `profile` has points (epsilon, delta). `codes`
    are levels of the first rows of the published table, shape `[rows, columns]`. `rows` is the
    number of rows of the whole table. `estimands` are those of `estimands.json`. `first` names
    columns to show before others.
    """

    domain: Domain
    facts: Mapping[str, Any]
    profile: Sequence[tuple[float, float]]
    graph: GraphView
    tables: Sequence[NoisyCounts]
    codes: Codes
    rows: int
    estimands: Sequence[Mapping[str, Any]] = ()
    first: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
