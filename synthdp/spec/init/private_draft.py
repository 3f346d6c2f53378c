"""A draft spec whose types, bounds and categories were found under differential privacy.

`synthdp init --private` finds them (`synthdp.release.private_init`); this module only writes. It
also writes the spec under which that run itself reserves its budget: the same dataset, ledger and
cap, with columns that have no types yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synthdp.spec.checks.budget import suggested_delta
from synthdp.spec.init.draft import GRAPH, Header
from synthdp.spec.writing import dataset_lines, evaluation_lines, yaml_map, yaml_value

OTHER = "other"  # the category of what was not found
_OPENING = """\
# Draft of a synthdp spec. Types, bounds and categories were found in the rows under differential privacy, by
# `synthdp init --private`, and are paid for; what is known from a codebook is better, and may replace them.
# What was not found is not hidden but lost: rare texts are read as the category '{other}', numbers beyond a bound
# as that bound. What a column is expected to lose is said beside it.
# See the spend of a release with `synthdp plan`, then run `synthdp release`.
synthdp: 1
"""  # noqa: E501
_COLUMNS = """\
# One entry per column of the table. One that must not be released is taken out of the file: a column that is not listed
# is refused. A bound or a category that is changed here must come from a codebook, never from the rows.
columns:"""  # noqa: E501
_LOST = """\
  # Rows hold values that were not found: they count as the first category, or as the nearest bound.
  out_of_domain: clamp"""
_FOUND_IN = """\
  # The run that found types, bounds and categories, and what all such runs reserved in the same ledger.
  domain_from:"""  # noqa: E501


@dataclass(frozen=True)
class FoundColumn:
    """One column as it was found: its entry in the spec, what was found in words, and the share of
    rows that it is expected to lose, with the standard error of that.
    """

    name: str
    entry: Mapping[str, Any]
    found: str
    lost: float
    error: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON for `--json`."""
        return {
            "column": self.name,
            "entry": dict(self.entry),
            "found": self.found,
            "expected_loss": round(self.lost, 4),
            "standard_error": round(self.error, 4),
        }


@dataclass(frozen=True)
class Request:
    """What `synthdp init --private` is asked for; all of it is public.

    `path` is the CSV file as seen from the draft's folder, `columns` those of its `header` without
    the id. `epsilon` and `delta` are for finding, `cap` for all that the dataset may spend.
    """

    path: Path
    header: Header
    columns: tuple[str, ...]
    dataset: str
    unit: Mapping[str, Any]
    rows: Mapping[str, Any]
    epsilon: float
    delta: float
    cap: tuple[float, float]
    ledger: str | None = None

    @property
    def left(self) -> tuple[float, float]:
        """Epsilon and delta that the cap leaves for a release: at most 1, and the usual delta."""
        usual = 1.0, float(suggested_delta(int(self.rows["value"])))
        spent = self.epsilon, self.delta
        epsilon, delta = (
            min(most, float(f"{(cap - own) * (1 - 1e-5):.6g}"))
            for most, cap, own in zip(usual, self.cap, spent, strict=True)
        )
        return epsilon, delta


def request_spec(request: Request) -> str:
    """The spec of the run that finds the columns: each may hold anything."""
    entry = yaml_map({"type": "categorical", "categories": [OTHER]}, 4)
    lines = ["synthdp: 1", *_dataset(request, [""]), "columns:"]
    lines += [line for name in request.columns for line in (f"  {yaml_value(name)}:", *entry)]
    lines += _privacy(request, request.epsilon, request.delta)
    return "\n".join([*lines, GRAPH, *evaluation_lines(int(request.rows["value"]))]) + "\n"


def private_draft(
    request: Request,
    found: Sequence[FoundColumn],
    *,
    run: str,
    cost: tuple[float, float],
    missing: Sequence[str],
) -> str:
    """The draft, as YAML text. `run` found the columns, at the `cost` (epsilon and delta) of all
    searches of the dataset; `missing` are the words for no value.
    """
    opening = _OPENING.format(other=OTHER)
    domain_from = {"run": run, "epsilon": cost[0], "delta": cost[1]}
    lines = [opening, *_dataset(request, list(missing)), _LOST, _FOUND_IN]
    lines += [*yaml_map(domain_from, 4), "", _COLUMNS]
    for column in found:
        share = f"{100 * column.lost:.1f}% of rows, +- {100 * column.error:.1f}%"
        note = f"# found at epsilon {request.epsilon:g}: {column.found}; expected loss {share}"
        lines += [f"  {yaml_value(column.name)}:  {note}", *yaml_map(dict(column.entry), 4)]
    lines += ["", *_privacy(request, *request.left), GRAPH]
    return "\n".join([*lines, *evaluation_lines(int(request.rows["value"]))]) + "\n"


def _dataset(request: Request, missing: list[Any]) -> list[str]:
    source = request.header.source(request.path) | {"missing_values": missing}
    return dataset_lines(
        request.path,
        source,
        request.unit,
        request.rows,
        name=request.dataset,
        notes=request.header.notes,
    )


def _privacy(request: Request, epsilon: float, delta: float) -> list[str]:
    cap = f"{{epsilon: {request.cap[0]}, delta: {request.cap[1]}}}"
    ledger = [] if request.ledger is None else [f"  ledger: {yaml_value(request.ledger)}"]
    budget = yaml_map({"epsilon": epsilon, "delta": delta}, 2)
    return ["privacy:", *budget, f"  cap: {cap}  # of all runs of this dataset", *ledger]
