"""The checks of a bundle of persons with visits: plan, noisy tables, model, and both tables.

What does not depend on the kind of tables is that of one table: folder, sums, ledger, certificate,
signature. The plan is made again from the spec, so that the noise of each look, and the most rows
of a person that it was set for, are those of the spec's `at_most`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.bundle.certificate import Certificate
from synthdp.bundle.content import MODEL_FILES, REPORT
from synthdp.bundle.descriptions import DEPLOYMENT, public_spec
from synthdp.bundle.linked import (
    LAWS,
    LinkedBundle,
    LinkedCertificate,
    as_one,
    certify_linked,
    persons_of,
    table_files,
    written_columns,
)
from synthdp.bundle.linked_files import LINKED_DERIVED, linked_files
from synthdp.bundle.noisy_values import ESTIMANDS, MARGINALS, sums_from_json
from synthdp.data.domain import Domain
from synthdp.data.encoding import to_numbers
from synthdp.data.kinds import column_kind
from synthdp.data.visits import VisitFrame
from synthdp.errors import VerifyError
from synthdp.files import read_text
from synthdp.inference.visit_effects import estimands_json
from synthdp.model.visits.planning import plan_linked
from synthdp.privacy.plan import MOMENTS, ReleasePlan
from synthdp.spec.load.loader import parse_any
from synthdp.spec.model import LinkedSpec, ReleaseSpec
from synthdp.verify.content import outside_told, parts_of
from synthdp.verify.reader import Check, PlanLimits, Reader, wrong
from synthdp.verify.rewritten import (
    alike,
    by_others,
    check_deployment,
    check_profile,
    parquet_problems,
)

Floats = npt.NDArray[np.float64]


@dataclass
class LinkedReader(Reader):
    """The bundle of linked tables while it is read; `spec` is what parts for one table ask."""

    states, derived = LinkedCertificate, LINKED_DERIVED

    @cached_property
    def linked(self) -> LinkedSpec:
        """The spec. Whoever asks for it has seen that it can be read."""
        spec = parse_any(read_text(self.folder / "spec.yaml"), path="spec.yaml")
        assert isinstance(spec, LinkedSpec)
        return spec

    @property
    def spec(self) -> ReleaseSpec:
        """The spec, as parts for one table ask of it."""
        return as_one(self.linked)

    @cached_property
    def frame(self) -> VisitFrame:
        """The public frame of the spec."""
        return VisitFrame.from_spec(self.linked)

    @cached_property
    def plan(self) -> ReleasePlan:
        """The plan that the spec makes."""
        return plan_linked(self.linked, self.frame)

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that a bundle of the spec must have, but for its sums."""
        return linked_files(self.linked)

    @cached_property
    def limits(self) -> PlanLimits:
        """Upper limits of a plan of the spec."""
        columns = sum(len(domain) for domain in self.frame.views.values())
        return PlanLimits(
            rows=self.frame.most,
            purposes=len(self.plan.spends),
            steps=0,
            tables=columns + 4,  # of single columns, and of numbers and ends
            answers=0,
            sample=1.0,
            loss=10 * self.linked.privacy.epsilon + 10,
        )

    @cached_property
    def bundle(self) -> LinkedBundle | None:
        """What the bundle states; None where its certificate could not be read."""
        if self.certificate is None:
            return None
        return LinkedBundle(self.folder, self.spec, self.certificate, self.day, self.linked)

    def certified(self, **facts: Any) -> Certificate:
        """The certificate that follows from the spec and `facts`."""
        return certify_linked(self.linked, self.plan, **facts)

    def from_rows(self) -> set[str]:
        """The files that came out of rows, and need receipts."""
        tables = [file for pair in table_files(self.linked).values() for file in pair]
        arrows = {"graph.json", "graph.svg"} if self.linked.graph.mode == "predict" else set()
        paid = {ESTIMANDS} if self.linked.estimands else set()
        return {MARGINALS, *MODEL_FILES, REPORT, *tables, *arrows, *paid}


# --- spec and plan ---


def _check_spec(reader: LinkedReader) -> Iterator[str]:
    """The spec holds nothing that is not published, and no path."""
    spec = reader.linked
    reader.parsed = reader.spec
    if public_spec(spec) != spec:
        yield "spec.yaml: holds paths or addresses that are not published, or no number of persons"


def _check_plan(reader: LinkedReader) -> Iterator[str]:
    """The certificate's plan is that of the spec: looks, noise, and rows of a person in each."""
    if reader.certificate is None:
        return
    stated = [s.model_dump(mode="json") for s in reader.certificate.planned]
    true = [s.model_dump(mode="json") for s in reader.plan.stated_spends]
    if [s["purpose"] for s in stated] != [s["purpose"] for s in true]:
        yield "privacy/certificate.json: its plan has other looks than the spec makes"
        return
    for ours, theirs in zip(true, stated, strict=True):
        if not alike(theirs["event"], ours["event"]):
            yield (
                f"privacy/certificate.json: {ours['purpose']}: is planned with another event than"
                " the spec gives, by its epsilon, shares, and most visits of a person"
            )


# --- noisy tables and model ---


def _check_noisy(reader: LinkedReader) -> Iterator[str]:
    """The tables of each look are those of the spec, on the groups that tables of levels make, with
    the noise of the plan.
    """
    for told in (stated := reader.json(MARGINALS))["tables"]:
        look = reader.plan.linked.get(told["purpose"])
        if look is None or (
            told["view"],
            told["law"],
            told["rows_of_a_person"],
        ) != (
            look.view,
            LAWS[look.view],
            look.rows,
        ):
            yield f"{MARGINALS}: a table is of no planned look, or of other rows than it looks at"
            return
    if reader.bundle is not None:
        _ = reader.bundle.arrows  # made again of the tables; raises where a table is another
    known = {told["purpose"] for told in stated["tables"]}
    if (MOMENTS in stated) != ((asked := reader.plan.moments) is not None):
        yield f"{MARGINALS}: must have sums of numbers where the spec has a share for them"
    elif asked is not None:
        found = sums_from_json(stated[MOMENTS], asked)
        known.add(MOMENTS)
        yield from wrong(
            (
                not math.isclose(stated[MOMENTS]["sigma"], found.sigma, rel_tol=1e-6),
                f"{MARGINALS}: its sums state other noise than the plan gives them",
            ),
        )
    if known != {e.body["purpose"] for e in reader.charges}:
        yield f"{MARGINALS}: has not the tables of every look that the ledger charged"


def _check_estimands(reader: LinkedReader) -> Iterator[str]:
    """The figures of estimands follow from their noisy tables, and the spec."""
    if reader.holds(ESTIMANDS) != bool(reader.linked.estimands):
        yield f"{ESTIMANDS}: must be there where the spec has estimands, and nowhere else"
    elif reader.bundle is not None and reader.linked.estimands:
        made = estimands_json(reader.linked, reader.frame, reader.bundle.measured)
        if not alike(reader.json(ESTIMANDS), json.loads(json.dumps(made))):
            yield f"{ESTIMANDS}: its figures do not follow from {MARGINALS} and spec.yaml"


def _check_model(reader: LinkedReader) -> Iterator[str]:
    """The model can be read, and has the spec's arrows, and groups of levels."""
    bundle = reader.bundle
    if bundle is None:
        return
    model, arrows = bundle.model, bundle.arrows
    parents = {**arrows.persons, **arrows.first, **arrows.steps}
    parents[reader.frame.now("end")] = arrows.end
    foreign = [n for n, law in model.laws.items() if not {*law.parents} <= {*parents.get(n, ())}]
    yield from wrong(
        (bool(foreign), f"model.json: {foreign[:1]} has parents that the spec does not give it"),
        (
            dict(model.starts) != bundle.starts,
            f"model.json: its groups are not those of {MARGINALS}",
        ),
    )


# --- the tables ---


def _check_tables(reader: LinkedReader) -> Iterator[str]:
    """Both tables fit their domains; keys are 1 to the number of persons; visits are in order; and
    the rules hold in every person.
    """
    spec, frame, data = reader.linked, reader.frame, reader.linked.dataset
    files, columns = table_files(spec), written_columns(spec)
    read = dict[str, dict[str, Floats]]()
    for name, (csv, _) in files.items():
        rows = persons_of(spec) * (frame.most if name == data.visits_name else 1)
        order = [n for n, c in columns[name].items() if c.type in ("ordinal", "boolean")]
        wanted = [data.tables[name].key, frame.order.name, *order]
        wanted += [c.name for c in (frame.birth, frame.death) if c is not None]
        domain = Domain.written(columns[name])
        read[name], problems = _read(reader.folder / csv, domain, rows, {*wanted})
        yield from problems
        if problems:
            return
    persons, visits = read[data.persons_name], read[data.visits_name]
    people, events = (files[name][0] for name in (data.persons_name, data.visits_name))
    count, key = persons_of(spec), persons[data.persons.key]
    if not np.array_equal(key, np.arange(1, count + 1)):
        yield f"{people}: its keys are not 1 to {count}, the spec's number of persons, in order"
        return
    owner, when = visits[data.visits.key].astype(np.int64) - 1, visits[frame.order.name]
    if not ((owner >= 0) & (owner < count)).all():
        yield f"{events}: a visit belongs to no person"
        return
    if (np.diff(owner) < 0).any():
        yield f"{events}: its rows are not in the order of persons"
        return
    many = np.bincount(owner, minlength=count)
    same, gaps = np.diff(owner) == 0, np.diff(when)
    yield from wrong(
        (many.max(initial=0) > frame.most, f"{events}: a person has more than {frame.most} visits"),
        (
            many.min() < frame.least,
            f"{events}: a person has no visit, and the spec says at_least 1",
        ),
        (bool((gaps[same] < frame.step).any()), f"{events}: visits of a person are not in order"),
        (bool((when > frame.until).any()), f"{events}: a visit is after the end of the study"),
    )
    if frame.birth is not None and (persons[frame.birth.name][owner] > when).any():
        yield f"{events}: a visit is before the person's birth"
    if frame.death is not None and (persons[frame.death.name][owner] < when).any():
        yield f"{events}: a visit is after the person's death"  # none where it is NaN
    for rule in spec.rules():
        if rule.kind in ("birth", "death"):
            continue
        sign = -1 if rule.kind == "nonincreasing" else 1
        if (sign * np.diff(visits[rule.column])[same] < 0).any():
            yield f"{events}: {rule.column!r} is not {rule.kind} in every person"


def _read(
    path: Path, domain: Domain, rows: int, wanted: set[str]
) -> tuple[dict[str, Floats], list[str]]:
    """The wanted columns of an untrusted CSV as numbers, or levels of categories, NaN where they
    are missing; and what is wrong with the file.
    """
    outside = Counter[str]()
    parts = {name: [np.zeros(0)] for name in domain.names if name in wanted}
    try:
        for chunk, codes in parts_of(path, domain, rows, outside):
            for name, read in parts.items():
                read.append(_numbers(domain[name], chunk[name], codes[name]))
    except VerifyError as error:
        return {}, [str(error)]
    numbers = {name: np.concatenate(some) for name, some in parts.items()}
    return numbers, [*outside_told(path, outside)]


def _numbers(column: Any, text: pd.Series[str], codes: npt.NDArray[np.uint16]) -> Floats:
    if column.ranged:
        return to_numbers(column, column_kind(column).parsed(column, text))
    missing = codes == column.missing_level if column.missing else np.zeros(len(codes), bool)
    return np.where(missing, math.nan, codes.astype(np.float64))


def _check_parquet(reader: LinkedReader, *, second: bool) -> Iterator[str]:
    """The columns and types of a table, and in the same order the rows of its CSV."""
    name, (csv, parquet) = [*table_files(reader.linked).items()][second]
    columns, folder = written_columns(reader.linked)[name], reader.folder
    with (folder / csv).open("rb") as file:  # no field holds a line's end: names cannot
        rows = sum(block.count(b"\n") for block in iter(partial(file.read, 1 << 20), b"")) - 1
    yield from parquet_problems(folder / parquet, folder / csv, columns, rows)


TEXT_CHECKS: dict[str, tuple[str, Check]] = {
    **{
        file: by_others(file)
        for file in LINKED_DERIVED
        if file not in ("privacy/profile.svg", DEPLOYMENT)
    },
    "profile": ("privacy/profile.json", check_profile),
    "registry record": (DEPLOYMENT, check_deployment),
}
TABLE_CHECKS: dict[str, tuple[str, Check]] = {
    "noisy counts": (MARGINALS, _check_noisy),
    "estimands": (ESTIMANDS, _check_estimands),
    "model": ("model.safetensors", _check_model),
    "tables": ("tables", _check_tables),
    "persons as parquet": ("tables", partial(_check_parquet, second=False)),
    "visits as parquet": ("tables", partial(_check_parquet, second=True)),
}


def linked_checks(one: Mapping[str, tuple[str, Check]]) -> dict[str, tuple[str, Check]]:
    """All checks, of which some are those of `one` table."""
    return {
        "folder": one["folder"],
        "checksums": one["checksums"],
        "spec": ("spec.yaml", _check_spec),
        "ledger": one["ledger"],
        "certificate": one["certificate"],
        "plan": ("privacy/certificate.json", _check_plan),
        **TEXT_CHECKS,
        **TABLE_CHECKS,
        "signature": one["signature"],
    }
