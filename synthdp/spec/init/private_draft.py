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
from synthdp.spec.init.draft import Header
from synthdp.spec.writing import written

OTHER = "other"  # the category of what was not found


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
    budget = {"epsilon": request.epsilon, "delta": request.delta}
    return written("request", budget=budget, **_dataset(request, [""]))


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
    return written(
        "private",
        found=found,
        domain_from={"run": run, "epsilon": cost[0], "delta": cost[1]},
        budget=dict(zip(("epsilon", "delta"), request.left, strict=True)),
        **_dataset(request, list(missing)),
    )


def _dataset(request: Request, missing: list[str]) -> dict[str, Any]:
    """What the templates of the `dataset` section ask for."""
    return {
        "request": request,
        "other": OTHER,
        "id": request.dataset,
        "said": {"title": request.path.stem},
        "notes": request.header.notes,
        "source": request.header.source(request.path),
        "missing_values": missing,
        "unit": request.unit,
        "rows": request.rows,
        "count": int(request.rows["value"]),
    }
