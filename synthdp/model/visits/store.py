"""The model of persons with visits as files: weights in safetensors, all else in JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from synthdp.data.visits import CUT_DIED, DIED, VisitFrame
from synthdp.errors import VerifyError
from synthdp.files import check_plain, parse_json, read_text
from synthdp.graph.margins import Probabilities
from synthdp.model.synthesizer import MODEL_FILE, WEIGHTS_FILE
from synthdp.model.visits.laws import Law, VisitModel, groups_of_views, sizes_of

KIND = "visits"


def save(model: VisitModel, folder: Path) -> None:
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


def load(folder: Path, frame: VisitFrame) -> VisitModel:
    """Read what `save` wrote, for the frame of its spec. Nothing in a file can run.

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
