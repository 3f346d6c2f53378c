"""What an engine cannot do is told when a spec is validated, with what to do instead."""

from typing import Any

import pytest

from synthdp.errors import SpecError
from synthdp.spec import check, fill_defaults
from tests.builders import build_spec

COLUMNS = {"x": {"type": "boolean"}, "n": {"type": "integer", "lower": 0, "upper": 9}}
PARQUET = {"kind": "parquet", "path": "t.parquet"}
SQL = {"kind": "sql", "url_env": "DB_URL", "query": "select x, n from t"}
ID = {"kind": "id", "column": "id", "max_rows": 2, "meaning": "one person"}
QUIET: dict[str, Any] = {
    "evaluation": {"enabled": False},
    "attacks": {"membership": {"enabled": False}},
    "graph": {"mode": "predict"},
}


def spec(engine: str, source: dict[str, Any] = PARQUET, **sections: Any) -> Any:
    unit = sections.pop("unit", {"kind": "row", "meaning": "one person"})
    address = sections.pop("address", None)
    own = {
        "dataset": {
            "id": "d",
            "source": source,
            "privacy_unit": unit,
            "rows": {"kind": "approximate", "value": 1000},
        },
        "compute": {"engine": engine, **({"address": address} if address else {})},
    }
    return build_spec(COLUMNS, **{**QUIET, **own, **sections})


@pytest.mark.parametrize(
    "good",
    [
        spec("arrow"),
        spec("dask", unit=ID),
        spec("dask", address="tcp://127.0.0.1:8786"),
        spec("sql", SQL, unit=ID),
        spec("auto", PARQUET | {"path": "data/*.parquet"}),
        spec("auto", PARQUET | {"path": "s3://bucket/people/"}),
        spec("memory", evaluation={"enabled": True}),
        spec("arrow", graph={"mode": "given", "edges": ["x -> n"]}),
        spec("arrow", evaluation={"enabled": True, "holdout": 0}),
        spec("dask", evaluation={"enabled": True, "targets": ["x"]}),
        spec(
            "dask",
            unit=ID,
            evaluation={"enabled": True, "holdout": 0, "disclosure": "private"},
            gates=[{"metric": "tv1_dp", "at_most": 0.2}],
        ),
        spec("arrow", estimands=[{"kind": "question", "ask": "mean(n) by x"}]),
        spec("dask", unit=ID, estimands=[{"kind": "regression", "outcome": "n", "terms": ["x"]}]),
        spec("sql", SQL, estimands=[{"kind": "table", "columns": ["x", "n"]}]),
        spec(
            "arrow",
            graph={"mode": "learn", "algorithm": "rcit_pc"},
            privacy={
                "epsilon": 1.0,
                "delta": 1e-5,
                "shares": {"measure": 0.2, "graph": 0.3, "train": 0.5},
            },
        ),
    ],
)
def test_what_an_engine_can_do(good: Any) -> None:
    filled = fill_defaults(good)
    assert check(filled) is filled


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (lambda: spec("arrow", SQL), "counts a source of kind parquet"),
        (lambda: spec("sql"), "counts a source of kind sql"),
        (lambda: spec("arrow", PARQUET | {"levels_only": True}), "keeps nothing"),
        (lambda: spec("memory", PARQUET | {"path": "t*"}), "memory reads a local file"),
        (lambda: spec("arrow", unit=ID), "dask, which brings"),
        (
            lambda: spec("sql", SQL, evaluation={"enabled": True, "holdout": 0}),
            "engine sql gives counts, and no rows, and judging reads some",
        ),
        (
            lambda: spec(
                "arrow", graph={"mode": "learn", "algorithm": "rcit_pc", "orient_share": 0.3}
            ),
            "rcit_pc orients links by them",
        ),
        (
            lambda: spec("sql", SQL, estimands=[{"kind": "question", "ask": "mean(n) by x"}]),
            "engine sql counts levels, and this estimand adds up values",
        ),
        (
            lambda: spec("sql", SQL, graph={"mode": "given", "edges": ["x -> n"]}),
            "trains on all rows",
        ),
        (
            lambda: spec("sql", SQL, attacks={"membership": {"enabled": True, "rows": 100}}),
            "the attack reads them",
        ),
        (lambda: spec("auto", PARQUET | {"path": "ftp://h/t.parquet"}), "an address or a home"),
        (lambda: spec("auto", PARQUET | {"path": "http://h.example/t"}), "an address or a home"),
        (lambda: spec("auto", PARQUET | {"path": "https://u:p@h/t.parquet"}), "passwords and keys"),
        (lambda: spec("auto", PARQUET | {"path": "https://h/t?sig=s"}), "passwords and keys"),
    ],
)
def test_what_it_cannot_do(bad: Any, told: str) -> None:

    with pytest.raises(SpecError, match=told):
        check(fill_defaults(bad()))


def test_duckdb_is_no_engine_any_more() -> None:
    told = "let what a file says of a whole column decide how one row is read.*arrow for files"
    with pytest.raises(ValueError, match=told):
        spec("duckdb")


def test_an_address_belongs_to_dask() -> None:
    with pytest.raises(ValueError, match="neither backend nor engine is dask"):
        spec("arrow", address="tcp://127.0.0.1:8786")
