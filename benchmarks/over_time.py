"""What a budget that must last gains from what is public already.

    python -m benchmarks.over_time priors [--tables adult employee wine] [--epsilon .1 1] [--runs 5]
                                          [--of releases laws]

`priors`: whole releases of a newcomer's spec (mode predict, no bins, delta 1e-5), with priors that
are rows of the same table, but neither of those that are released nor of those that are tested on:
`iid`, up to 2,000 of them; `one`, those of one group alone (women; of employees those with a low
salary, of wine the red); `young` and `old`, the lower and the upper third of a column (age; years
in the company; alcohol); `noisy`, all, a third of the cells of which were drawn anew from the
column. `none` is the control. `releases`: `tv1` and `tv2` are mean total variations of one- and
two-way tables of synthetic rows from the rows to fit, on the table's public grid, `auc` the mean
AUC on real test rows of five classifiers that learn the label on synthetic ones. `laws`: noisy
tables are measured once for all priors, and `tv1` and `tv2` are those of the laws that a model
would follow, of pairs on the groups of levels that they are counted on; `used` is the mean part of
a pair's table that is the prior's. Writes results/over_time_priors.csv, a row for each run; runs
that it holds are not run again.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks import adult, adult_protocol
from benchmarks.tables import newcomer_spec, released
from benchmarks.tables_protocol import PublicTable
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.predict import pair_tables
from synthdp.graph.prior import PublicRows
from synthdp.graph.stage import find_graph
from synthdp.model import fit as fitting
from synthdp.model.planning import plan_for
from synthdp.privacy.session import Rehearsal
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import CsvSource, ReleaseSpec

RESULTS = Path(__file__).parent / "results"
KEY = ["of", "table", "epsilon", "prior", "run"]
PRIORS = ("none", "iid", "one", "young", "old", "noisy")
GROUPS = {
    "adult": ("sex", "Female", "age"),
    "employee": ("salary", "low", "time_spend_company"),
    "wine": ("type", "red", "alcohol"),
}
"""Of each table: a column and the level that one group has, and the column of young and old."""
WORDS = {"none": "none", "iid": "same law", "one": "one group", "young": "lower third",
         "old": "upper third", "noisy": "a third\ndrawn anew"}  # fmt: skip
ROWS, ANEW = 2000, 1 / 3


@dataclass(frozen=True)
class Table:
    """A public table: rows to fit, rows for priors, and rows to test on."""

    name: str

    @cached_property
    def parts(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        if self.name == "adult":
            train, rest = adult_protocol.split(adult.ROOT / "specs" / "data" / "adult.csv")
        else:
            train, rest = PublicTable(self.name).split
        half = len(rest) // 2
        return train.reset_index(drop=True), rest.iloc[:half], rest.iloc[half:]

    def spec(self, epsilon: float) -> ReleaseSpec:
        """A newcomer's spec, everything spent on the synthesizer."""
        rows = len(self.parts[0])
        if self.name == "adult":
            spec = adult.newcomers()
            public = spec.dataset.rows.model_copy(update={"value": rows})
            source = CsvSource(kind="csv", path="values.csv")
            changed = {"rows": public, "source": source}
            privacy = spec.privacy.model_copy(update={"epsilon": epsilon, "cap": None})
            spec = spec.model_copy(
                update={"dataset": spec.dataset.model_copy(update=changed), "privacy": privacy}
            )
        else:
            table = PublicTable(self.name)
            text = newcomer_spec(table, rows=rows, epsilon=epsilon, mode="predict", bins="init")
            spec = parse_spec(text, path=self.name)
        own = spec.evaluation.model_copy(update={"holdout": 0.0, "disclosure": "confidential"})
        compute = spec.compute.model_copy(update={"threads": 1})
        return spec.model_copy(update={"evaluation": own, "compute": compute})

    def public(self, prior: str) -> pd.DataFrame:
        """The rows of a prior."""
        rows, (column, level, ordered) = self.parts[1], GROUPS[self.name]
        numbers = pd.to_numeric(rows[ordered])
        rng = np.random.default_rng(7)
        chosen: dict[str, Callable[[], pd.DataFrame]] = {
            "iid": lambda: rows.iloc[:ROWS],
            "one": lambda: rows[rows[column] == level],
            "young": lambda: rows[numbers <= numbers.quantile(1 / 3)],
            "old": lambda: rows[numbers >= numbers.quantile(2 / 3)],
            "noisy": lambda: rows.apply(
                lambda own: own.where(rng.random(len(own)) >= ANEW, rng.permutation(own))
            ),
        }
        return chosen[prior]()

    def figures(self, synthetic: pd.DataFrame) -> dict[str, float]:
        """Of a synthetic table of texts."""
        train, _, test = self.parts
        if self.name != "adult":
            table = PublicTable(self.name)
            real, drawn = table.levels(train), table.levels(synthetic)
            ways = {f"tv{k}": itertools.combinations(range(len(table.sizes)), k) for k in (1, 2)}
            found = {name: table._variation(real, drawn, sets) for name, sets in ways.items()}
            return found | {"auc": table.utility(synthetic, test)["auc"]}
        domain = Domain.from_spec(self.spec(1.0).columns)
        frames = [frame.replace("", np.nan) for frame in (train, test, synthetic)]
        codes = [encode(domain, frame)[0] for frame in frames]
        cells = [adult_protocol.on_grid(domain, frames[i], codes[i]) for i in (0, 2)]
        sizes = tuple(
            len(adult_protocol._edges(c.name)) - 1 if c.name in adult_protocol.NUMERIC else c.levels
            for c in domain.columns
        )
        variation = adult_protocol.total_variation(sizes, *cells)
        learnt = adult_protocol.train_synthetic_test_real(
            domain, frames[2], codes[2], frames[1], codes[1]
        )
        return {name: variation[name] for name in ("tv1", "tv2")} | {"auc": learnt["mean_auc"]}


def public_rows(table: Table, prior: str, domain: Domain) -> PublicRows | None:
    """The rows of a prior as levels."""
    if prior == "none":
        return None
    public = table.public(prior).replace("", np.nan)
    return PublicRows(domain.names, encode(domain, public)[0])


def of_release(table: Table, prior: str, epsilon: float) -> dict[str, float]:
    """Figures of one release."""
    spec = table.spec(epsilon)
    rows = public_rows(table, prior, Domain.from_spec(spec.columns))
    with tempfile.TemporaryDirectory() as folder:
        return table.figures(released(spec, table.parts[0], Path(folder), prior=rows))


def of_laws(table: Table, epsilon: float) -> dict[str, dict[str, float]]:
    """Figures of the laws by the same noisy tables, by prior."""
    spec = table.spec(epsilon)
    domain = Domain.from_spec(spec.columns)
    codes = encode(domain, table.parts[0].replace("", np.nan))[0]
    releaser = Rehearsal(codes, domain, plan_for(spec, domain))
    known, targets = fitting.measure(releaser), spec.evaluation.targets
    graph = find_graph(releaser, spec.graph, domain, known=known, targets=targets)
    tables = fitting.all_tables(known, graph).value
    found = dict[str, dict[str, float]]()
    for prior in PRIORS:
        law = LevelLaw.by_rows(tables, domain, public_rows(table, prior, domain))
        pairs, coarse, real = pair_tables(law), law.groups.coarse, law.groups.of(codes)
        ones, twos = [], []
        for i, name in enumerate(domain.names):
            true = np.bincount(codes[:, i], minlength=domain[name].levels) / len(codes)
            ones.append(np.abs(law.margins[i] - true).sum() / 2)
        for i, j in itertools.combinations(range(len(domain)), 2):
            a, b = domain.names[i], domain.names[j]
            true = np.zeros((coarse[a].levels, coarse[b].levels))
            np.add.at(true, (real[:, i], real[:, j]), 1 / len(real))
            apart = np.outer(pairs.margins[a], pairs.margins[b])
            own = pairs.table(a, b) if pairs.has(a, b) else apart
            twos.append(np.abs(own - true).sum() / 2)
        used = float(np.mean([pair.prior for pair in pairs.pairs.values()]))
        found[prior] = {"tv1": float(np.mean(ones)), "tv2": float(np.mean(twos)), "used": used}
    return found


def priors(asked: argparse.Namespace) -> None:
    """Run what is missing, and print means and standard errors."""
    path = RESULTS / "over_time_priors.csv"
    known = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=KEY)
    for number, of, epsilon, name, prior in itertools.product(
        range(asked.runs), asked.of, asked.epsilon, asked.tables, PRIORS
    ):
        key = dict(zip(KEY, (of, name, epsilon, prior, number), strict=True))
        if (known[KEY] == pd.Series(key)).all(axis=1).any():
            continue
        if of == "releases":
            found = [key | of_release(Table(name), prior, epsilon)]
        else:
            laws = of_laws(Table(name), epsilon)
            found = [key | {"prior": prior} | own for prior, own in laws.items()]
        known = pd.concat([known, pd.DataFrame(found)], ignore_index=True)
        known.sort_values(KEY).round(5).to_csv(path, index=False)
        print(*found, sep="\n", flush=True)
    cells = known.drop(columns="run").groupby(KEY[:-1])
    print(pd.concat({"mean": cells.mean(), "error": cells.sem()}, axis=1).round(4).to_string())


def plot(runs: pd.DataFrame, waves: pd.DataFrame, path: Path) -> None:
    """TV2 of whole releases by prior, as parts of that without one; and of waves."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    own = runs[(runs["of"] == "releases") & (runs["epsilon"] == runs["epsilon"].min())]
    for place, (name, group) in enumerate(own.groupby("table")):
        cells = group.groupby("prior")["tv2"]
        alone = cells.mean()["none"]
        means, errors = cells.mean()[[*PRIORS]] / alone, cells.sem()[[*PRIORS]] / alone
        at = np.arange(len(PRIORS)) + (place - 1) / 8
        left.errorbar(at, means, errors, fmt="o", capsize=3, label=name)
    left.axhline(1, color="grey", linewidth=0.8)
    left.set_xticks(range(len(PRIORS)), [WORDS[prior] for prior in PRIORS])
    left.set(ylim=(0, None), title="epsilon .1: TV2 over that without a prior (± standard error)")
    left.legend(loc="lower right")
    means = waves.groupby("release")["tv2"].mean()
    series = [n for n in means.index if n.startswith("w")]
    numbers = sorted(int(name[1:]) for name in series)
    right.plot([n + 1 for n in numbers], [means[f"w{n}"] for n in numbers], "o-", label="the wave")
    for name, label, style in (
        ("single", "one release that spends all", "--"),
        ("alone", "the last without those before", ":"),
    ):
        right.axhline(means[name], color="grey", linestyle=style, label=label)
    right.set(ylim=(0, None), xlabel="wave", title="TV2 of twelve waves under one cap of epsilon 1")
    right.legend(loc="lower right")
    figure.savefig(path)


def main() -> None:
    """Run the section that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    sections = parser.add_subparsers(required=True)
    own = sections.add_parser("priors")
    own.add_argument("--tables", nargs="+", default=[*GROUPS], choices=[*GROUPS])
    own.add_argument("--epsilon", nargs="+", type=float, default=(0.1, 1.0))
    own.add_argument("--runs", type=int, default=5)
    own.add_argument("--of", nargs="+", default=("releases", "laws"), choices=("releases", "laws"))
    own.set_defaults(section=priors)
    asked = parser.parse_args()
    asked.section(asked)


if __name__ == "__main__":
    main()
