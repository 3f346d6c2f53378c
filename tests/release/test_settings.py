"""Every setting of a spec is handed on to each room that does something by it.

`TOLD` has, for each setting, another value, the rooms that are told of it, and what each then has
or does. A setting that one room alone reads stands in `ONE_ROOM`, with the file that tests it. The
spec's model is walked through, so that a new field belongs to one of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import get_annotations
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from synthdp.spec.model import LinkedSpec, ReleaseSpec
from tests.release.told import OF_THE_TABLE, OTHER, laid_over, spec_of
from tests.release.told_run import OF_THE_RUN

ROOT = Path(__file__).parents[2]
TOLD = OF_THE_TABLE | OF_THE_RUN
ONE_ROOM = {
    "BuiltinSource.name": "data/test_builtin_tables.py",
    "ChosenColumns.drop": "privacy/test_chosen.py",
    "ChosenColumns.rename": "privacy/test_chosen.py",
    "CsvSource.decimal": "privacy/test_typed_cells.py",
    "CsvSource.delimiter": "privacy/test_source.py",
    "CsvSource.missing_values": "privacy/test_source.py",
    "CsvSource.path": "privacy/test_source.py",
    "Datetime.derived": "model/test_derived.py",
    "EarlierWave.bundle": "release/test_waves.py",  # as whole releases
    "EarlierWave.sha256": "release/test_waves.py",
    "Graph.level": "graph/test_validation.py",
    "Graph.max_parents": "graph/test_measured_pc.py",
    "Graph.on_refuted": "release/test_release.py",  # with what `verify` makes of it
    "Graph.orient_share": "graph/test_rcit_pc.py",
    "Graph.undirected": "release/test_learned_directions.py",
    "Graph.unseen_causes": "release/test_unseen_causes.py",  # as a whole release
    "IdUnit.column": "privacy/test_source.py",
    "Mapped.known_shares": "release/test_played.py",
    "Mapped.map": "spec/test_values_and_lists.py",
    "Mapped.values": "spec/test_values_and_lists.py",  # read: privacy/engines/tables.py
    "ParquetSource.levels_only": "privacy/test_source.py",
    "ParquetSource.path": "privacy/test_source.py",
    "ReleaseSpec.maps": "spec/test_values_and_lists.py",
    **{
        f"PriorSource.{name}": "release/test_prior.py"
        for name in ("source", "bundle", "sha256", "licence", "statement")
    },
    "Publication.decision": "bundle/test_decisions.py",
    "Signing.key_env": "bundle/test_signing.py",
    "Signing.required": "bundle/test_signing.py",
    "SqlSource.query": "privacy/engines/test_counts.py",
    "SqlSource.url_env": "privacy/engines/test_counts.py",
    "Tracking.enabled": "tracking/test_tracker.py",
    "Tracking.experiment": "tracking/test_tracker.py",
    "Tracking.uri": "tracking/test_tracker.py",
    "Waves.planned": "privacy/test_waves.py",
}
"""Settings that one room alone reads, and the file of tests that tries them there."""
OF_LINKED_TABLES = {
    "Ends": ["death"],
    "LinkedDataset": ["out_of_domain"],
    "LinkedEffect": ["adjust", "clip", "level", "outcome", "reference", "steps", "treatment"],
    "LinkedEvaluation": ["targets"],
    "LinkedGraph": ["edges", "mode"],
    "LinkedQuestion": ["ask", "clip"],
    "LinkedPrivacy": ["ledger"],
    "LinkedSampling": ["persons"],
    "LinkedShares": ["ends", "estimands", "first", "moments", "persons", "steps"],
    "LinkedSpec": ["constraints"],
    "PersonUnit": ["meaning"],
    "PersonsTable": ["key"],
    "VisitsTable": ["at_least", "at_most", "key", "of", "order", "resolution", "until"],
}  # which nothing but their checks reads yet
ONE_ROOM["LinkedEvaluation.enabled"] = "release/linked/test_judged_visits.py"
ONE_ROOM["LinkedEvaluation.holdout"] = "release/linked/test_judged_visits.py"
ONE_ROOM["LinkedGate.metric"] = "release/linked/test_scores_linked.py"
for model_name, names in OF_LINKED_TABLES.items():
    ONE_ROOM |= dict.fromkeys((f"{model_name}.{n}" for n in names), "spec/test_linked.py")


@pytest.fixture(autouse=True)
def attacks_here() -> None:
    """Where the spec says."""


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models inside a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


def settings_of(model: type[BaseModel], known: set[str]) -> set[str]:
    """The settings below a model, each by the class that declares it; not what has one value."""
    for name, info in model.model_fields.items():
        owner = next(c for c in model.__mro__ if name in get_annotations(c))
        setting, inside = f"{owner.__name__}.{name}", list(models(info.annotation))
        kind = get_origin(info.annotation) is Literal and len(get_args(info.annotation)) == 1
        if setting in known or kind:
            continue
        if not inside:
            known.add(setting)
        for one in inside:
            settings_of(one, known)
    return known


def test_every_setting_is_told_or_is_tried_in_the_one_room_that_reads_it() -> None:
    settings = settings_of(LinkedSpec, settings_of(ReleaseSpec, set()))
    assert len(settings) > 100 and not {*TOLD} & {*ONE_ROOM}
    assert settings == {*TOLD, *ONE_ROOM}
    for setting, file in ONE_ROOM.items():
        text, name = (ROOT / "tests" / file).read_text(), setting.partition(".")[2]
        assert re.search(rf"\b{name}\b", text), f"{file} does not try {setting}"


@pytest.mark.parametrize("setting", TOLD)
def test_a_setting_is_told_to_every_room_that_goes_by_it(setting: str) -> None:
    first, changes, rooms = TOLD[setting]
    base, other = spec_of(first), spec_of(laid_over(first, changes))
    for seam, before, after in rooms:
        without, with_it = seam(base), seam(other)
        assert without == before
        assert with_it != without if after is OTHER else with_it == after
