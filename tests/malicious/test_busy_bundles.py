"""Small bundles that were made to keep `verify` busy: refused in ten seconds of processor time."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from synthdp.ledger import entry_hash
from synthdp.privacy.plan import Spend, spends_digest

pytestmark = pytest.mark.check

LEDGER, CERTIFICATE = "privacy/ledger.json", "privacy/certificate.json"
SECONDS, MAX_BYTES = 10, 150_000
Event = dict[str, Any]


def repeated(count: int, inner: Event) -> Event:
    return {"event": "repeated", "count": count, "of": inner}


def training(steps: int, *, rate: float = 0.05, noise: float = 1.5) -> Event:
    return repeated(
        steps,
        {
            "event": "poisson_sampled",
            "rate": rate,
            "of": {"event": "gaussian", "noise_multiplier": noise},
        },
    )


def counts(tables: int, sigma: float) -> Event:
    return repeated(tables, {"event": "discrete_gaussian", "sigma": sigma, "sensitivity": 1})


def planned(bundle: Path, events: list[Event], *, groups: int = 3) -> None:
    """A plan of `events`, charged and chained as a release would."""
    spends = [Spend(purpose=f"look {i}", mechanism="m", event=e) for i, e in enumerate(events)]
    ledger = json.loads((bundle / LEDGER).read_text())
    first, *charges, last = ledger["entries"]
    first["body"]["plan_sha256"] = spends_digest(spends)
    last["body"]["charges"] = len(spends)
    entries = [
        first,
        *({**charges[0], "seq": 10 + 2 * i, "body": s.model_dump()} for i, s in enumerate(spends)),
        {**last, "seq": 10_000},
    ]
    for entry in entries:
        entry["hash"] = entry_hash(**{k: v for k, v in entry.items() if k != "hash"})
    (bundle / LEDGER).write_text(json.dumps({**ledger, "entries": entries}))
    facts = json.loads((bundle / CERTIFICATE).read_text())
    facts["planned"] = [s.model_dump() for s in spends]
    facts["groups"] = [{**facts["groups"][0], "size": size} for size in range(1, groups + 1)]
    (bundle / CERTIFICATE).write_text(json.dumps(facts))


PLANS: dict[str, tuple[list[Event], int]] = {
    "two hundred trainings": ([training(800 + i) for i in range(200)], 10),
    "six trainings": ([training(800 + i, rate=0.01) for i in range(6)], 10),
    "five trainings": ([training(40, rate=0.001 * i) for i in range(1, 6)], 3),
    "nine million tables": ([counts(9_000_000, 2e5)], 3),
    "three times nine million tables": ([counts(9_000_000 + i, 2e5) for i in range(3)], 3),
    "two hundred times nine million tables": ([counts(9_000_000 + i, 2e5) for i in range(200)], 3),
    "five times twenty thousand tables": ([counts(20_000 + i, 2e5) for i in range(5)], 3),
    "ten million steps": ([training(10_000_000, rate=0.0002, noise=2.0)], 3),
    "steps without noise": ([training(10, rate=0.5, noise=0.1)], 3),
    "a step that hardly ever looks, without noise": ([training(40, rate=1e-9, noise=1e-3)], 3),
    "four hundred kinds of tables": (
        [{"event": "all", "of": [counts(50, 1e5 + i) for i in range(150)]} for _ in range(3)],
        3,
    ),
    "ten million answers": (
        [repeated(10_000_000, {"event": "noisy_max", "scale": 1e9, "sensitivity": 1, "rows": 1})],
        3,
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_no_plan_keeps_verify_busy(
    synthdp: Callable[..., Any],
    figure: Callable[..., None],
    mend: Callable[[Path], None],
    bundle: Path,
    name: str,
) -> None:
    """The bundle's own spec bounds purposes, steps, tables, loss and groups."""
    events, groups = PLANS[name]
    planned(bundle, events, groups=groups)
    mend(bundle)
    assert (bundle / LEDGER).stat().st_size + (bundle / CERTIFICATE).stat().st_size < MAX_BYTES
    ended = synthdp("verify", bundle, megabytes=1500, seconds=SECONDS)
    assert ended.code == 6 and ended.declared and "problem" in ended.printed, (
        ended.code,
        ended.printed[-3000:],
    )
    figure("bad inputs refused with the declared error", 1, 1)


@pytest.mark.parametrize("columns", [150, pytest.param(600, marks=pytest.mark.slow)])
def test_no_graph_keeps_verify_busy(
    synthdp: Callable[..., Any], mend: Callable[[Path], None], bundle: Path, columns: int
) -> None:
    """A chain of columns implies an independence for nearly every pair."""
    spec = yaml.safe_load((bundle / "spec.yaml").read_text())
    names = [f"c{i:03}" for i in range(columns)]
    spec["columns"] = {n: {"type": "boolean"} for n in names}
    spec["graph"] = {
        "mode": "validate",
        "edges": [f"{a} -> {b}" for a, b in itertools.pairwise(names)],
    }
    spec["privacy"] |= {"shares": {"measure": 0.2, "graph": 0.2, "train": 0.6}}
    (bundle / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    claims = [
        {"kind": "independence", "x": a, "y": b, "given": [names[1]], "status": "supported"}
        for a, b in zip(names, names[2:], strict=False)
    ]
    edges = [
        {"from": a, "to": b, "directed": True, "provenance": "given"}
        for a, b in itertools.pairwise(names)
    ]
    found = {
        "counts": {
            k: dict.fromkeys(("supported", "refuted", "undecided"), 0)
            for k in ("arrow", "independence")
        },
        "findings": claims,
        "untested": [],
    }
    (bundle / "graph.json").write_text(
        json.dumps(
            {"nodes": names, "edges": edges, "groups": {}, "latent": [], "validation": found}
        )
    )
    assert (bundle / "spec.yaml").stat().st_size + (
        bundle / "graph.json"
    ).stat().st_size < 3 * MAX_BYTES
    mend(bundle)
    ended = synthdp("verify", bundle, megabytes=1500, seconds=SECONDS)
    assert (
        ended.code == 6
        and ended.declared
        and "graph.json: validation: holds a claim" in ended.printed
    ), (ended.code, ended.printed[-3000:])
