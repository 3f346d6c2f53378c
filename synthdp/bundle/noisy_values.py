"""The noisy tables and sums of a bundle, written and read: `marginals.json`, `estimands.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import VerifyError
from synthdp.files import parse_json, read_text
from synthdp.graph.level_groups import LevelLaw, with_heaps
from synthdp.graph.predict import prior_used
from synthdp.graph.prior import Prior
from synthdp.privacy.mechanisms.frequent_texts import NoisyTexts
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.sums import (
    ContrastBudget,
    NoisyContrast,
    NoisyProducts,
    ProductSums,
    SumMechanism,
    Sums,
)

MARGINALS = "marginals.json"
PRIOR = "prior.json"


def tables_json(tables: Sequence[NoisyTable]) -> dict[str, Any]:
    """Noisy tables as JSON: counts flattened in C order, whole numbers where they are whole.

    `starts` names the columns that are counted on groups of levels: where each group begins.
    """
    stated = []
    for table in tables:
        counts = map(float, np.asarray(table.counts).ravel())
        starts = {name: list(s) for name, s in table.starts.items()}
        about: dict[str, Any] = {"columns": list(table.columns), "shape": list(table.counts.shape)}
        about |= {"sigma": table.sigma} | ({"starts": starts} if starts else {})
        stated.append(about | {"counts": [int(v) if v.is_integer() else v for v in counts]})
    return {"tables": stated}


def table_from_json(stated: Mapping[str, Any]) -> NoisyTable:
    """The table that `tables_json` stated.

    Raises:
        ValueError, KeyError, TypeError, OverflowError: it is none.
    """
    columns, starts = stated["columns"], stated.get("starts", {})
    if not isinstance(starts, dict) or not all(isinstance(name, str) for name in columns):
        raise TypeError("columns are texts, and starts has lists by column")
    return NoisyTable(
        tuple(columns),
        np.asarray(stated["counts"], dtype=np.float64).reshape(stated["shape"]),
        float(stated["sigma"]),
        {name: tuple(begins) for name, begins in starts.items()},
    )


def read_tables(bundle: Path) -> tuple[NoisyTable, ...]:
    """The noisy tables of a bundle.

    Raises:
        OSError, ValueError, KeyError, TypeError, OverflowError: the file cannot be read.
    """
    stated = parse_json(read_text(bundle / MARGINALS))["tables"]
    return tuple(map(table_from_json, stated))


def heaps_json(told: NoisyTexts | None) -> dict[str, Any]:
    """The heaps that were told, as a part of `marginals.json`, where they were looked for."""
    if told is None:
        return {}
    counts = {name: dict(own) for name, own in told.counts.items()}
    return {"heaps": {"sigma": told.sigma, "threshold": told.threshold, "counts": counts}}


def read_heaps(bundle: Path) -> NoisyTexts | None:
    """The heaps that were told of a bundle's rows, where they were looked for.

    Raises:
        OSError, ValueError, KeyError, TypeError: the file cannot be read.
    """
    stated = parse_json(read_text(bundle / MARGINALS)).get("heaps")
    if stated is None:
        return None
    counts = {
        str(name): {str(number): int(count) for number, count in own.items()}
        for name, own in dict(stated["counts"]).items()
    }
    if not np.isfinite([float(number) for own in counts.values() for number in own]).all():
        raise ValueError("a heap is no number")
    return NoisyTexts(counts, float(stated["sigma"]), int(stated["threshold"]))


def over_domain(table: NoisyTable, domain: Domain) -> bool:
    """Whether a table has columns of the domain, and the shape of their levels or groups."""
    if len(set(table.columns)) < len(table.columns) or not set(table.columns) <= {*domain.names}:
        return False
    if not table.starts.keys() <= set(table.columns):
        return False
    try:
        coarse = LevelGroups(domain, table.starts).coarse
    except ValueError:
        return False
    return table.counts.shape == tuple(coarse[name].levels for name in table.columns)


def level_law(bundle: Path, domain: Domain, *, margins: bool, shrunk: bool = False) -> LevelLaw:
    """What the noisy tables of a bundle say of levels, whose columns know their heaps.

    `margins` says that the law of every column will be asked for, not only of those with groups.
    It is `shrunk` to the bundle's prior where rows of the model are drawn; intervals rest on none.

    Raises:
        VerifyError: they cannot be read, or are not over the spec's columns.
    """
    foreign = VerifyError(
        f"marginals.json in {bundle} is not over the columns and levels of its spec",
        hint=f"see `synthdp verify {bundle}`",
    )
    try:
        tables, told = read_tables(bundle), read_heaps(bundle)
        prior = read_prior(bundle) if shrunk else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise VerifyError(
            f"cannot read marginals.json in {bundle}: {type(error).__name__}",
            hint=f"see `synthdp verify {bundle}`",
        ) from None
    known = {name for t in tables for name in t.columns if t.has([name])}
    grouped = {name for t in tables for name in t.starts}
    asked = domain.names if margins or grouped else ()
    fit = all(
        over_domain(t, domain) and np.isfinite(t.counts).all() and t.sigma > 0 for t in tables
    )
    if not fit or not known.issuperset({*asked, *(told.counts if told else ())}):
        raise foreign
    try:
        law = LevelLaw.of_tables(tables, with_heaps(domain, told, tables), prior)
        of_one, of_pairs = law.groups.domain, law.groups.coarse
        for names, table in prior.counts.items() if prior else ():
            levels = tuple((of_one if len(names) == 1 else of_pairs)[n].levels for n in names)
            if table.shape != levels or not table.sum() > 0:
                raise foreign
        return law
    except (KeyError, ValueError):
        raise foreign from None


# --- the prior: `prior.json` ---


def prior_json(law: LevelLaw) -> dict[str, Any]:
    """The public counts that the tables of a law were shrunk to, as `tables_json` has counts, and
    how much each was `used`: its part of what the model follows, 0 to 1.
    """
    counts, used = law.prior.counts if law.prior else {}, prior_used(law)
    stated = [
        {"columns": [*names], "shape": [*table.shape], "used": round(used[names], 6)}
        | {"counts": [*map(int, table.ravel())]}
        for names, table in counts.items()
    ]
    return {"tables": stated}


def read_prior(bundle: Path) -> Prior | None:
    """The prior of a bundle, if it has one.

    Raises:
        OSError, ValueError, KeyError, TypeError, OverflowError: the file cannot be read.
    """
    if not (bundle / PRIOR).exists():
        return None
    stated = parse_json(read_text(bundle / PRIOR))["tables"]
    return Prior(
        {
            tuple(map(str, t["columns"])): np.asarray(t["counts"], np.float64).reshape(t["shape"])
            for t in stated
        }
    )


# --- noisy sums: `estimands.json` ---


ESTIMANDS = "estimands.json"


def sums_json(sums: Mapping[str, Sums]) -> dict[str, Any]:
    """Noisy sums by estimand, as JSON: arrays flattened in C order."""
    return {name: _plain(value) for name, value in sums.items()}


def _plain(value: Sums) -> dict[str, Any]:
    if isinstance(value, NoisyProducts):
        return {"sigma": value.sigma, "products": value.sums.tolist()}
    one = value.contrast
    return {
        "sigma": value.sigma,
        "shape": list(value.counts.shape),
        "counts": value.counts.ravel().tolist(),
        "sums": value.sums.ravel().tolist(),
        "squares": value.squares.ravel().tolist(),
        **({"contrast": {"sigma": one.sigma, "sums": one.sums.tolist()}} if one else {}),
    }


def sums_from_json(
    stated: Mapping[str, Any], mechanism: SumMechanism, contrast: ContrastBudget | None = None
) -> Sums:
    """The sums that `sums_json` stated, for the mechanisms that made them.

    Raises:
        ValueError, KeyError, TypeError: they are not finite, or of other strata.
    """
    if isinstance(mechanism, ProductSums):
        arrays = {"sums": np.asarray(stated["products"], dtype=np.float64)}
    else:
        empty = (0, *mechanism.shape[1:])
        arrays = {
            name: np.asarray(stated[name], dtype=np.float64).reshape(
                mechanism.shape if name == "counts" or mechanism.number else empty
            )
            for name in ("counts", "sums", "squares")
        }
    if not all(np.isfinite(part).all() for part in arrays.values()):
        raise ValueError("sums that are not finite")
    value = mechanism.unpack(arrays)
    if isinstance(value, NoisyProducts) or contrast is None:
        return value
    found = stated["contrast"]
    sigma, sums = float(found["sigma"]), np.asarray(found["sums"], dtype=np.float64)
    if not (0 < sigma < math.inf and sums.shape == (3,) and np.isfinite(sums).all()):
        raise ValueError("not a contrast")
    return replace(value, contrast=NoisyContrast(sums, sigma))
