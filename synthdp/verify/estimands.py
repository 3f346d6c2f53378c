"""The check of what a bundle says of its estimands: it follows from its noisy sums and its spec."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import dp_accounting

from synthdp.bundle.noisy_sums import ESTIMANDS
from synthdp.bundle.noisy_tables import read_tables
from synthdp.data.domain import Domain
from synthdp.inference.estimands import estimands_json, stated_sums
from synthdp.model.estimands import estimand_name, sums_of
from synthdp.privacy.events.kinds import event_from_json
from synthdp.privacy.events.sums import GaussianSumsDpEvent
from synthdp.privacy.mechanisms.product_sums import NoisyProducts, Sums
from synthdp.privacy.mechanisms.stratum_sums import GRID, SQUARE
from synthdp.privacy.plan import estimand_purpose
from synthdp.spec.model import TableEstimand
from synthdp.verify.reader import Check, Reader

TOLERANCE = 1e-6  # relative: another platform may round differently in the last digits


def _check_estimands(reader: Reader) -> Iterator[str]:
    """Every figure follows from the sums, and the sums have the noise that the ledger charged."""
    spec = reader.spec
    asked = {estimand_purpose(estimand_name(i)) for i in range(len(spec.estimands))}
    charged = {e.body["purpose"] for e in reader.charges}
    if paid := sorted(p for p in charged - asked if p.startswith(estimand_purpose(""))):
        yield f"spec.yaml: lacks the estimand that the ledger charged as {paid[0]!r}"
    if reader.holds(ESTIMANDS) != bool(spec.estimands):
        yield f"{ESTIMANDS}: must be there where the spec names estimands, and nowhere else"
    if not spec.estimands or not reader.holds(ESTIMANDS):
        return
    stated, domain = reader.json(ESTIMANDS), Domain.from_spec(spec.columns)
    sums = stated_sums(stated, spec, domain)
    true = json.loads(json.dumps(estimands_json(spec, domain, sums)))
    if not alike(stated, true):
        yield f"{ESTIMANDS}: its figures do not follow from its sums and the spec"
    yield from _missing_tables(reader)
    for name, value in sums.items():
        if not on_lattice(value):
            yield f"{ESTIMANDS}: sums of estimand {name} are none that its noise is rounded to"
        yield from _noise_problems(reader, name, value, domain)


def _missing_tables(reader: Reader) -> Iterator[str]:
    """Contingency tables that were paid for and are not among the noisy tables."""
    tables = {(t.columns, t.sigma) for t in read_tables(reader.folder) if not t.starts}
    for i, estimand in enumerate(reader.spec.estimands):
        if not isinstance(estimand, TableEstimand):
            continue
        purpose = estimand_purpose(estimand_name(i))
        charged = [e.body["event"] for e in reader.charges if e.body["purpose"] == purpose]
        sigmas = [sigma for c in charged if (sigma := noise_scale(event_from_json(c)))]
        if not any(
            columns == estimand.columns and math.isclose(sigma, paid, rel_tol=TOLERANCE)
            for columns, sigma in tables
            for paid in sigmas
        ):
            yield f"marginals.json: has no table of {', '.join(estimand.columns)}, of {purpose!r}"


def noise_scale(event: dp_accounting.DpEvent) -> float:
    """Noise of the counts that one charge is for; 0 where it is of something else."""
    inner = getattr(event, "event", event)
    return float(getattr(inner, "sigma", 0.0))


def _noise_problems(reader: Reader, name: str, value: Sums, domain: Domain) -> Iterator[str]:
    """Noise that is not that of the one charge for these sums."""
    purpose = estimand_purpose(name)
    events = [e.body["event"] for e in reader.charges if e.body["purpose"] == purpose]
    if len(events) != 1:
        yield f"{ESTIMANDS}: {len(events)} charges of the ledger are for {purpose!r}, not one"
        return
    estimand, charged = reader.spec.estimands[int(name) - 1], event_from_json(events[0])
    assert not isinstance(estimand, TableEstimand)
    measured = sums_of(reader.spec, domain, estimand)
    moved = reader.spec.dataset.privacy_unit.max_rows * measured.sensitivity
    sigma = getattr(charged, "noise_multiplier", math.nan) * moved
    match charged:
        case dp_accounting.GaussianDpEvent():
            covered = True
        case GaussianSumsDpEvent(replaced=replaced):
            covered = replaced >= measured.event(1).replaced * (1 - TOLERANCE)
        case _:
            covered = False
    if not covered or not math.isclose(value.sigma, sigma, rel_tol=TOLERANCE):
        yield f"{ESTIMANDS}: estimand {name} states noise of {value.sigma:.6g}, which is not paid"


def on_lattice(value: Sums) -> bool:
    """Whether sums are whole parts of `GRID`, to which their mechanism rounds them.

    >>> import numpy as np
    >>> on_lattice(NoisyProducts(np.array([1.5, -2.25]), 1.0))
    True
    >>> on_lattice(NoisyProducts(np.array([1.5, 0.1]), 1.0))
    False
    """
    if isinstance(value, NoisyProducts):
        parts = [value.sums]
    else:
        parts = [value.counts, value.sums, value.squares * SQUARE]
    return not any((part * GRID % 1).any() for part in parts)


def alike(stated: Any, true: Any) -> bool:
    """Equal, where numbers may differ in their last digits.

    >>> alike({"a": [1.0, "x"]}, {"a": [1.0 + 1e-9, "x"]}), alike([1.0], [1.1])
    (True, False)
    """
    if isinstance(stated, dict) and isinstance(true, dict):
        return stated.keys() == true.keys() and all(alike(stated[k], true[k]) for k in true)
    if isinstance(stated, list) and isinstance(true, list):
        return len(stated) == len(true) and all(map(alike, stated, true))
    if isinstance(stated, bool) or isinstance(true, bool):
        return stated is true
    if isinstance(stated, int | float) and isinstance(true, int | float):
        return math.isclose(stated, true, rel_tol=TOLERANCE, abs_tol=1e-9)
    return bool(stated == true)


ESTIMAND_CHECKS: dict[str, tuple[str, Check]] = {"estimands": (ESTIMANDS, _check_estimands)}
