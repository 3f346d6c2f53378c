"""Persons with visits: how near two synthetic tables are to the rows, beside other real persons.

    python -m benchmarks.visits [--sets clinic randhie] [--epsilon 1 3 inf] [--runs 5] [--predict]
    python -m benchmarks.visits --peer hma=PYTHON --peer dpsynth=PYTHON ... --runs 1

A fifth of the persons is held out. Looks are those of a release, without a ledger; `inf` has a
ten-thousandth of the noise of epsilon 100. Writes results/visits.csv, a row for each run, and one
for the persons held out, whose distances are those of sampling. With `--peer` the rows of peers are
added (`peers_fit.fit_linked`, run by the peer's own Python on one thread), those of dpsynth at each
epsilon; SDV's protect nobody.

Figures (on the levels of the spec; 0 is best but for the last two): v1, mean total variation of one
column of visits; count, of the number of visits; lag1, of a column at two visits in a row; last, of
the last visit; broken, the part of persons with dates out of order, at one time, before birth or
after death; c2st, AUC of boosted trees that tell persons apart by sums over their visits (.5 is
best); next, AUC on held-out persons of the next visit's outcome by trees that learn on these rows;
effect, of RAND HIE's free plan, which was drawn by lot, on doctors' visits a year: the mean over
years of those who had it less that of all others. `--predict` has arrows chosen by the release.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import yaml
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from benchmarks.clinic import clinic
from benchmarks.peers_run import ONE_THREAD
from synthdp.data.domain import Domain
from synthdp.data.encoding import decode, encode
from synthdp.data.visits import VisitFrame, written
from synthdp.model.visits.draw import trajectories
from synthdp.model.visits.fit import fit
from synthdp.model.visits.planning import plan_linked
from synthdp.privacy.linked import fit_linked
from synthdp.privacy.session import Rehearsal
from synthdp.spec.model.linked import LinkedGraph, LinkedSpec

RESULTS = Path(__file__).parent / "results" / "visits.csv"
DATA = Path(__file__).parent / "data" / "visits"
Tables = tuple[pd.DataFrame, pd.DataFrame]
Floats = npt.NDArray[np.float64]


def spec_of(name: str, epsilon: float) -> LinkedSpec:
    """The spec of a set at a budget."""
    stated = yaml.safe_load((DATA / f"{name}.yaml").read_text(encoding="utf-8"))
    stated["privacy"]["epsilon"] = min(epsilon, 100.0)
    return LinkedSpec.model_validate(stated)


def both(name: str) -> Tables:
    """The persons and visits of a set."""
    if name == "clinic":
        return clinic(10_000, seed=1)
    read = (
        pd.read_csv(DATA / name / f"{t}.csv", dtype=str, keep_default_na=False)
        for t in ("persons", "visits")
    )
    persons, visits = read
    return persons, visits


def split(tables: Tables, key: str) -> tuple[Tables, Tables]:
    """Four fifths of the persons, and the others."""
    persons, visits = tables
    out = set(persons[key].sample(frac=0.2, random_state=7))
    held, held_visits = persons[key].isin(out), visits[key].isin(out)
    return (persons[~held], visits[~held_visits]), (persons[held], visits[held_visits])


def synthetic(spec: LinkedSpec, tables: Tables, epsilon: float) -> tuple[Tables, float]:
    """Both tables of a release of some rows, and its CPU seconds."""
    begun, rng, frame = time.process_time(), np.random.default_rng(), VisitFrame.from_spec(spec)
    plan = plan_linked(spec, frame)
    if math.isinf(epsilon):
        plan = plan.map(lambda purpose, look: look.scaled(1e-4))
    data = spec.dataset
    read = dict(zip((data.persons_name, data.visits_name), tables, strict=True))
    texts = {n: t.astype(object).where(t.notna() & (t != ""), None) for n, t in read.items()}
    columns = {name: Domain.from_spec(own) for name, own in spec.columns.items()}
    table = fit_linked(spec, frame, texts, columns, {}, holdout=0.0, rng=rng)
    model = fit(Rehearsal.of(table, plan), spec, frame, rng=rng).model.value
    drawn = trajectories(model, len(tables[0]), rng=rng)
    made = written(frame, drawn, key=spec.dataset.persons.key, rng=rng)
    return made, time.process_time() - begun


def of_peer(
    name: str, python: str, spec: LinkedSpec, tables: Tables, epsilon: float
) -> tuple[Tables, float]:
    """Both tables of a peer, and its CPU seconds."""
    data, rng = spec.dataset, np.random.default_rng()
    domains = {n: Domain.from_spec(own) for n, own in spec.columns.items()}
    names, kinds, key = (data.persons_name, data.visits_name), dict[str, Any](), data.persons.key
    own = {"number": "number", "integer": "number", "datetime": "date"}
    with tempfile.TemporaryDirectory() as folder:
        for table, name_of, to in zip(tables, names, ("persons", "visits"), strict=True):
            domain, written_as = domains[name_of], table
            kinds[to] = {c.name: own.get(c.type, "category") for c in domain.columns}
            if name == "dpsynth":
                texts = table.astype(object).where(table.notna() & (table != ""), None)
                written_as = pd.DataFrame(encode(domain, texts)[0], columns=domain.names)
                written_as.insert(0, key, table[key].to_numpy())
                kinds[to] = dict(zip(domain.names, domain.sizes, strict=True))
            written_as.to_csv(Path(folder, f"{to}.csv"), index=False)
        job = {"key": key, "order": data.visits.order, "at_most": data.visits.at_most}
        job |= {"epsilon": epsilon, "delta": spec.privacy.delta, "kinds": kinds}
        Path(folder, "job.json").write_text(json.dumps(job), encoding="utf-8")
        script = [python, str(Path(__file__).parent / "peers_fit" / "fit_linked.py"), name, folder]
        subprocess.run(script, check=True, env=os.environ | ONE_THREAD)
        made = []
        for name_of, to in zip(names, ("persons", "visits"), strict=True):
            found = pd.read_csv(Path(folder, f"made_{to}.csv"), dtype=str, keep_default_na=False)
            if name == "dpsynth":
                domain = domains[name_of]
                codes = found[list(domain.names)].astype(float).to_numpy(np.uint16)
                found = decode(domain, codes, rng=rng).assign(**{key: found[key].to_numpy()})
            made.append(found)
        seconds = json.loads(Path(folder, "cost.json").read_text(encoding="utf-8"))["cpu"]
    return (made[0], made[1]), float(seconds)


# --- figures ---


@dataclass(frozen=True)
class Judged:
    """Two tables as levels: `visits` by column in order of persons and dates, `owner` and `number`
    of each visit from 0.
    """

    visits: Mapping[str, npt.NDArray[np.uint16]]
    people: npt.NDArray[np.uint16]
    owner: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    broken: float

    @classmethod
    def of(cls, spec: LinkedSpec, tables: Tables) -> Judged:
        """The levels of tables, and whose dates are wrong."""
        data, (persons, visits) = spec.dataset, tables
        key, order = data.persons.key, data.visits.order
        people, events = (
            Domain.from_spec(spec.columns[n]) for n in (data.persons_name, data.visits_name)
        )
        place = pd.Series(np.arange(len(persons)), index=persons[key].astype(str))
        owner = place[visits[key].astype(str)].to_numpy()
        frame = visits.assign(_owner=owner)
        codes, encoded = encode(
            events, frame.astype(object).where(frame.notna() & (frame != ""), None)
        )
        when = encoded[order].numbers
        assert when is not None
        rank = np.lexsort((when, owner))
        owner, when, codes = owner[rank], when[rank], codes[rank]
        begins = np.flatnonzero(np.diff(owner, prepend=-1))
        counts = np.bincount(owner, minlength=len(persons))
        number = np.arange(len(owner)) - np.repeat(begins, counts[counts > 0])
        wrong = np.zeros(len(persons), bool)
        wrong[owner[1:][(np.diff(owner) == 0) & (np.diff(when) <= 0)]] = True
        whole = persons.astype(object).where(persons.notna() & (persons != ""), None)
        own, columns = encode(people, whole)
        for name, sign in ((spec.birth, 1), (spec.death, -1)):
            if name is not None and (dates := columns[name].numbers) is not None:
                known = own[:, people.index(name)] != (people[name].missing_level or -1)
                off = sign * (dates[owner] - when) > 0
                wrong[owner[off & known[owner]]] = True
        by_name = {n: codes[:, events.index(n)] for n in events.names}
        return cls(by_name, own, owner, number, counts, float(wrong.mean()))

    @property
    def last(self) -> npt.NDArray[np.bool_]:
        """Whether a visit is its person's last."""
        found: npt.NDArray[np.bool_] = self.number == self.counts[self.owner] - 1
        return found

    def sums(self) -> Floats:
        """What a person's visits sum to: counts; mean, first, last and changes of each column."""
        first, some = self.number == 0, np.maximum(self.counts, 1)
        found = [self.counts, *self.people.T]
        step = np.append(False, self.owner[1:] == self.owner[:-1])
        for levels in self.visits.values():
            ends = np.full((2, len(self.counts)), -1)
            ends[0, self.owner[first]], ends[1, self.owner[self.last]] = (
                levels[first],
                levels[self.last],
            )
            moved = step & np.append(False, levels[1:] != levels[:-1])
            total = np.bincount(self.owner, levels, len(self.counts))
            found += [total / some, *ends, np.bincount(self.owner, moved, len(self.counts))]
        return np.stack(found, 1).astype(np.float64)

    def following(self, outcome: npt.NDArray[np.bool_]) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Features of each visit but the last, with the one before; and the outcome next."""
        now = np.flatnonzero(~self.last)
        levels = np.stack([*self.visits.values()], 1).astype(np.float64)
        before = np.where((self.number[now] > 0)[:, None], levels[np.maximum(now - 1, 0)], -1)
        features = [levels[now], before, self.people[self.owner[now]], self.number[now][:, None]]
        return np.concatenate(features, 1), outcome[now + 1]


def plan_effect(name: str, spec: LinkedSpec, tables: Tables) -> dict[str, float]:
    """What a set's randomised treatment of persons does to the mean of an outcome of visits."""
    if name not in EFFECTS:
        return {}
    (treatment, level, outcome), (persons, visits) = EFFECTS[name], tables
    key = spec.dataset.persons.key
    treated = persons[key][persons[treatment].astype(str) == level].astype(str)
    y, own = pd.to_numeric(visits[outcome]), visits[key].astype(str).isin(treated)
    return {"effect": float(y[own].mean() - y[~own].mean())}


def distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Total variation of the laws of two arrays of rows `[rows, columns]`."""
    first, second = (pd.Series(map(tuple, x.tolist())).value_counts(normalize=True) for x in (a, b))
    return float(first.sub(second, fill_value=0).abs().sum() / 2)


def figures(
    real: Judged, found: Judged, held: Judged, outcome: tuple[str, int]
) -> dict[str, float]:
    """How near `found` is to `real`; `outcome` is a column and its least level that counts."""

    def mean(part: Any) -> float:
        return float(np.mean([distance(part(real, n), part(found, n)) for n in real.visits]))

    def pairs(x: Judged, name: str) -> npt.NDArray[Any]:
        later = np.flatnonzero(x.number > 0)
        return np.stack([x.visits[name][later - 1], x.visits[name][later]], 1)

    def happened(x: Judged) -> npt.NDArray[np.bool_]:
        return x.visits[outcome[0]] >= outcome[1]

    sums = [
        x.sums()[np.random.default_rng(0).permutation(len(x.counts))[:4000]] for x in (real, found)
    ]
    size = min(map(len, sums))
    which = np.repeat([0, 1], size)
    trees = HistGradientBoostingClassifier(random_state=0)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    apart = cross_val_predict(
        trees, np.concatenate([s[:size] for s in sums]), which, cv=folds, method="predict_proba"
    )
    known, happens = (x[:40_000] for x in found.following(happened(found)))
    features, truth = held.following(happened(held))
    told = np.full(len(truth), 0.5)  # by rows that tell nothing of it
    if len({*happens.tolist()}) > 1:
        told = trees.fit(known, happens).predict_proba(features)[:, 1]
    return {
        "v1": mean(lambda x, n: x.visits[n][:, None]),
        "count": distance(real.counts[:, None], found.counts[:, None]),
        "lag1": mean(pairs),
        "last": mean(lambda x, n: x.visits[n][x.last][:, None]),
        "broken": found.broken,
        "c2st": float(roc_auc_score(which, apart[:, 1])),
        "next": float(roc_auc_score(truth, told)),
    }


OUTCOMES = {"clinic": ("admitted", 1), "randhie": ("totadm", 1)}
EFFECTS = {"randhie": ("coins", "0", "mdvis")}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sets", nargs="+", default=[*OUTCOMES])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 3.0, math.inf])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--predict", action="store_true")
    args = parser.parse_args()
    rows = (
        pd.read_csv(RESULTS, dtype={"epsilon": str}).to_dict("records") if RESULTS.exists() else []
    )
    for name in args.sets:
        spec, outcome = spec_of(name, 1.0), OUTCOMES[name]
        train, held = split(both(name), spec.dataset.persons.key)
        real, other = Judged.of(spec, train), Judged.of(spec, held)
        if not args.peer:
            for row, tables, judged in (("held out", held, other), ("real", train, real)):
                found = figures(real, judged, other, outcome) | plan_effect(name, spec, tables)
                if judged is other:
                    del found["next"]  # learned on the rows that it is told of
                rows.append({"set": name, "epsilon": row} | found)
        peers = [peer.split("=", 1) for peer in args.peer]
        own = "synthdp, predict" if args.predict else "synthdp"
        runs = list(product(peers or [[own, ""]], args.epsilon, range(args.runs)))
        for (maker, python), epsilon, _ in runs:
            at = {"set": name, "epsilon": f"{epsilon:g}", "maker": maker}
            if maker in ("hma", "par"):  # no budget
                at["epsilon"] = ""
                if epsilon != args.epsilon[0]:
                    continue
            spec = spec_of(name, epsilon)
            if args.predict:
                spec = spec.model_copy(update={"graph": LinkedGraph(mode="predict")})
            if python:
                made, seconds = of_peer(maker, python, spec, train, epsilon)
            else:
                made, seconds = synthetic(spec, train, epsilon)
            found = figures(real, Judged.of(spec, made), other, outcome)
            found |= plan_effect(name, spec, made)
            rows.append(at | found | {"cpu": seconds})
            print(at, {k: round(v, 3) for k, v in found.items()}, flush=True)
            pd.DataFrame(rows).round(4).to_csv(RESULTS, index=False)
    by = ["set", "epsilon", "maker"]
    table = pd.DataFrame(rows).fillna({"maker": ""}).groupby(by).agg("mean", numeric_only=True)
    print(table.round(3).to_string())


if __name__ == "__main__":
    main()
