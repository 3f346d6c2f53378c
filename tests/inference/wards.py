"""Many persons with visits whose law is known, and releases of their tables alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data import CodedVisits, LevelGroups, VisitFrame, levels_between, views_of
from synthdp.inference.visit_effects import estimands_json
from synthdp.model import estimand_looks, plan_linked
from synthdp.privacy import LinkedTable, OnView, in_views
from synthdp.privacy.session import Rehearsal
from synthdp.spec.model import LinkedSpec
from tests.visits import linked_dict

MOST = 4
EDGES = [
    "visits[-1].stage, visits[-1].drug, persons.sex -> visits.stage",
    "visits.stage, visits[-1].drug -> visits.bp",
    "visits.stage -> visits.drug",
    "visits.stage -> visits.end",
]
SHARES = {"persons": 0.1, "first": 0.1, "steps": 0.2, "ends": 0.1, "estimands": 0.5}


def ward_spec(persons: int, estimands: list[dict[str, Any]], epsilon: float) -> LinkedSpec:
    """A spec of wards that asks for estimands, mostly."""
    told = {"privacy": {"epsilon": epsilon, "delta": 1e-4, "shares": SHARES}}
    told |= {"graph": {"mode": "given", "edges": EDGES}, "estimands": estimands}
    return LinkedSpec.model_validate(linked_dict(persons) | told)


@dataclass(frozen=True)
class Ward:
    """Persons and their visits, sorted by person: `number` counts a person's from 1."""

    sex: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]
    stage: npt.NDArray[np.int64]
    drug: npt.NDArray[np.int64]
    bp: npt.NDArray[np.int64]

    @classmethod
    def of(cls, persons: int, rng: np.random.Generator, *, drug: int | None = None) -> Ward:
        """Visits one after the other. With `drug` all get it, or none, and nobody is lost."""
        sex = rng.integers(0, 2, persons)
        frail = rng.normal(0, 6, persons)  # moves pressure alone
        stage, took = rng.integers(0, 3, persons), np.zeros(persons, np.int64)
        there, found = np.ones(persons, bool), []
        for number in range(1, MOST + 1):
            bp = 118 + 9 * stage - 8 * took + frail + rng.normal(0, 9, persons)
            given = (rng.random(persons) < 0.25 + 0.2 * stage).astype(np.int64)
            took = given if drug is None else np.full(persons, drug)
            whole = np.clip(bp.round().astype(np.int64), 80, 200)
            found.append((there.copy(), np.full(persons, number), stage, took, whole))
            if drug is None:
                there &= rng.random(persons) < 0.85 - 0.1 * stage
            u = rng.random(persons)
            up, down = 0.25 + 0.1 * sex - 0.15 * took, 0.2 + 0.2 * took
            stage = np.clip(stage + (u < up) - (u > 1 - down), 0, 2)
        seen = np.concatenate([there for there, *_ in found])
        owner = np.tile(np.arange(persons), MOST)[seen]
        order = np.argsort(owner, kind="stable")
        columns = [np.concatenate(own)[seen][order] for own in list(zip(*found, strict=True))[1:]]
        return cls(sex, owner[order], *columns)

    def table(self, frame: VisitFrame, out: npt.NDArray[np.bool_]) -> LinkedTable:
        """The views as they are counted, of persons who are not held out."""
        bp = levels_between(frame.of_visits["bp"], self.bp.astype(float))
        codes = np.column_stack([self.stage, bp, self.drug]).astype(np.uint16)
        when = frame.order.lower + 20.0 * self.number
        born = np.full(len(self.sex), frame.order.lower - 20_000)
        nobody = np.full(len(self.sex), np.nan)
        people = self.sex[:, None].astype(np.uint16)
        views = views_of(frame, CodedVisits(people, codes, self.owner, when, born, nobody))
        return in_views(views, out, {})


def releases(
    spec: LinkedSpec, runs: int, *, seed: int, scale: float = 1.0, stated: float = 1.0
) -> Iterator[tuple[Ward, list[dict[str, Any]]]]:
    """Many new persons, and what a release of each tells of its estimands: by their own looks
    alone, whose columns need no groups by what other looks found. `scale` multiplies the noise, and
    `stated` the deviation that is told of it, and not what was added.
    """
    frame, rng = VisitFrame.from_spec(spec), np.random.default_rng(seed)
    plan = plan_linked(spec, frame).map(lambda purpose, look: look.scaled(scale))
    looks = [*estimand_looks(spec, frame)]
    for _ in range(runs):
        ward = Ward.of(spec.dataset.persons.rows.value, rng)
        out = rng.random(len(ward.sex)) < spec.evaluation.held_out
        rehearsal, tables = Rehearsal.of(ward.table(frame, out), plan), {}
        for purpose, _, look in looks:
            planned = plan.linked[purpose]
            assert isinstance(planned, OnView)
            chosen = planned.choose([look.columns], LevelGroups(planned.domain, look.starts))
            own = rehearsal.release(chosen, purpose=purpose).value
            tables[purpose] = tuple(replace(t, sigma=t.sigma * stated) for t in own)
        yield ward, estimands_json(spec, frame, tables)["estimands"]
