"""The bundle's public report, made of the bundle's other files and of nothing else.

It takes a folder and no values: whatever is not published cannot get into it. `verify` makes it
again and compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from synthdp.bundle.descriptions import Strength, arrow_strengths
from synthdp.bundle.noisy_values import ESTIMANDS, read_tables
from synthdp.bundle.table_files import CSV_NAME, check_header
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode_column
from synthdp.data.kinds import column_kind
from synthdp.evaluate.fidelity import sampling_floor
from synthdp.files import check_plain, parse_json, read_text
from synthdp.graph.causal import CausalGraph
from synthdp.graph.level_groups import groups_of, on_groups
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.scores import compared
from synthdp.report.public.content import About, PublicContent
from synthdp.report.public.page import render_public
from synthdp.report.sections import GraphView, budget_left
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec

REPORT, EFFECTS = "report.html", "privacy/effects.svg"
MAX_ROWS = 100_000  # of the table; their order is random, so the first are a fair sample


def public_report(folder: Path) -> str:
    """The page's text for the bundle in `folder`. Raises what `public_content` does."""
    return render_public(public_content(folder))


def public_content(folder: Path) -> PublicContent:
    """The content of the page: spec, certificate, profile, graph, noisy tables and first rows.

    Raises:
        OSError, ValueError, KeyError, TypeError, SpecError, VerifyError: one of these files is not
        what it should be.
    """
    spec = parse_spec(read_text(folder / "spec.yaml"), path="spec.yaml")
    domain, tables = Domain.from_spec(spec.columns), read_tables(folder)
    groups = groups_of(tables, domain)
    codes = published_levels(folder / CSV_NAME, domain, header=tuple(spec.columns))
    graph = parse_json(read_text(folder / "graph.json"))
    facts = parse_json(read_text(folder / "privacy/certificate.json"))
    profile = parse_json(read_text(folder / "privacy/profile.json"))["points"]
    return PublicContent(
        domain=groups.coarse,
        facts=facts,
        about=_about(folder, spec),
        effects=read_text(folder / EFFECTS),
        profile=[(float(p["epsilon"]), float(p["delta"])) for p in profile],
        graph=_graph_view(graph, spec),
        tables=[on_groups(table, groups) for table in tables],
        codes=groups.of(codes),
        rows=spec.sampling.rows or 0,
        estimands=_estimands(folder, spec),
        floors=_floors(
            codes, domain, drawn=spec.sampling.rows or 1, real=max(1, int(facts["rows"]))
        ),
        first=spec.evaluation.targets,
        notes=tuple(
            f"Every synthetic row fulfils the constraint {text}" for text in spec.constraints
        ),
    )


def _about(folder: Path, spec: ReleaseSpec) -> About:
    """What the publisher says, and the day of the run's last ledger entry."""
    stated, publication = spec.dataset, spec.publication
    ledger = parse_json(read_text(folder / "privacy/ledger.json"))
    entries, balance = ledger["entries"], ledger["balance"]
    return About(
        description=stated.description,
        intended_use=publication.intended_use if publication else None,
        publisher=", ".join(c.name for c in publication.curators) if publication else None,
        contact=stated.contact,
        licence=stated.licence,
        day=str(entries[-1]["at"])[:10] if entries else None,
        budget=budget_left(spec.privacy.epsilon, balance["epsilon"], balance["cap_epsilon"]),
    )


def _floors(codes: Codes, domain: Domain, *, drawn: int, real: int) -> dict[str, float]:
    """How far another sample of as many real rows would be, by the scores that compare tables."""
    return {
        name: round(sampling_floor(codes, domain, tables, first=drawn, second=real), 6)
        for name, tables in compared(domain).items()
    }


def _estimands(folder: Path, spec: ReleaseSpec) -> Sequence[Mapping[str, Any]]:
    """What the bundle states of its estimands; nothing where the spec names none."""
    if not spec.estimands:
        return ()
    stated: Sequence[Mapping[str, Any]] = parse_json(read_text(folder / ESTIMANDS))["estimands"]
    return stated


def _graph_view(stated: Mapping[str, Any], spec: ReleaseSpec) -> GraphView:
    return GraphView.of(CausalGraph.from_json(stated), spec.graph.mode, stated.get("validation"))


def link_strengths(
    folder: Path, spec: ReleaseSpec, graph: CausalGraph, tables: Sequence[NoisyTable]
) -> tuple[Strength, ...]:
    """How strong the graph's links are in the first rows of the bundle's table."""
    if not any(edge.structural for edge in graph.edges):
        return ()
    domain = Domain.from_spec(spec.columns)
    codes = published_levels(folder / CSV_NAME, domain, header=tuple(spec.columns))
    return arrow_strengths(graph, codes, domain, tables)


def published_levels(path: Path, domain: Domain, *, header: Sequence[str]) -> Codes:
    """Levels of the modelled columns of a published table: `[rows, columns]`.

    Only the first `MAX_ROWS` rows are read.
    """
    check_plain(path)
    check_header(path, header)
    frame = pd.read_csv(
        path,
        nrows=MAX_ROWS,
        dtype=str,
        keep_default_na=False,
        na_filter=False,
        encoding="utf-8",
        index_col=False,
    )
    return np.column_stack(
        [encode_column(c, column_kind(c).parsed(c, frame[c.name])).codes for c in domain.columns]
    )
