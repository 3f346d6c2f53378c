"""Laws of columns given their parents, the model that they make up, and its files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from synthdp.data.level_groups import LevelGroups, Starts
from synthdp.data.visits import CUT_DIED, DIED, VisitFrame
from synthdp.errors import VerifyError
from synthdp.files import check_plain, parse_json, read_text
from synthdp.graph.margins import Probabilities
from synthdp.graph.predict import fitted_to_margins
from synthdp.model.log_linear import SETTINGS as FIT
from synthdp.model.log_linear import Levels, filled_levels, fitted_weights
from synthdp.model.synthesizer import MODEL_FILE, WEIGHTS_FILE

Floats = npt.NDArray[np.float64]
Rows = dict[str, Levels]
"""Levels of some rows, or their groups, by name."""


@dataclass(frozen=True)
class VisitSettings:
    """Tuning of the fit of visits."""

    groups: int = 12
    """About so many groups of levels share a column's rows, in tables of two columns."""
    few_bins: int = 14
    """Up to so many bins stay as they are."""
    strata: int = 6
    """About so many groups of levels, of a fine column that an effect is adjusted for."""
    numbers: int = 32
    """About so many groups of the levels of a number that is clipped."""
    max_cells: int = 100_000
    """Of a table that an effect is measured by."""
    hopeless: float = 0.25
    """Deviation of an effect's noise, in spans of the outcome, from which on nothing is learned."""
    plays: int = 10
    """How often a plan plays estimands."""
    start: int = 24_000
    """Rows that the laws of steps are first fitted on."""
    fitted: int = 12_000
    """Most rows whose parents make up a likelihood."""
    generated: tuple[int, int] = (8192, 20_000)
    """Fewest and most persons that a round generates."""
    rounds: int = 3
    part: float = 0.5
    """How far a round goes: whole steps diverge."""
    kept: int = 3
    """Rounds whose rows are fitted on together."""
    all_lags: int = 36
    """Up to so many pairs of a visit and the one before, mode predict counts all: what a treatment
    does is hidden where it is given to those who need it."""
    least_signal: float = 0.5
    """Variance, in that of the noise, below which a column is not asked about ends."""
    ends_ridge: float = 1e-3
    """Ridge of the law of ends. Rows that it is fitted on were generated, so that parents that say
    nearly the same, such as number, calendar and site, need not agree: at 2e-4 weights ran to 40.
    """
    goes_on: float = 0.02
    """Least probability that a visit is not the last."""
    short: float = 0.005
    """Part of persons that may lack room for another visit that the counts say they have."""
    pulls: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)
    """By how much dates are drawn earlier, one after the other, until there is room."""
    targets: float = 1.5
    """Weight of tables that hold a target, against others."""
    least: float = 1e-6
    """Smallest probability of a level."""


SETTINGS = VisitSettings()


@dataclass(frozen=True)
class Law:
    """A child's law given its parents: logits `[their levels + 1, levels]`, biases last."""

    parents: tuple[str, ...]
    weights: Floats

    def probabilities(self, sizes: Mapping[str, int], rows: Rows, count: int) -> Probabilities:
        """Of the child's levels in each of `count` rows, `[rows, levels]`."""
        found: Probabilities = softmax(self.logits(sizes, rows, count), axis=1)
        return found

    def logits(self, sizes: Mapping[str, int], rows: Rows, count: int) -> Floats:
        """The same as logits."""
        if not self.parents:
            return np.tile(self.weights[-1], (count, 1))
        levels = np.column_stack([rows[p] for p in self.parents])
        found: Floats = filled_levels(levels, [sizes[p] for p in self.parents]) @ self.weights
        return found

    def towards(self, other: Law, part: float) -> Law:
        """Part of the way to another law of the same parents."""
        return replace(self, weights=(1 - part) * self.weights + part * other.weights)


def fitted_law(
    sizes: Mapping[str, int],
    tables: Mapping[str, Probabilities],
    margin: Probabilities,
    rows: Rows,
    *,
    ridge: float = FIT.ridge,
) -> Law:
    """The log-linear law whose tables with its parents are `tables` `[parent, child]`, among rows.

    Each table is first given the margins of the parent in `rows` and of the child: with others no
    weights meet all of them, and the likelihood has no largest value.
    """
    bias = np.log(np.maximum(margin, SETTINGS.least))
    if not tables:
        return Law((), bias[None])
    some = {p: rows[p][: SETTINGS.fitted] for p in tables}
    filled = filled_levels(np.column_stack([*some.values()]), [sizes[p] for p in tables])
    wanted = []
    for parent, table in tables.items():
        drawn = np.bincount(some[parent], minlength=sizes[parent]) / len(some[parent])
        wanted.append(fitted_to_margins(table, drawn, margin))
    free = np.zeros((filled.shape[1], len(margin)))
    weights, _ = fitted_weights(filled, np.concatenate(wanted), bias, free, ridge=ridge)
    return Law(tuple(tables), weights)


@dataclass(frozen=True)
class VisitModel:
    """Everything that persons with visits are drawn from.

    `starts` are the groups of levels of fine columns, by their name in their table, and `inside`
    the law of the levels of every column, for the draw inside groups. `laws` has a law for each
    child by its name in the views, those of `first` and `steps` in the order they are drawn in.
    `numbers` is the probability of each number of visits, from 0, and `shifts` what is added to
    the logits of an end after each of them. `died_later` is the part of those who were cut that
    died, and `till` the law of the time to death by how visits end.
    """

    frame: VisitFrame
    starts: Mapping[str, Starts]
    inside: Mapping[str, Probabilities]
    laws: Mapping[str, Law]
    first: tuple[str, ...]
    steps: tuple[str, ...]
    numbers: Probabilities
    shifts: Floats
    died_later: float = 0.0
    till: Mapping[str, Probabilities] | None = None


def bare(frame: VisitFrame, name: str) -> str:
    """A column's name in its table, the same at every visit; persons' columns keep their table's
    name before it.
    """
    table, _, column = name.partition(".")
    return name if table == frame.people else column


def groups_of_views(frame: VisitFrame, starts: Mapping[str, Starts]) -> dict[str, LevelGroups]:
    """The groups of levels of each view: a column has the same ones wherever it stands."""
    found = {}
    for view, domain in frame.views.items():
        own = {c.name: starts[k] for c in domain.columns if (k := bare(frame, c.name)) in starts}
        cut = {name: tuple(x for x in s if x < domain[name].levels) for name, s in own.items()}
        found[view] = LevelGroups(domain, cut)
    return found


def sizes_of(groups: Mapping[str, LevelGroups]) -> dict[str, int]:
    """Groups of levels of every name of the views."""
    columns = chain.from_iterable(g.coarse.columns for g in groups.values())
    return {c.name: c.levels for c in columns}


# --- as files ---
#
# The model of persons with visits as files: weights in safetensors, all else in JSON.


KIND = "visits"


def save_visits(model: VisitModel, folder: Path) -> None:
    """Write `model.safetensors` and `model.json`."""
    from safetensors.numpy import save_file

    arrays = {f"law {name}": law.weights for name, law in model.laws.items()}
    arrays |= {f"inside {name}": law for name, law in model.inside.items()}
    arrays |= {f"till {end}": law for end, law in (model.till or {}).items()}
    arrays |= {"numbers": model.numbers, "shifts": model.shifts}
    whole = {name: np.ascontiguousarray(a, np.float32) for name, a in arrays.items()}
    save_file(whole, folder / WEIGHTS_FILE)
    content = {
        "kind": KIND,
        "parents": {name: list(law.parents) for name, law in model.laws.items()},
        "first": list(model.first),
        "steps": list(model.steps),
        "starts": {name: list(map(int, starts)) for name, starts in model.starts.items()},
        "died_later": model.died_later,
    }
    (folder / MODEL_FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load_visits(folder: Path, frame: VisitFrame) -> VisitModel:
    """Read what `save_visits` wrote, for the frame of its spec. Nothing in a file can run.

    Raises:
        VerifyError: the files are damaged, or do not belong together, or to this frame.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        content = parse_json(read_text(folder / MODEL_FILE))
        check_plain(folder / WEIGHTS_FILE)
        arrays = {n: a.astype(np.float64) for n, a in load_file(folder / WEIGHTS_FILE).items()}
        for name in arrays:
            if name == "numbers" or name.startswith("till "):  # in single precision, nearly 1
                arrays[name] /= max(float(arrays[name].sum()), 1e-9)
        model = _model(content, arrays, frame)
        problem = _problem(model, arrays)
    # An attribute error is a type of number that NumPy has not.
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        message = f"cannot read the model in {folder.name}: {type(error).__name__}"
        raise VerifyError(message) from None
    if problem:
        raise VerifyError(f"{WEIGHTS_FILE} and {MODEL_FILE} do not make one model: {problem}")
    return model


def _model(content: Any, arrays: Mapping[str, Probabilities], frame: VisitFrame) -> VisitModel:
    if content["kind"] != KIND:
        raise ValueError("another kind of model")

    def part(kind: str) -> dict[str, Probabilities]:
        own = (name for name in arrays if name.startswith(f"{kind} "))
        return {name.removeprefix(f"{kind} "): arrays[name] for name in own}

    laws = {n: Law(tuple(content["parents"][n]), w) for n, w in part("law").items()}
    return VisitModel(
        frame,
        {name: tuple(map(int, starts)) for name, starts in content["starts"].items()},
        part("inside"),
        laws,
        tuple(content["first"]),
        tuple(content["steps"]),
        arrays["numbers"],
        arrays["shifts"],
        float(content["died_later"]),
        part("till") or None,
    )


def _problem(model: VisitModel, arrays: Mapping[str, Probabilities]) -> str:
    """What keeps rows from being drawn; empty where nothing does."""
    frame = model.frame
    if not all(np.isfinite(a).all() for a in arrays.values()):
        return "a weight is no number"
    sizes = sizes_of(groups_of_views(frame, model.starts))
    ends = sum(not e.startswith("cut") for e in frame.ends)
    levels = sizes | {frame.now("end"): 1 + ends}
    visits = [c.name for c in frame.of_visits.columns]
    first = {*frame.modelled.names, *map(frame.first, [frame.order.name, *visits])}
    steps = {frame.now(name) for name in ("gap", *visits)}
    if {*model.first} != first or {*model.steps} != steps:
        return "it has other columns than the spec"
    if model.laws.keys() != {*first, *steps, frame.now("end")}:
        return "a law is missing"
    for name, law in model.laws.items():
        rows = 1 + sum(sizes[p] for p in law.parents)
        if law.weights.shape != (rows, levels[name]):
            return f"the law of {name} has another shape"
    known = set[str]()
    for name in model.first:
        if not known.issuperset(model.laws[name].parents):
            return f"{name} comes before its parents"
        known.add(name)
    shapes = {"numbers": (frame.most + 1,), "shifts": (frame.most,)}
    if frame.till is not None:
        shapes |= {f"till {end}": (frame.till.levels - 1,) for end in (DIED, CUT_DIED)}
    if any(arrays[name].shape != shape for name, shape in shapes.items()):
        return "a law of visits has another shape"
    laws = [arrays["numbers"], *(model.till or {}).values()]
    if any(a.min() < 0 or not math.isclose(a.sum(), 1) for a in laws):
        return "probabilities do not sum to 1"
    return ""
