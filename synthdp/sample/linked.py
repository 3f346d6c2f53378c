"""Persons with their visits from a bundle's model: free of charge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from synthdp.bundle.content import MODEL_FILES
from synthdp.bundle.linked import checked_linked, table_files, written_columns
from synthdp.bundle.table_files import write_csv
from synthdp.data.visits import VisitFrame, written
from synthdp.errors import OutputError, disk_errors
from synthdp.model.visits.draw import trajectories
from synthdp.model.visits.laws import VisitModel
from synthdp.spec.model import LinkedSpec


def drawn_frames(
    spec: LinkedSpec, model: VisitModel, persons: int, *, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both tables of `persons` new persons, linked by 1 to their number in the order drawn."""
    data, frame = spec.dataset, VisitFrame.from_spec(spec)
    drawn = trajectories(model, persons, rng=rng)
    people, events = written(frame, drawn, key=data.persons.key, rng=rng)
    return people, events.rename(columns={data.persons.key: data.visits.key})


def sample_linked(
    bundle: Path, persons: int, *, rng: np.random.Generator
) -> dict[str, pd.DataFrame]:
    """Both tables by name, of new persons from a bundle's model.

    Raises:
        VerifyError: a file was changed.
    """
    stated = checked_linked(bundle, MODEL_FILES)
    frames = drawn_frames(stated.linked, stated.model, persons, rng=rng)
    return dict(zip(table_files(stated.linked), frames, strict=True))


def write_sample(bundle: Path, persons: int, out: Path, *, rng: np.random.Generator) -> list[Path]:
    """Write both tables of new persons as CSV files into the new folder `out`.

    Raises:
        OutputError: it holds something, or cannot be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        hint = "name a new folder with --out: there will be two tables"
        raise OutputError(f"{out}: is a file, or a folder that holds something", hint=hint)
    spec = checked_linked(bundle).linked
    columns, files, paths = written_columns(spec), table_files(spec), list[Path]()
    frames = sample_linked(bundle, persons, rng=rng)
    with disk_errors(f"cannot write to {out}", hint="choose another folder with --out"):
        out.mkdir(parents=True, exist_ok=True)
        for name, frame in frames.items():
            paths.append(out / files[name][0])
            write_csv(frame, columns[name], paths[-1])
    return paths
