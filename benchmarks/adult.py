"""Adult at one total epsilon: the causal model and its non-causal twin, quality beside CPU seconds
and memory.

    python -m benchmarks.adult [--epsilon 1] [--runs 3]
                               [--variants given earlier partial learned predict newcomer none]

`given` has the expert graph of specs/adult.yaml. `earlier` is its control: all the same, but every
column depends on all earlier ones in the order of `TIERS`. `learned` has one that is learned from
noisy tables within the same total, knowing only what comes before what (`TIERS`); `partial` besides
declares that income may depend on everything that comes before it, and learns the rest. `predict`
declares nothing but the label, and `newcomer` no bins either, as `synthdp init` drafts a spec.
`none` is a plain VAE. Only `given` and `partial` have a stage for the target: a graph that is
learned as a whole misses some of its causes, without which the network does better; there the
target is drawn evenly all the same.

Each fit runs in a process of its own on one thread and is measured from the plan to the last
sampled row; the epsilon is the total for everything the run released. Writes results/adult.csv,
where rows of other variants and epsilons stay, and results/adult.png.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from benchmarks.memory import peak_mb

if TYPE_CHECKING:
    from synthdp.spec.model import ReleaseSpec

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
DELTA = 1e-5
TIERS = (
    ("age", "sex", "race", "native-country"),
    (
        "education-num",
        "marital-status",
        "relationship",
        "workclass",
        "occupation",
        "hours-per-week",
        "capital-gain",
        "capital-loss",
        "fnlwgt",
    ),
    ("income",),
)
LEARNED_SHARES = {"measure": 0.2, "graph": 0.7, "train": 0.1}
PARTIAL_SHARES = {"measure": 0.2, "graph": 0.55, "targets": 0.2, "train": 0.05}
PARTIAL_STEPS = 800
VARIANTS = {
    "given": "synthdp, expert graph",
    "earlier": "synthdp, every earlier column as a cause",
    "partial": "synthdp, causes of the label declared, the rest learned",
    "learned": "synthdp, learned graph",
    "predict": "synthdp, mode predict (no arrow declared)",
    "newcomer": "synthdp, as init drafts it: mode predict, no bins",
    "none": "synthdp, no graph (plain VAE)",
}
PLAIN_LATENT = 4  # without a graph z carries every dependence
FIGURES = (
    "tv1",
    "tv2",
    "tv3",
    "c2st",
    "mean_auc",
    "lr_auc",
    "hgb_auc",
    "mean_acc",
    "mean_f1",
    "cpu_s",
    "rss_gb",
)


def fit(variant: str, epsilon: float, train: Path, out: Path) -> None:
    """One fit in this process: write the synthetic table to `out` and the cost to stdout as
    JSON.
    """
    from synthdp.data.domain import Domain
    from synthdp.data.encoding import decode
    from synthdp.ledger.ledger import Ledger
    from synthdp.model.fit import fit as fit_pipeline
    from synthdp.model.planning import plan_for
    from synthdp.model.sampling import sample
    from synthdp.privacy.noise import Streams, fresh_generator
    from synthdp.privacy.session import Session
    from synthdp.privacy.source import read_private

    release = spec_for(variant, epsilon, train)
    domain, streams, folder = Domain.from_spec(release.columns), Streams.fresh(), out.parent
    private = read_private(release.dataset, domain, folder=folder, holdout=0.0, streams=streams)
    ledger = Ledger(f"sqlite:///{out.with_suffix('.db')}")
    ledger.reserve(release.dataset.id, out.stem, epsilon=epsilon, delta=DELTA, cap=None, body={})
    started = time.process_time()
    plan = plan_for(release, domain)
    journal = out.with_suffix(".journal")
    journal.mkdir()
    session = Session(
        private,
        plan,
        ledger,
        dataset=release.dataset.id,
        run=out.stem,
        streams=streams,
        journal=journal,
    )
    fitted = fit_pipeline(session, release, domain, progress=lambda done, total: None)
    codes = sample(fitted, release, rng=fresh_generator(), progress=lambda done, total: None).value
    cpu = time.process_time() - started
    decode(domain, codes, rng=fresh_generator()).to_csv(out, index=False)
    memory = peak_mb() / 1024
    print(
        json.dumps(
            {
                "cpu_s": cpu,
                "rss_gb": memory,
                "epsilon_spent": plan.epsilon_spent,
                "process_cpu_s": time.process_time(),
            }
        )
    )


def spec_for(variant: str, epsilon: float, train: Path):  # type: ignore[no-untyped-def]
    """`specs/adult.yaml` on the fit rows, everything spent on the synthesizer; `variant` says where
    the graph comes from.
    """
    from synthdp.spec.checks.checks import check
    from synthdp.spec.load.loader import load_spec
    from synthdp.spec.model import CsvSource, DeclaredRows, Graph, Shares

    base = newcomers() if variant == "newcomer" else load_spec(ROOT / "specs" / "adult.yaml")
    rows = sum(1 for _ in train.open(encoding="utf-8")) - 1
    dataset = base.dataset.model_copy(
        update={
            "source": CsvSource(kind="csv", path=str(train)),
            "rows": DeclaredRows(kind="public", value=rows),
        }
    )
    before = [name for tier in TIERS[:-1] for name in tier]
    order = [*before, *TIERS[-1]]
    graphs = {
        "given": base.graph,
        "earlier": Graph(
            mode="given",
            edges=tuple(f"{', '.join(order[:i])} -> {n}" for i, n in enumerate(order) if i),
        ),
        "partial": Graph(
            mode="learn",
            tiers=TIERS,
            edges=(f"{', '.join(before)} -> {TIERS[-1][0]}",),
            max_parents=len(before),
        ),
        "learned": Graph(mode="learn", tiers=TIERS),
        "predict": Graph(mode="predict"),
        "newcomer": Graph(mode="predict"),
        "none": Graph(mode="none"),
    }
    shares = {
        "partial": Shares(**PARTIAL_SHARES),
        "learned": Shares(**LEARNED_SHARES),
    }.get(variant, base.privacy.shares)
    pairs = () if shares.pairs == 0 else base.privacy.pairs
    release = base.model_copy(
        update={
            "dataset": dataset,
            "privacy": base.privacy.model_copy(
                update={"epsilon": epsilon, "delta": DELTA, "cap": None, "shares": shares}
                | {"pairs": pairs}
            ),
            "graph": graphs[variant],
            "evaluation": base.evaluation.model_copy(
                update={
                    "targets": TIERS[-1] if variant == "newcomer" else (),
                    "disclosure": "confidential",
                }
            ),
            "gates": (),
        }
    )
    changed = {"learned": evenly, "predict": predictive, "none": plain, "partial": longer}
    release = check(changed.get(variant, lambda own: own)(release))
    judged_elsewhere = release.evaluation.model_copy(update={"holdout": 0.0})
    return release.model_copy(update={"evaluation": judged_elsewhere})


def newcomers() -> ReleaseSpec:
    """The spec as `init` drafts it: types, bounds, categories and the label."""
    import yaml

    from synthdp.spec.load.loader import parse_spec

    written = yaml.safe_load((ROOT / "specs" / "adult.yaml").read_text(encoding="utf-8"))
    kept = {key: written[key] for key in ("synthdp", "dataset", "evaluation")}
    columns = {
        name: {k: v for k, v in column.items() if k not in ("bins", "edges", "spikes")}
        for name, column in written["columns"].items()
    }
    drafted = {
        **kept,
        "columns": columns,
        "privacy": {"epsilon": 1.0, "delta": DELTA},
        "graph": {"mode": "predict"},
    }
    return parse_spec(yaml.safe_dump(drafted, sort_keys=False), path="adult")


def predictive(spec: ReleaseSpec) -> ReleaseSpec:
    """`release` as `init` would have it: the label is named, and nothing else."""
    from synthdp.spec.model.rules import PREDICT_SHARES

    label = spec.synthesizer.targets
    return spec.model_copy(
        update={
            "privacy": spec.privacy.model_copy(update={"shares": PREDICT_SHARES, "pairs": ()}),
            "synthesizer": spec.synthesizer.model_copy(
                update={"targets": (), "hidden": 1, "latent": 1}
            ),
            "evaluation": spec.evaluation.model_copy(update={"targets": label}),
        }
    )


def longer(spec: ReleaseSpec) -> ReleaseSpec:
    """`release` with the usual steps: no table says what the target depends on."""
    synthesizer = spec.synthesizer.model_copy(update={"steps": PARTIAL_STEPS})
    return spec.model_copy(update={"synthesizer": synthesizer})


def evenly(spec: ReleaseSpec) -> ReleaseSpec:
    """`release` without the stage of its targets, which are drawn evenly all the same."""
    even = spec.sampling.model_copy(update={"even": spec.synthesizer.targets})
    return untargeted(spec).model_copy(update={"sampling": even})


def plain(spec: ReleaseSpec) -> ReleaseSpec:
    """`release` as a plain VAE has it: no stage for targets, and a wider z. Its graph is left to
    the caller.
    """
    without = untargeted(spec)
    return without.model_copy(
        update={"synthesizer": without.synthesizer.model_copy(update={"latent": PLAIN_LATENT})}
    )


def untargeted(spec: ReleaseSpec) -> ReleaseSpec:
    """`release` without the stage of the targets, which need arrows; its share goes into the
    training.
    """
    shares = spec.privacy.shares
    shares = shares.model_copy(update={"targets": 0.0, "train": shares.train + shares.targets})
    return spec.model_copy(
        update={
            "privacy": spec.privacy.model_copy(update={"shares": shares}),
            "synthesizer": spec.synthesizer.model_copy(update={"targets": ()}),
        }
    )


def one_run(
    variant: str, epsilon: float, train: Path, folder: Path, number: int
) -> tuple[dict[str, float], Path]:
    """A fit in a fresh process on one thread."""
    out = folder / f"{variant}-{epsilon:g}-{number}.csv"
    command = [
        sys.executable,
        "-m",
        "benchmarks.adult",
        "--fit",
        variant,
        "--epsilon",
        str(epsilon),
        "--train",
        str(train),
        "--out",
        str(out),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1]), out


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        fit(options.fit, options.epsilon[0], options.train, options.out)
        return
    rows = [real_rows()] + [
        row
        for epsilon in options.epsilon
        for variant in options.variants
        for row in _runs(variant, epsilon, options.runs)
    ]
    path = RESULTS / "adult.csv"
    table = pd.DataFrame(rows).round(5)
    if path.exists():
        table = pd.concat([_others(pd.read_csv(path), table), table], ignore_index=True)
    table.to_csv(path, index=False)
    means = table.groupby(["epsilon", "variant"], sort=False)[list(FIGURES)].mean()
    print(means.round(4).to_string())
    plot(table, RESULTS / "adult.png")


def _others(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Rows of variants and epsilons that were not run now."""
    cells = ["variant", "epsilon"]
    run = pd.MultiIndex.from_frame(now[cells])
    return before[~pd.MultiIndex.from_frame(before[cells]).isin(run)]


def real_rows() -> dict[str, object]:
    """The ceiling: classifiers trained on the real fit rows."""
    from benchmarks.adult_protocol import score, split
    from synthdp.data.domain import Domain
    from synthdp.spec.load.loader import load_spec

    domain = Domain.from_spec(load_spec(ROOT / "specs" / "adult.yaml").columns)
    train, test = split(ROOT / "specs" / "data" / "adult.csv")
    return {"variant": "real rows", "epsilon": 0.0, "run": 0, **score(domain, train, test, train)}


def _runs(variant: str, epsilon: float, runs: int) -> list[dict[str, object]]:
    from benchmarks.adult_protocol import score, split
    from synthdp.data.domain import Domain
    from synthdp.spec.load.loader import load_spec

    domain = Domain.from_spec(load_spec(ROOT / "specs" / "adult.yaml").columns)
    train, test = split(ROOT / "specs" / "data" / "adult.csv")
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train.to_csv(folder / "train.csv", index=False)
        for number in range(runs):
            cost, csv = one_run(variant, epsilon, folder / "train.csv", folder, number)
            synthetic = pd.read_csv(csv, dtype=str, keep_default_na=False)
            row = {
                "variant": variant,
                "epsilon": epsilon,
                "run": number,
                **cost,
                **score(domain, train, test, synthetic),
            }
            found.append(row)
            print(
                json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}),
                file=sys.stderr,
                flush=True,
            )
    return found


def peers(path: Path) -> list[tuple[str, float, float]]:
    """Name, mean AUC and distance of each peer on Adult at epsilon 1, means of its runs."""
    runs = pd.read_csv(path)
    own = runs[
        (runs["table"] == "adult")
        & (runs["epsilon"] == 1)
        & (runs["outcome"] == "ok")
        & ~runs["peer"].str.startswith("synthdp")
    ]
    means = own.groupby("peer")[["mean_auc", "tv2"]].mean()
    return [
        (str(name), float(row["mean_auc"]), float(row["tv2"])) for name, row in means.iterrows()
    ]


MIN_AUC = 0.825  # peers below are named in the margin


def plot(table: pd.DataFrame, path: Path) -> None:
    """Quality against distance, means of the runs. Crosses: peers at epsilon 1, as
    `benchmarks.peers` measured them.
    """
    from matplotlib.figure import Figure

    from benchmarks import look

    figure = Figure(figsize=(8.4, 5.6), layout="constrained")
    axes = figure.subplots()
    ceiling = float(table.loc[table["variant"] == "real rows", "mean_auc"].iloc[0])
    cells = table[table["variant"] != "real rows"].groupby(["variant", "epsilon"], sort=False)
    for (place, ((variant, epsilon), group)), marker in zip(
        enumerate(cells), "osD^vP*Xp", strict=False
    ):
        axes.scatter(
            group["mean_auc"],
            group["tv2"],
            label=f"{VARIANTS[str(variant)]}, epsilon {epsilon:g}",
            s=70 if marker == "*" else 34,
            marker=marker,
            color=look.SERIES[place % len(look.SERIES)],
            edgecolor="white",
            linewidth=0.5,
        )
    for name, auc, tv2 in peers(RESULTS / "peers.csv"):
        shown = max(auc, MIN_AUC)
        axes.scatter(shown, tv2, marker="x", color=look.OF[name])
        text = name if shown == auc else f"{name}, AUC {auc:.3f}"
        axes.annotate(text, (shown, tv2), textcoords="offset points", xytext=(6, 4), fontsize=8)
    axes.axvline(ceiling, color=look.REAL, linestyle=":")
    axes.text(
        ceiling, 0.97, "real rows ", ha="right", fontsize=8, transform=axes.get_xaxis_transform()
    )
    axes.set(
        xlabel="mean AUC of five classifiers, trained on synthetic, tested on real rows",
        ylabel="mean total variation of pair tables",
        yscale="log",
        title=f"Adult, delta {DELTA:g}; crosses: peers at epsilon 1",
    )
    ticks = [0.005, 0.01, 0.02, 0.05, 0.1]
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_yticks([], minor=True)
    look.better(axes, "right and down")
    figure.legend(loc="outside lower center", ncols=2)
    figure.savefig(path)


if __name__ == "__main__":
    main()
