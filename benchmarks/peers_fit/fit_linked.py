"""Peers on two linked tables: SDV's HMA and PAR, which protect nobody, and google/dpsynth's
relational synthesis.

    python benchmarks/peers_fit/fit_linked.py hma | par | dpsynth FOLDER

Runs in the peer's own Python (`pip install sdv==2.0.0`; dpsynth 0.3.0 from its repository). FOLDER
has persons.csv, visits.csv and job.json: the `key`, the `order` of visits, how many are kept
(`at_most`), `epsilon` and `delta`, and the `kinds` of columns by table (category, number or date;
for dpsynth how many levels, and both files are levels). Writes made_persons.csv, made_visits.csv
and cost.json with the CPU seconds.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Tables = dict[str, pd.DataFrame]
NAMES = ("persons", "visits")
SDV_TYPES = {"category": "categorical", "number": "numerical", "date": "datetime"}


def hma(tables: Tables, job: dict[str, Any]) -> Tables:
    """Copulas by table, the child's parameters as columns of the parent."""
    from sdv.multi_table import HMASynthesizer  # type: ignore[import-not-found]

    metadata = _metadata({n: (n, job["kinds"][n]) for n in NAMES})
    for name in NAMES:
        metadata.update_column(job["key"], table_name=name, sdtype="id")
    metadata.set_primary_key(job["key"], table_name="persons")
    metadata.add_relationship("persons", "visits", job["key"], job["key"])
    synthesizer = HMASynthesizer(metadata, verbose=False)
    synthesizer.fit(tables)
    made: Tables = synthesizer.sample_scale(scale=1.0)
    return made


def par(tables: Tables, job: dict[str, Any]) -> Tables:
    """A recurrent network over visits, given the person's columns; every person has visits."""
    from sdv.sequential import PARSynthesizer  # type: ignore[import-not-found]

    key, own = job["key"], list(job["kinds"]["persons"])
    joined = tables["visits"].merge(tables["persons"], on=key)
    kinds = job["kinds"]["visits"] | job["kinds"]["persons"]
    metadata = _metadata({"visits": ("visits", kinds)})
    metadata.update_column(key, table_name="visits", sdtype="id")
    metadata.set_sequence_key(key, table_name="visits")
    metadata.set_sequence_index(job["order"], table_name="visits")
    synthesizer = PARSynthesizer(metadata, context_columns=own)
    synthesizer.fit({"visits": joined})
    made = synthesizer.sample_sequences(joined[key].nunique())["visits"]
    persons = made.drop_duplicates(key)[[key, *own]]
    return {"persons": persons, "visits": made[[key, *job["kinds"]["visits"]]]}


def _metadata(tables: dict[str, tuple[str, dict[str, str]]]) -> Any:
    from sdv.metadata import Metadata  # type: ignore[import-not-found]

    metadata = Metadata()
    for name, (_, kinds) in tables.items():
        metadata.add_table(name)
        metadata.add_column("person_id", table_name=name, sdtype="id")
        for column, kind in kinds.items():
            form = {"datetime_format": "%Y-%m-%d"} if kind == "date" else {}
            metadata.add_column(column, table_name=name, sdtype=SDV_TYPES[kind], **form)
    return metadata


def dpsynth(tables: Tables, job: dict[str, Any]) -> Tables:
    """Slots of children beside the parent, by MST; epsilon is for a person with all visits."""
    import dp_accounting
    from dpsynth import (  # type: ignore[import-not-found]
        CategoricalAttribute,
        ForeignKeyRelation,
        MultiTableConfig,
        discrete_mechanisms,
    )

    key = job["key"]
    domains = {
        name: {
            c: CategoricalAttribute(possible_values=list(range(n)), out_of_domain_index=0)
            for c, n in job["kinds"][name].items()
        }
        for name in NAMES
    }
    config = MultiTableConfig(
        domains=domains,
        foreign_keys=[ForeignKeyRelation("persons", key, "visits", key, job["at_most"])],
        discrete_mechanism=discrete_mechanisms.MSTConfig(),
    )
    # Its own `calibrate` begins at no budget at all, which it refuses.
    rho = dp_accounting.calibrate_dp_mechanism(
        dp_accounting.rdp.RdpAccountant,
        lambda rho: config.configure(zcdp_rho=rho, delta=job["delta"]).dp_event,
        job["epsilon"],
        job["delta"],
        dp_accounting.LowerEndpointAndGuess(1e-4, 0.1),
    )
    mechanism = config.configure(zcdp_rho=rho, delta=job["delta"])
    made: Tables = dict(mechanism(np.random.default_rng(), tables).synthetic_tables)
    return made


def main() -> None:
    peer, folder = sys.argv[1], Path(sys.argv[2])
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    levels = peer == "dpsynth"
    tables = {
        n: pd.read_csv(folder / f"{n}.csv", dtype={job["key"]: str}, keep_default_na=True)
        for n in NAMES
    }
    for name in NAMES if not levels else ():
        for column, kind in job["kinds"][name].items():
            if kind == "category":
                tables[name][column] = tables[name][column].astype(str)
    begun = sum(os.times()[:4])
    made = {"hma": hma, "par": par, "dpsynth": dpsynth}[peer](tables, job)
    cost = {"cpu": sum(os.times()[:4]) - begun}
    for name in NAMES:
        made[name].to_csv(folder / f"made_{name}.csv", index=False)
    (folder / "cost.json").write_text(json.dumps(cost), encoding="utf-8")


if __name__ == "__main__":
    main()
