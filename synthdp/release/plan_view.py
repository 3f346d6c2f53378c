"""What `synthdp plan` shows: spends, the ledger before and after, expected cost. No row is read.

Composing a plan takes seconds, most of them for importing the accountant. So its facts are
remembered in the user's cache folder, by everything that they follow from. They follow from the
spec alone and are public. Nothing that spends, certifies or verifies reads them (an import contract
says so): a release always composes its plan anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import synthdp
from synthdp.files import parse_json, read_text
from synthdp.ledger.balance import Balance
from synthdp.ledger.connect import cap_of
from synthdp.spec.model import ReleaseSpec

REMEMBERED = 64  # plans that are kept
PLANNED_BY = ("dp-accounting", "numpy", "scipy")
KEYS = {"epsilon", "delta", "epsilon_spent", "adjacency", "rows_per_unit", "spends"}
SPEND_KEYS = {"purpose", "mechanism", "epsilon_alone", "event", "serves"}


def plan_facts(spec: ReleaseSpec, balance: Balance) -> dict[str, Any]:
    """The plan, what the ledger has (`balance`) and will have, and about what a release costs.

    Raises:
        BudgetError: the accountant cannot resolve the spec's budget.
        SpecError: no row of the domain fulfils a constraint.
    """
    steps, batch = spec.synthesizer.steps, spec.synthesizer.batch
    rows = spec.sampling.rows or spec.dataset.rows.value
    cells = len(spec.modelled) * spec.synthesizer.hidden
    return spends_of(spec) | {
        "dataset": spec.dataset.id,
        "ledger": {
            "spent_before": balance.epsilon,
            "spent_after": balance.epsilon + spec.privacy.epsilon,
            "cap": balance.cap_epsilon
            if balance.cap_epsilon is not None
            else (cap_of(spec) or (None,))[0],
        },
        # Measured on Adult (14 columns): 25 ms for a step of 1024 rows, 3 us for a sampled row, 5 s
        # for all the rest.
        "expected": {
            "cpu_seconds": round(
                steps * batch * cells * 5.4e-8
                + rows * spec.sampling.oversample * len(spec.modelled) * 2e-7
                + 5,
                1,
            ),
            "memory_mb": round(
                700 + 3 * rows * spec.sampling.oversample * len(spec.modelled) * 8e-6
            ),
        },
    }


def spends_of(spec: ReleaseSpec) -> dict[str, Any]:
    """Every planned spend with its event and its epsilon alone: remembered, or composed now."""
    file = _folder() / f"{_key(spec)}.json"
    found = _remembered(file)
    if found is None:
        found = _composed(spec)
        _remember(file, found)
    return found


def _composed(spec: ReleaseSpec) -> dict[str, Any]:
    from synthdp.data.domain import Domain
    from synthdp.model.planning import plan_for, serves

    plan = plan_for(spec, Domain.from_spec(spec.columns))
    facts = plan.to_json()
    return facts | {
        "spends": [
            s | {"serves": list(serves(spend))}
            for s, spend in zip(facts["spends"], plan.spends, strict=True)
        ]
    }


# --- what is remembered ---


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "synthdp" / "plans"


def _key(spec: ReleaseSpec) -> str:
    """Digest of all that a plan follows from: the spec, the accountant's libraries, and this
    program's own files.
    """
    said = {
        "spec": spec.model_dump(mode="json"),
        "by": [version(name) for name in PLANNED_BY],
        "program": list(_program()),
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _program() -> Iterator[tuple[str, int, int]]:
    root = Path(synthdp.__file__).parent
    for path in sorted(root.rglob("*.py")):
        seen = path.stat()
        yield path.relative_to(root).as_posix(), seen.st_size, seen.st_mtime_ns


def _remembered(file: Path) -> dict[str, Any] | None:
    """The facts in a file of the cache; None where there are none, or they were damaged."""
    try:
        found = parse_json(read_text(file))
        complete = set(found) == KEYS and all(set(s) == SPEND_KEYS for s in found["spends"])
    except (OSError, ValueError, TypeError):
        return None
    return dict(found) if complete else None


def _remember(file: Path, facts: dict[str, Any]) -> None:
    """Keep `facts`; a cache that cannot be written is none."""
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as text:
            text.write(json.dumps(facts, allow_nan=False))
        os.replace(draft, file)
        kept = sorted(file.parent.glob("*.json"), key=lambda p: p.stat().st_mtime, reverse=True)
        for old in kept[REMEMBERED:]:
            old.unlink(missing_ok=True)
