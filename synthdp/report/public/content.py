"""Content of the public report: plain values that other files of the bundle publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.report.public.measured import NoisyCounts
from synthdp.report.sections import GraphView


@dataclass(frozen=True, kw_only=True)
class About:
    """What the publisher says of the table, in its own words; None is not stated.

    `day` is that of the release, as an ISO date. `budget` is what its dataset had left.
    """

    description: str | None = None
    intended_use: str | None = None
    publisher: str | None = None
    contact: str | None = None
    licence: str | None = None
    day: str | None = None
    budget: str | None = None


@dataclass(frozen=True, kw_only=True)
class PublicContent:
    """What the page shows. All of it stands in other files of the bundle.

    `facts` are those of `privacy/certificate.json`. `profile` has points (epsilon, delta).
    `effects` is the picture `privacy/effects.svg`. `codes` are levels of the first rows of the
    published table, shape `[rows, columns]`. `rows` is the number of rows of the whole table.
    `estimands` are those of `estimands.json`. `floors` has about the distance of another sample of
    as many real rows, for `tv1` and `tv2`. `first` names columns to show before others.
    """

    domain: Domain
    facts: Mapping[str, Any]
    profile: Sequence[tuple[float, float]]
    graph: GraphView
    tables: Sequence[NoisyCounts]
    codes: Codes
    rows: int
    about: About = field(default_factory=About)
    effects: str | None = None
    estimands: Sequence[Mapping[str, Any]] = ()
    floors: Mapping[str, float] = field(default_factory=dict)
    first: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
