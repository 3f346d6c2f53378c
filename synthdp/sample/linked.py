"""Persons with their visits from a bundle's model: free of charge.

Under an intervention rows are those of the sequential g-formula of the given graph
(`model.visits.draw`), in which every column is observed. A column's own past is a cause of it,
declared or not. What happens to the others, who stop or die, has two answers, and `Lost` says
which one is asked for: there is no default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from synthdp.bundle.content import MODEL_FILES
from synthdp.bundle.linked import checked_linked, table_files, written_columns
from synthdp.bundle.table_files import write_csv
from synthdp.data.domain import Domain
from synthdp.data.visits import VisitFrame, written
from synthdp.errors import OutputError, disk_errors
from synthdp.graph.causal import NO_CAUSES
from synthdp.model.visits.draw import AS_IT_IS, Intervention, trajectories
from synthdp.model.visits.laws import VisitModel
from synthdp.sample.conditions import settings_of
from synthdp.spec.model import LinkedSpec

Lost = Literal["nobody", "natural"]
LOST: dict[str, str] = {
    "nobody": (
        "lost: nobody; nobody stops or dies: each person with a visit goes on until the most visits"
        " that are kept, or the end of the study. It is the effect if losses were prevented, too"
    ),
    "natural": (
        "lost: natural; visits end by their law under the intervention, which may differ by what is"
        " set: those who are still there are then other persons than without it"
    ),
}
MODEL = (
    "rows are the model's under the intervention, by its graph, which is taken to be true: a cause"
    " that it lacks would change them; nothing tells an interval"
)


@dataclass(frozen=True)
class Do:
    """What is set of persons and visits, and what happens to who would be lost.

    `values` are those of ranged columns, which a level does not tell, by table, column and number.
    """

    content: Intervention
    values: dict[tuple[str, str, int], Any]
    lost: Lost

    @property
    def about(self) -> tuple[str, str]:
        """What rows under it mean."""
        return LOST[self.lost], MODEL

    def put(self, frames: dict[str, pd.DataFrame], key: str, visits: str) -> None:
        """Put the very values that were asked for into both tables."""
        number = frames[visits].groupby(key).cumcount().to_numpy() + 1
        for (table, name, at), value in sorted(self.values.items(), key=lambda kv: kv[0][2]):
            own, every = frames[table], np.ones(len(frames[table]), bool)
            rows = number == at if at else every
            column = own[name].to_numpy(copy=True)
            column[rows] = value
            own[name] = pd.Series(column, dtype=own[name].dtype)


def intervention(spec: LinkedSpec, do: Sequence[str], lost: Lost | None) -> Do | None:
    """What `do` sets: COLUMN=VALUE, with columns as arrows name them; None where it sets nothing.

    Raises:
        OutputError: `lost` is not said, or said of nothing; or the effect is not identified: arrows
            claim no cause, or a rule leaves the value no probability.
        SpecError: a column or value is unknown; every mistake is listed.
    """
    if not do:
        if lost is None:
            return None
        raise OutputError(f"lost: {lost} is of an intervention", hint="set something with --do")
    if spec.graph.mode != "given":
        raise OutputError(NO_CAUSES, hint="draw a causal graph, and release with graph.mode given")
    if lost is None:
        raise OutputError(
            "an intervention may change who is lost: say --lost nobody (losses are prevented, too)"
            " or --lost natural (they follow); these are different numbers",
            hint="add --lost nobody or --lost natural",
        )
    frame = VisitFrame.from_spec(spec)
    offered = {frame.person(c.name): ((frame.people, c.name, 0), c) for c in frame.columns.columns}
    for number, c in product(range(frame.most + 1), frame.of_visits.columns):
        name = f"{frame.events}[{number}].{c.name}" if number else frame.now(c.name)
        offered[name] = ((frame.events, c.name, number), c)
    domain = Domain(tuple(replace(c, name=name) for name, (_, c) in offered.items()))
    settings, _ = settings_of([text.replace("`", "") for text in do], [], domain)
    people, visits, values = dict[str, int](), dict[tuple[str, int], int](), {}
    for name, setting in settings.items():
        place = offered[name][0]
        table, column, number = place
        if table == frame.people:
            people[name] = setting.level
        else:
            if column in (*frame.rises, *frame.falls) and number != 1:
                raise OutputError(
                    f"{name} is not identified: by its rule hardly anybody has this value after"
                    " others",
                    hint=f"set it at the first visit, {frame.events}[1].{column}",
                )
            visits[column, number] = setting.level
        if setting.value is not None:
            values[place] = setting.value
    return Do(Intervention(people, visits, lost == "nobody"), values, lost)


def drawn_frames(
    spec: LinkedSpec,
    model: VisitModel,
    persons: int,
    *,
    rng: np.random.Generator,
    do: Intervention = AS_IT_IS,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both tables of `persons` new persons, linked by 1 to their number in the order drawn."""
    data, frame = spec.dataset, VisitFrame.from_spec(spec)
    drawn = trajectories(model, persons, rng=rng, do=do)
    people, events = written(frame, drawn, key=data.persons.key, rng=rng)
    return people, events.rename(columns={data.persons.key: data.visits.key})


def sample_linked(
    bundle: Path,
    persons: int,
    *,
    rng: np.random.Generator,
    do: Sequence[str] = (),
    lost: Lost | None = None,
) -> tuple[dict[str, pd.DataFrame], tuple[str, ...]]:
    """Both tables by name, of new persons from a bundle's model, and what is to be known of them.

    Raises:
        OutputError, SpecError: as of `intervention`.
        VerifyError: a file was changed.
    """
    stated = checked_linked(bundle, MODEL_FILES)
    asked = intervention(stated.linked, do, lost)
    content = AS_IT_IS if asked is None else asked.content
    made = drawn_frames(stated.linked, stated.model, persons, rng=rng, do=content)
    frames = dict(zip(table_files(stated.linked), made, strict=True))
    if asked is None:
        return frames, ()
    data = stated.linked.dataset
    asked.put(frames, data.visits.key, data.visits_name)
    return frames, asked.about


def write_sample(
    bundle: Path,
    persons: int,
    out: Path,
    *,
    rng: np.random.Generator,
    do: Sequence[str] = (),
    lost: Lost | None = None,
) -> tuple[str, ...]:
    """Write both tables of new persons as CSV files into the new folder `out`; returns what is to
    be known of them.

    Raises:
        OutputError: it holds something, or cannot be written; and as of `intervention`.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        hint = "name a new folder with --out: there will be two tables"
        raise OutputError(f"{out}: is a file, or a folder that holds something", hint=hint)
    spec = checked_linked(bundle).linked
    columns, files = written_columns(spec), table_files(spec)
    frames, about = sample_linked(bundle, persons, rng=rng, do=do, lost=lost)
    with disk_errors(f"cannot write to {out}", hint="choose another folder with --out"):
        out.mkdir(parents=True, exist_ok=True)
        for name, frame in frames.items():
            write_csv(frame, columns[name], out / files[name][0])
    return about
