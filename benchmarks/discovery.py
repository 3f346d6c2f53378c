"""Causal discovery: F1 of arcs against total epsilon on public networks, by algorithm.

    python -m benchmarks.discovery [--algorithms measured_pc pc ...] [--networks asia ...]
    [--epsilons .1 .3 1 3 10]
        [--deltas 1e-3 1e-5] [--adjacency add_remove] [--seeds 5] [--first-seed 100] [--rows 100000]
        [--jobs 1] [--fresh] [--folder FOLDER]

Each cell draws its own sample from the network's tables and searches it by the road of a release:
the whole of (epsilon, delta) is planned for the search, noise and all, and charged to a rehearsal.
F1 counts the arcs of the CPDAG, an undirected link as two; `skeleton_f1` its links, whatever their
direction, and `shd` the pairs that are linked or directed otherwise. `--rows 1000000` draws more
rows. CPU is the search alone, counting and noise included. `pc` is textbook PC without privacy.
Seven networks are tuned on: `measured_pc` saw their data seeds below 10, random tables for their
structures, and random networks. The networks `UNSEEN` chose no constant but three: the veto of
v-structures, on insurance, with a look at the first five; and the most contrasts of a test and the
most cells of a pair, on mildew. Their files are not part of the project: `--folder` holds them as
.bif or .bif.gz, as the wheel of pgmpy 0.1.26 has them (utils/example_models). Cells already in
results/discovery.csv are not computed again; `--fresh` forgets those it was asked for. Writes
results/discovery.csv and results/discovery.png.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from joblib import Parallel, delayed

from benchmarks.bif import BayesianNetwork, parse_bif, read_bif
from benchmarks.random_networks import random_network
from synthdp.data.domain import Domain
from synthdp.drawing import BOUND, GREEN, GREY, OCHRE, SYNTHETIC
from synthdp.graph.causal import CausalGraph, GraphEdge, arc_f1, difference
from synthdp.graph.chi_square import Answer, Query
from synthdp.graph.discovery import ALGORITHMS, algorithm_named, pc_skeleton
from synthdp.graph.knowledge import Knowledge, Pdag, meek, orient_colliders, unshielded
from synthdp.graph.tables import NoisyTables
from synthdp.privacy.calibration import make_search_plan
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.session import Rehearsal
from synthdp.privacy.table import count_tables
from synthdp.spec.model import Graph

Codes = npt.NDArray[np.uint16]

RESULTS = Path(__file__).parent / "results"
BIF = Path(__file__).parent.parent / "tests" / "graph" / "data"
SMALL = ("cancer", "earthquake", "survey", "asia")
TUNED = (*SMALL, "sachs", "child", "alarm")
UNSEEN = ("insurance", "hailfinder", "water", "hepar2", "win95pts", "mildew", "barley", "andes")
IN_PART = ("insurance", "mildew")  # they chose one or two constants
RANDOM = tuple(f"random-{seed}" for seed in range(1, 13))  # tuned on, too
NETWORKS = (*TUNED, *UNSEEN, *RANDOM)
NON_PRIVATE = "pc"
DEFAULT = ("measured_pc", "priv_pc", "svt_pc", "em_pc", NON_PRIVATE)
KEYS = ["algorithm", "network", "rows", "epsilon", "delta", "adjacency", "seed"]
LEVEL, ORDER = 0.01, 3  # of the textbook's tests


@cache
def network(name: str, folder: Path = BIF) -> BayesianNetwork:
    """One of the public networks, or random-SEED."""
    if name.startswith("random-"):
        return random_network(int(name.removeprefix("random-")))
    if (packed := folder / f"{name}.bif.gz").exists():
        return parse_bif(gzip.decompress(packed.read_bytes()).decode(), file=packed.name)
    return read_bif((BIF if name in TUNED else folder) / f"{name}.bif")


@cache
def ordered_domain(net: BayesianNetwork) -> Domain:
    """Levels count as ordered as listed, for the algorithms that need an order."""
    return Domain(tuple(replace(c, type="ordinal") for c in net.domain().columns))


@cache
def plan_of(
    algorithm: str, net: BayesianNetwork, rows: int, epsilon: float, delta: float, adjacency: Any
) -> ReleasePlan:
    """A plan that spends everything on the search."""
    settings = Graph(mode="learn", algorithm=algorithm)
    spends = algorithm_named(algorithm).spends(settings, ordered_domain(net), rows)
    return make_search_plan(spends, epsilon=epsilon, delta=delta, adjacency=adjacency)


def cell(
    algorithm: str,
    name: str,
    rows: int,
    epsilon: float,
    delta: float,
    adjacency: str,
    seed: int,
    folder: Path = BIF,
) -> dict[str, Any]:
    """One search of one sample, as a row of the table."""
    net = network(name, folder)
    domain, codes = (
        ordered_domain(net),
        net.sample(rows, rng=np.random.default_rng([seed, rows])),
    )
    if algorithm == NON_PRIVATE:
        started = time.process_time()
        found, spent = textbook_pc(codes, domain), np.inf
    else:
        plan = plan_of(algorithm, net, rows, epsilon, delta, adjacency)
        settings = Graph(mode="learn", algorithm=algorithm)
        rehearsal, spent = Rehearsal(codes, domain, plan), plan.epsilon_spent
        started = time.process_time()
        result = algorithm_named(algorithm).search(rehearsal, settings, domain, None)
        found = result if isinstance(result, CausalGraph) else result.value
    cpu = time.process_time() - started
    truth = net.graph().cpdag()
    links, wanted = ({frozenset(p) for p in (*g.directed, *g.undirected)} for g in (found, truth))
    key = dict(zip(KEYS, (algorithm, name, rows, epsilon, delta, adjacency, seed), strict=True))
    figures = {
        "f1": arc_f1(found, truth),
        "skeleton_f1": skeleton_f1(len(wanted), len(links - wanted), len(wanted - links)),
        "shd": difference(found, truth).distance,
        "false_links": len(links - wanted),
        "missed_links": len(wanted - links),
    }
    return key | figures | {"epsilon_planned": spent, "cpu_s": round(cpu, 4)}


def skeleton_f1(wanted: int, false: int, missed: int) -> float:
    """F1 of links, whatever their direction: of so many wanted ones, and so many errors.

    >>> skeleton_f1(wanted=8, false=1, missed=2)
    0.8
    """
    found = wanted - missed
    return 2 * found / (2 * found + false + missed) if found else 0.0


def textbook_pc(codes: Codes, domain: Domain) -> CausalGraph:
    """PC-stable on exact counts: chi-square, first separating set, v-structures, Meek's rules."""

    def test(_: int, queries: Sequence[Query]) -> list[Answer]:
        columns = list(dict.fromkeys((a, b, *given) for a, b, given in queries))
        counts = count_tables(codes, domain, columns)
        tables = NoisyTables(
            NoisyTable(c, n.astype(np.float64), 0.0) for c, n in zip(columns, counts, strict=True)
        )
        return tables.answer(queries, level=LEVEL, margin=0.0)

    knowledge = Knowledge(domain.names)
    skeleton = pc_skeleton(test, knowledge, max_order=ORDER)
    graph = Pdag(domain.names, undirected=sorted(skeleton.linked))
    separators = {
        frozenset(pair): skeleton.separators(pair)[0][0]
        for pair in skeleton.evidence
        if pair not in skeleton.linked
    }
    orient_colliders(
        graph,
        [t for t in unshielded(graph) if t[1] not in separators[frozenset((t[0], t[2]))]],
        knowledge,
    )
    meek(graph)
    edges = [GraphEdge(a, b, directed=True, provenance="learned") for a, b in graph.directed()]
    return CausalGraph(
        domain.names,
        (
            *edges,
            *(GraphEdge(a, b, directed=False, provenance="learned") for a, b in graph.undirected()),
        ),
    )


def run(options: argparse.Namespace, path: Path) -> pd.DataFrame:
    """The table, with the cells that were asked for; saved after every batch."""
    cells = [
        (algorithm, name, options.rows, *budget, options.first_seed + seed)
        for algorithm, name, seed in product(
            options.algorithms, options.networks, range(options.seeds)
        )
        for budget in (
            [(np.inf, 0.0, "")]
            if algorithm == NON_PRIVATE
            else product(options.epsilons, options.deltas, [options.adjacency])
        )
    ]
    cells = [c for c in cells if c[0] != "em_pc" or c[1] in SMALL]
    table = (
        pd.read_csv(path, keep_default_na=False) if path.exists() else pd.DataFrame(columns=KEYS)
    )
    table = table.astype({"epsilon": float, "delta": float})
    held = pd.MultiIndex.from_frame(table[KEYS])
    if options.fresh:
        table = table[~held.isin(cells)]
        held = pd.MultiIndex.from_frame(table[KEYS])
    missing = [c for c in cells if c not in held]
    for start in range(0, len(missing), BATCH):
        rows = Parallel(n_jobs=options.jobs)(
            delayed(cell)(*c, options.folder) for c in missing[start : start + BATCH]
        )
        table = pd.concat([table, pd.DataFrame(rows)]) if len(table) else pd.DataFrame(rows)
        table.sort_values(KEYS).to_csv(path, index=False)
        print(f"{min(start + BATCH, len(missing))} of {len(missing)} cells", flush=True)
    return table


BATCH, ROWS = 50, 100_000
LOOKS: dict[str, dict[str, Any]] = {  # one colour, line and marker each, in every panel
    "measured_pc": {"color": SYNTHETIC, "linestyle": "-", "marker": "o"},
    "priv_pc": {"color": OCHRE, "linestyle": "--", "marker": "s"},
    "svt_pc": {"color": GREEN, "linestyle": "-.", "marker": "^"},
    "em_pc": {"color": BOUND, "linestyle": (0, (1, 1)), "marker": "D"},
    "rcit_pc": {"color": GREY, "linestyle": (0, (5, 2, 1, 2)), "marker": "v"},
}


def _tuned(name: str) -> str:
    if name in IN_PART:
        return "tuned on in part"
    return "tuned on" if name in TUNED else "not tuned on"


def plot(table: pd.DataFrame, path: Path, *, delta: float, adjacency: str) -> None:
    """F1 against total epsilon, a panel per network: mean over seeds, and the range."""
    from matplotlib.figure import Figure

    from benchmarks import look

    table = table[table.rows == ROWS]
    chosen = table[(table.delta == delta) & (table.adjacency == adjacency)]
    names = [n for n in (*TUNED, *UNSEEN) if n in set(chosen.network)]
    figure = Figure(figsize=(12.5, 7.6), layout="constrained")
    axes = figure.subplots(-(-len(names) // 4), 4, sharey=True, squeeze=False)
    for name, axis in zip(names, axes.flat, strict=False):
        for algorithm, rows in chosen[chosen.network == name].groupby("algorithm"):
            by = rows.groupby("epsilon").f1.agg(["mean", "min", "max"])
            axis.plot(by.index, by["mean"], markersize=4, label=algorithm, **LOOKS[str(algorithm)])
            axis.fill_between(
                by.index, by["min"], by["max"], alpha=0.12, color=LOOKS[str(algorithm)]["color"]
            )
        exact = table[(table.algorithm == NON_PRIVATE) & (table.network == name)].f1
        if len(exact):
            axis.axhline(exact.mean(), color=look.REAL, linestyle=":", label="PC without privacy")
        axis.set(
            title=f"{name} ({_tuned(name)})",
            xscale="log",
            ylim=(0, 1.04),
            xlabel="total epsilon",
        )
    axes[0, 0].set_ylabel("F1 of arcs")
    axes[1, 0].set_ylabel("F1 of arcs")
    for axis in list(axes.flat)[len(names) :]:
        axis.axis("off")
    handles = {
        label: h
        for axis in axes.flat
        for h, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles))
    figure.suptitle(f"F1 of arcs, {ROWS:,} rows, delta {delta:g}, {adjacency}")
    figure.savefig(path)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--algorithms", nargs="+", default=list(DEFAULT), choices=[*ALGORITHMS, NON_PRIVATE]
    )
    parser.add_argument("--networks", nargs="+", default=list(TUNED), choices=NETWORKS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.3, 1.0, 3.0, 10.0])
    parser.add_argument("--deltas", nargs="+", type=float, default=[1e-3, 1e-5])
    parser.add_argument("--adjacency", default="add_remove", choices=["add_remove", "replace_one"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--folder", type=Path, default=BIF, help="where the other networks lie")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    table = run(options, RESULTS / "discovery.csv")
    plot(table, RESULTS / "discovery.png", delta=options.deltas[0], adjacency=options.adjacency)
    summary = table.pivot_table(
        index=["algorithm", "delta", "adjacency", "network"], columns="epsilon", values="f1"
    )
    print(summary.round(2).to_string())
    held = table[(table.epsilon == 1) | (table.algorithm == NON_PRIVATE)]
    by = held.groupby(["algorithm", "delta", "network"])[["f1", "skeleton_f1", "shd"]]
    print(by.mean().round(2).to_string())
    print(table.groupby(["algorithm", "network"]).cpu_s.median().unstack().round(3).to_string())


if __name__ == "__main__":
    main()
