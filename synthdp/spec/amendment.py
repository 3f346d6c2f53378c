"""The parts of a spec that may still be changed after a run has spent its budget.

They are what is done with released values. Nothing that decided on these values is among them.

A change of these fields is post-processing. The plan, the rows that mechanisms see and every draw
that an outcome depends on stay those of the reservation. Whatever is not named in `CHANGEABLE` is
refused, so that a new field is refused until someone has thought about it.

Gates on real rows stay as they are: publishing depends on them, and the certificate states them
as fixed before. So does what they are computed from, and what published scores are about. In mode
predict the evaluation's targets decide what is measured, so they stay as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from synthdp.errors import SpecError, SpecProblem
from synthdp.spec.load.wording import Loc, got
from synthdp.spec.load.yaml_tree import read
from synthdp.spec.model import LinkedSpec, ReleaseSpec

# `*` is any name. What is not the whole of a section is named by its field.
CHANGEABLE = (
    "columns.*.description",
    "columns.*.unit",
    "columns.*.value_labels",
    "constraints",
    "dataset.citation",
    "dataset.description",
    "dataset.licence",
    "dataset.title",
    "derived columns",
    "evaluation.classifiers",
    "evaluation.effects",
    "evaluation.max_rows",
    "evaluation.random_targets",
    "evaluation.subgroups",
    "evaluation.targets",
    "evaluation.triples",
    "gates",
    "publication",
    "sampling",
    "signing",
    "tracking",
)
# What the synthetic table and its published scores are made by: fixed once the scores were counted.
SCORED_TABLE = ("constraints", "derived columns", "evaluation.max_rows", "sampling")
REAL_GATES = "gates on real rows"


def amendment(
    old: ReleaseSpec, new: ReleaseSpec, text: str, *, path: str, scored: bool = False
) -> tuple[str, ...]:
    """The fields of `CHANGEABLE` that differ between a run's spec and the one in `text`.

    `scored` says that published scores of its table were counted.

    Raises:
        SpecError: another field differs; it lists every such field with both values.
    """
    open_fields = _changeable(old, scored=scored)
    changed, problems = set(), []
    tree, _ = read(text)
    for loc, was, now in differing(old, new):
        field = next((f for f in open_fields if _covers(f, loc)), None)
        if field is not None:
            changed.add(field)
            continue
        place = tree.place(loc) if tree is not None else (1, 1)
        message = f"is {_shown(now)}, and the run was paid for with {_shown(was)}"
        hint, at = _why(loc, old, scored=scored), ".".join(map(str, loc))
        problems.append(SpecProblem(path, *place, at, message, hint))
    if problems:
        raise SpecError(problems)
    return tuple(sorted(changed))


def differing(
    old: ReleaseSpec | LinkedSpec, new: ReleaseSpec | LinkedSpec
) -> Iterator[tuple[Loc, object, object]]:
    """Each place that two specs differ at, as a path from the root, and both values."""
    return _differences(_parts(old), _parts(new))


def _changeable(spec: ReleaseSpec, *, scored: bool) -> tuple[str, ...]:
    """What may change of this run: less where gates or scores of real rows rest on it."""
    real = any(gate.outside_guarantee for gate in spec.gates)
    decided = spec.evaluation.dp_scores or spec.graph.mode == "predict"
    fixed = {f for f in CHANGEABLE if real and f.startswith("evaluation.")}
    fixed |= {*(["evaluation.targets"] if decided else []), *(SCORED_TABLE if scored else [])}
    return tuple(f for f in CHANGEABLE if f not in fixed)


def _parts(spec: ReleaseSpec | LinkedSpec) -> dict[str, Any]:
    """A spec as plain values, with derived columns, gates on real rows and the order apart."""
    if isinstance(spec, LinkedSpec):
        return spec.model_dump()
    columns = {name: column.model_dump() for name, column in spec.columns.items()}
    parts = {
        "columns": {n: columns[n] for n in spec.modelled},
        "derived columns": {n: c for n, c in columns.items() if n not in spec.modelled},
    }
    inside, outside = (
        [g.model_dump() for g in spec.gates if g.outside_guarantee == real]
        for real in (False, True)
    )
    gates = {"gates": inside, REAL_GATES: outside}
    return spec.model_dump() | parts | gates | {"order of columns": list(spec.modelled)}


def _differences(old: object, new: object, loc: Loc = ()) -> Iterator[tuple[Loc, object, object]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            yield from _differences(old.get(key), new.get(key), (*loc, key))
    elif old != new:
        yield loc, old, new


def _covers(field: str, loc: Loc) -> bool:
    steps = field.split(".")
    return len(steps) <= len(loc) and all(
        step in ("*", at) for step, at in zip(steps, loc, strict=False)
    )


def _why(loc: Loc, spec: ReleaseSpec, *, scored: bool) -> str:
    if scored and any(_covers(f, loc) for f in SCORED_TABLE):
        return (
            "the published scores of this run's table were counted already, so the table stays as"
            " it is"
        )
    if loc[:2] == ("evaluation", "targets") and spec.graph.mode == "predict":
        return "mode predict measured what its targets need: bring the old value back"
    judged = loc[0] == "evaluation" and any(_covers(f, loc) for f in CHANGEABLE)
    if judged or loc[0] == REAL_GATES:
        return (
            "gates on real rows and published scores are fixed before anything is spent: bring the"
            " old value back"
        )
    return (
        "bring it back, or pay for a new release; without paying change"
        f" {', '.join(_changeable(spec, scored=scored))}"
    )


def _shown(value: object) -> str:
    text = got(value) if isinstance(value, str | bool | int | float | None) else str(value)
    return text if len(text) <= 200 else text[:197] + "..."
