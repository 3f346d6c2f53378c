"""Made-up persons with visits, and their spec: for tests of linked tables."""

from typing import Any

import numpy as np
import pandas as pd

from synthdp.spec.model import LinkedSpec

EDGES = [
    "visits[-1].stage, visits[-1].drug, persons.sex -> visits.stage",
    "visits.stage, visits[-1].drug -> visits.bp",
    "visits.bp -> visits.drug",
    "visits.stage, persons.age -> visits.end",
    "visits[-1].stage -> visits.gap",
]


def linked_spec(persons: int = 400, **more: Any) -> LinkedSpec:
    """A spec of what `made_up` makes; `more` replaces whole sections."""
    return LinkedSpec.model_validate(linked_dict(persons) | more)


def linked_dict(persons: int = 400) -> dict[str, Any]:
    """The same as it is written."""
    return {
        "synthdp": 1,
        "dataset": {
            "id": "ward",
            "tables": {
                "persons": {
                    "source": {"kind": "csv", "path": "persons.csv"},
                    "key": "id",
                    "rows": {"kind": "approximate", "value": persons},
                },
                "visits": {
                    "source": {"kind": "csv", "path": "visits.csv"},
                    "of": "persons",
                    "key": "id",
                    "order": "date",
                    "at_most": 4,
                    "until": "2021-12-31",
                    "ends": {"death": "persons.death"},
                },
            },
            "privacy_unit": {"kind": "person", "meaning": "one patient with all visits"},
        },
        "columns": {
            "persons": {
                "sex": {"type": "categorical", "categories": ["F", "M"]},
                "birth": {"type": "datetime", "lower": "1930-01-01", "upper": "1999-12-31"},
                "death": {
                    "type": "datetime",
                    "lower": "2020-01-01",
                    "upper": "2021-12-31",
                    "missing": True,
                },
            },
            "visits": {
                "date": {"type": "datetime", "lower": "2020-01-01", "upper": "2021-12-31"},
                "stage": {"type": "ordinal", "categories": ["0", "1", "2"]},
                "bp": {"type": "integer", "lower": 80, "upper": 200, "bins": 24},
                "drug": {"type": "boolean"},
            },
        },
        "constraints": ["persons.birth <= visits.date", "visits.date <= persons.death"],
        "privacy": {"epsilon": 4.0, "delta": 1e-4},
        "graph": {"mode": "given", "edges": EDGES},
        "evaluation": {"targets": ["visits[+1].drug"]},
    }


def made_up(persons: int, *, seed: int = 1) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Persons and their one to seven visits: stages last, a drug lowers pressure and stage."""
    rng = np.random.default_rng(seed)
    start = np.datetime64("2020-01-01")
    people, visits = [], []
    for number in range(persons):
        sex, born = rng.choice(["F", "M"]), int(rng.integers(0, 20_000))
        stage, drug, day = int(rng.integers(0, 3)), False, int(rng.integers(0, 365))
        died = None
        for _ in range(7):
            bp = int(np.clip(120 + 12 * stage - 10 * drug + rng.normal(0, 8), 80, 200))
            drug = bool(rng.random() < 1 / (1 + np.exp(-(bp - 130) / 5)))
            visits.append((number, str(start + day), stage, bp, drug))
            if rng.random() < 0.15 + 0.1 * stage:
                died = day + int(rng.integers(0, 30)) if rng.random() < 0.4 else None
                break
            day += int(rng.integers(7, 150)) // (1 + stage)
            if day > 700:
                break
            moves = [stage - drug, stage, stage + (sex == "M")]
            stage = int(np.clip(rng.choice(moves), 0, 2))
        birth = np.datetime64("1935-01-01") + born
        people.append((number, sex, str(birth), "" if died is None else str(start + died)))
    names = [f"p{number}" for number in rng.permutation(persons)]
    table = pd.DataFrame(people, columns=["id", "sex", "birth", "death"])
    rows = pd.DataFrame(visits, columns=["id", "date", "stage", "bp", "drug"])
    for frame in (table, rows):
        frame["id"] = [names[number] for number in frame["id"]]
    texts = {"True": "true", "False": "false"}
    return table, rows.sample(frac=1, random_state=seed).astype(str).replace(texts)
