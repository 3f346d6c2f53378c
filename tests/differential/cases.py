"""Cases: specs of every mode and of everything that a spec may ask for, drawn by a seed."""

import copy
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pandas as pd
import yaml

from synthdp.errors import SpecError
from synthdp.spec import parse_spec
from tests.differential.harness import Case
from tests.differential.tables import (
    COLUMNS,
    DERIVED,
    ID,
    ODD,
    Rng,
    table_of,
    write_csv,
    write_nothing,
    write_parquet,
    write_sqlite,
)

Sections = dict[str, Any]

EDGES = ["sex -> smoker, weight", "smoker, grade -> visits"]
TRAINED = {"measure": 0.3, "train": 0.7}
TESTED = {"measure": 0.2, "graph": 0.3, "train": 0.5}
LEARN = {"edges": ["sex -> smoker"], "tiers": [["sex", "grade", "smoker", "visits"], ["weight"]]}

MODES: Mapping[str, tuple[Sections, Mapping[str, float]]] = {
    "none": ({"mode": "none"}, TRAINED),
    "given": ({"mode": "given", "edges": EDGES}, TRAINED),
    "given, with pairs": (
        {"mode": "given", "edges": EDGES},
        {"measure": 0.2, "pairs": 0.3, "train": 0.5},
    ),
    "validate": ({"mode": "validate", "edges": EDGES}, TESTED),
    "validate, drop": ({"mode": "validate", "edges": EDGES, "on_refuted": "drop"}, TESTED),
    "validate, fail": ({"mode": "validate", "edges": EDGES, "on_refuted": "fail"}, TESTED),
    "validate, rcit_pc": ({"mode": "validate", "edges": EDGES, "algorithm": "rcit_pc"}, TESTED),
    "learn": ({"mode": "learn", **LEARN}, TESTED),
    "learn, unseen causes": ({"mode": "learn", "unseen_causes": True}, TESTED),
    "learn, priv_pc": ({"mode": "learn", **LEARN, "algorithm": "priv_pc"}, TESTED),
    "learn, svt_pc": ({"mode": "learn", **LEARN, "algorithm": "svt_pc"}, TESTED),
    "learn, em_pc": ({"mode": "learn", **LEARN, "algorithm": "em_pc"}, TESTED),
    "learn, rcit_pc": (
        {"mode": "learn", "algorithm": "rcit_pc", "orient_share": 0.3},
        TESTED,
    ),
    "predict": ({"mode": "predict"}, {"measure": 0.2, "graph": 0.8, "train": 0}),
    "predict, trained": ({"mode": "predict"}, {"measure": 0.2, "graph": 0.3, "train": 0.5}),
}
"""Section `graph` and the shares of each mode."""

UNFIT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("learn, priv_pc", "learn, svt_pc", "learn, em_pc"), ("illness",)),
    "learn, rcit_pc": ("sex", "grade", "smoker", "illness", "left"),
}
"""Columns that the search of a mode is not for: it ranks values, or takes numbers alone."""

SOURCES: Mapping[str, tuple[Sections, Sections, Callable[..., None]]] = {
    "csv": ({"kind": "csv", "path": "table.csv"}, {}, write_csv),
    "parquet": ({"kind": "parquet", "path": "table"}, {}, write_parquet),
    "levels only": (
        {"kind": "parquet", "path": "table", "levels_only": True},
        {},
        write_parquet,
    ),
    "arrow": ({"kind": "parquet", "path": "table"}, {"engine": "arrow"}, write_parquet),
    "dask": ({"kind": "parquet", "path": "table"}, {"engine": "dask"}, write_parquet),
    "sqlite": (
        {"kind": "sql", "url_env": "DIFFERENTIAL_DATABASE", "query": "SELECT * FROM people"},
        {"engine": "memory"},
        write_sqlite,
    ),
    "sql engine": (
        {"kind": "sql", "url_env": "DIFFERENTIAL_DATABASE", "query": "SELECT * FROM people"},
        {"engine": "sql"},
        write_sqlite,
    ),
    "dataframe": ({"kind": "dataframe"}, {}, write_nothing),
}
"""Source, section `compute`, and what writes a table there."""

QUESTIONS = (
    "share(visits > 2)",
    "count(sex == 'male') by grade",
    "mean(weight) where smoker by sex",
    "median(visits)",
    "quantile(weight, 0.9) by sex",
)
ESTIMANDS: tuple[Sections, ...] = (
    *({"kind": "question", "ask": ask} for ask in QUESTIONS),
    {"kind": "table", "columns": ["sex", "grade"]},
    {"kind": "effect", "treated": "smoker", "outcome": "weight", "adjust": ["sex"]},
    {"kind": "regression", "outcome": "weight", "terms": ["sex", "visits"]},
)
CONSTRAINTS = ("visits <= 15", "weight > 45", "not (smoker and visits == 0)")


def _estimands(spec: Sections, rng: Rng) -> None:
    chosen = rng.choice(len(ESTIMANDS), int(rng.integers(1, 4)), replace=False)
    spec["estimands"] = [ESTIMANDS[i] for i in chosen]
    spec["privacy"]["epsilon"] = 12.0  # with less, plans are refused that would answer nothing
    spec["privacy"]["shares"]["estimands"] = 0.1
    spec["privacy"]["shares"]["measure"] -= 0.1


def _targets(spec: Sections, rng: Rng) -> None:
    spec["synthesizer"]["targets"] = ["smoker"]
    spec["privacy"]["shares"]["targets"] = 0.1
    spec["privacy"]["shares"]["train"] -= 0.1


def _evaluated(spec: Sections, rng: Rng) -> None:
    spec["evaluation"] = {
        "holdout": 0.2,
        "targets": ["smoker"],
        "classifiers": ["logistic"],
        "triples": 2,
        "effects": [{"treated": "smoker", "outcome": "weight", "adjust": ["sex"]}],
    }


def _scored(spec: Sections, rng: Rng) -> None:
    _evaluated(spec, rng)
    spec["evaluation"]["disclosure"] = "private"


def _gated(spec: Sections, rng: Rng) -> None:
    """Gates that hold, and one of a released figure that may fail."""
    spec["gates"] = [{"metric": "tv1_noisy", "at_most": float(rng.choice([0.01, 1.0]))}]
    if spec["evaluation"].get("enabled", True):
        spec["gates"].append({"metric": "tv2", "at_most": 1.0, "outside_guarantee": True})


def _interacting(spec: Sections, rng: Rng) -> None:
    """So much epsilon that mode predict looks for what acts on a target together."""
    spec["privacy"]["epsilon"] = 10_000 / spec["dataset"]["rows"]["value"]
    spec["evaluation"]["targets"] = ["smoker"]


def _attacked(spec: Sections, rng: Rng) -> None:
    spec["attacks"]["membership"] = {"rows": 20, "pairs": 4, "steps": 2}


def _sampled(spec: Sections, rng: Rng) -> None:
    spec["synthesizer"]["sample"] = 60


def _constrained(spec: Sections, rng: Rng) -> None:
    spec["constraints"] = [CONSTRAINTS[i] for i in range(len(CONSTRAINTS)) if rng.random() < 0.6]


def _derived(spec: Sections, rng: Rng) -> None:
    spec["columns"] |= copy.deepcopy(DERIVED)


def _of_ids(spec: Sections, rng: Rng) -> None:
    spec["dataset"]["privacy_unit"] = {
        "kind": "id",
        "column": ID,
        "max_rows": int(rng.choice([1, 2, 4])),
        "meaning": "one person",
    }


def _of_one_replaced(spec: Sections, rng: Rng) -> None:
    spec["privacy"]["adjacency"] = "replace_one"


def _public_rows(spec: Sections, rng: Rng) -> None:
    spec["dataset"]["rows"]["kind"] = "public"


def _refusing(spec: Sections, rng: Rng) -> None:
    spec["dataset"]["out_of_domain"] = "refuse"


OPTIONS: Mapping[str, tuple[float, Callable[[Sections, Rng], None]]] = {
    "estimands": (0.3, _estimands),
    "targets": (0.2, _targets),
    "evaluation": (0.15, _evaluated),
    "dp scores": (0.1, _scored),
    "gates": (0.2, _gated),
    "attack": (0.02, _attacked),
    "interactions": (0.1, _interacting),
    "secret sample": (0.1, _sampled),
    "constraints": (0.3, _constrained),
    "derived": (0.3, _derived),
    "ids": (0.3, _of_ids),
    "replace one": (0.15, _of_one_replaced),
    "public rows": (0.1, _public_rows),
    "refuse": (0.1, _refusing),
}
"""How often each is asked for, and what it changes in a spec."""

ROWS = (0, 1, 2, 40, 120, 300)


def skeleton(mode: str, source: str, *, declared: int) -> Sections:
    """The smallest spec of a mode and a source."""
    graph, shares = MODES[mode]
    read, compute, _ = SOURCES[source]
    return copy.deepcopy(
        {
            "synthdp": 1,
            "dataset": {
                "id": "people",
                "source": read,
                "privacy_unit": {"kind": "row", "meaning": "one person"},
                "rows": {"kind": "approximate", "value": declared},
                "out_of_domain": "clamp",
            },
            "columns": COLUMNS,
            "privacy": {"epsilon": 2.0, "delta": 1e-5, "shares": dict(shares)},
            "graph": graph,
            "synthesizer": {"steps": 3, "batch": 16, "hidden": 4, "latent": 2},
            "sampling": {"rows": 60, "oversample": 2},
            "evaluation": {"enabled": False},
            "attacks": {"membership": {"enabled": False}},
            "tracking": {"enabled": False},
            "compute": {"threads": 1, **compute},
        }
    )


def case_of(
    mode: str, source: str, options: list[str], rng: Rng, *, rows: int
) -> tuple[Case, pd.DataFrame] | None:
    """A case and its first table; None where a spec may not ask for all of that together."""
    declared = max(rows, 40)
    spec = skeleton(mode, source, declared=declared)
    for option in options:
        OPTIONS[option][1](spec, rng)
    spec["columns"] = {n: c for n, c in spec["columns"].items() if n not in UNFIT.get(mode, ())}
    if spec["dataset"]["rows"]["kind"] == "public":
        spec["dataset"]["rows"]["value"] = rows
    text = yaml.safe_dump(spec, sort_keys=False)
    if not _valid(text):
        return None
    first = table_of(rows, rng, ids="ids" in options)
    kept = [n for n in first if n == ID or n in spec["columns"]]
    name = ", ".join([mode, source, *options, f"{rows} rows"])
    if "refuse" in options and rng.random() < (rows > 0) * 0.3:  # so are its neighbours
        first.iloc[-1] = pd.Series({**ODD["misfits"](rng), ID: 0}).reindex(first.columns)
    write, given = SOURCES[source][2], source == "dataframe"
    return Case(name, spec, write, mode=mode, given=given), first[kept]


@cache
def _valid(text: str) -> bool:
    try:
        parse_spec(text, path="spec.yaml")
    except SpecError:
        return False
    return True


def drawn(rng: Rng) -> tuple[Case, pd.DataFrame]:
    """A case of any mode, source and options, and its first table."""
    sources = [source for source in SOURCES if source != "dask"]  # which takes seconds
    mode = str(rng.choice(list(MODES)))
    while True:
        source = str(rng.choice(sources))
        options = [name for name, (chance, _) in OPTIONS.items() if rng.random() < chance]
        rows = int(rng.choice(ROWS, p=[0.02, 0.04, 0.04, 0.3, 0.3, 0.3]))
        found = case_of(mode, source, options, rng, rows=rows)
        if found is not None:
            return found
