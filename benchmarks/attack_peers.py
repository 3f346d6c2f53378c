"""The membership game against synthdp and its peers, by one command and with one adversary.

    python -m benchmarks.attack_peers [--peers synthdp synthdp-no-graph dpmm-mst smartnoise-mst
    bootstrap] [--pairs 100] [--epsilon 1]
                                      [--rows 500] [--columns 9] [--workers 2] [--limit 600] [--work
                                      build/attack_peers]

500 rows of the first nine columns of the built-in survey, which is simulated; the most isolated
row; `--pairs` models with it and as many without; one synthetic set of each, all of 499 rows. What
so many can prove stands in the table (`epsilon_provable`). Peers fit in environments of their own
(see `benchmarks.peers`), several models in one process, and get the rows as levels of the public
grid. They are attacked as black boxes, for a CSV is what they release; synthdp also as white boxes
of its model and tables. `bootstrap` copies rows at random: the control that any attack must see.
Peers draw their own randomness.

A peer's models are kept in the work folder: stop it at any time and start it again. Writes
results/attack_peers.csv. This is also the example of
how to attack any trainer that lives elsewhere: a class with `__call__`, and with `group` and `many`
where starting it is dear.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.fleet import survey
from benchmarks.membership import figures
from benchmarks.peers import PEERS
from benchmarks.peers_run import Peer, Request, python_of, run_many
from synthdp.audit.membership import WHITE_BOX
from synthdp.audit.shadow_models import ShadowTrainer
from synthdp.data.domain import Domain
from synthdp.privacy.calibration import make_plan
from synthdp.spec.model import Edge, ReleaseSpec
from synthdp_attacks import (
    Claim,
    Fleet,
    Loky,
    MembershipReport,
    Public,
    Serial,
    ThreatModel,
    WhiteBox,
    attack_membership,
    isolated_targets,
)
from synthdp_attacks.threat import Codes, Trainer

RESULTS = Path(__file__).parent / "results"
OURS, CONTROL = ("synthdp", "synthdp-no-graph"), "bootstrap"
NAMES = (*OURS, "dpmm-mst", "dpmm-aim", "smartnoise-mst", CONTROL)
STEPS, TOGETHER, DELTA, SEED, COLUMNS = 200, 10, 1e-5, 0, 9


@dataclass(frozen=True)
class PeerTrainer:
    """A synthesizer in an environment of its own; `group` models are fitted by one process, whose
    start is dear. It gives `released` rows of each.
    """

    peer: Peer
    sizes: tuple[int, ...]
    epsilon: float
    released: int
    seconds: float
    group: int = TOGETHER

    def __call__(self, rows: Codes, *, seed_sequence: np.random.SeedSequence) -> Codes:
        """Fit on levels `[rows, columns]` and sample."""
        return next(self.many([rows], seed_sequences=[seed_sequence]))

    def many(
        self, rows: Sequence[Codes], *, seed_sequences: Sequence[np.random.SeedSequence]
    ) -> Iterator[Codes]:
        """The same for each of `rows`.

        Raises:
            RuntimeError: a fit went wrong, in the peer's own words.
        """
        levels = {f"c{i}": size for i, size in enumerate(self.sizes)}
        tables = [pd.DataFrame(own, columns=list(levels)) for own in rows]
        requests = [
            Request("survey", table, table, levels, self.epsilon, DELTA) for table in tables
        ]
        with tempfile.TemporaryDirectory() as folder:
            for outcome in run_many(
                self.peer, requests, Path(folder), seconds=self.seconds * len(rows)
            ):
                if outcome.codes is None:
                    raise RuntimeError(outcome.words)
                # A peer writes as many rows as it was given, which alone would tell the worlds
                # apart.
                yield outcome.codes.to_numpy().astype(np.int64)[: self.released]


@dataclass(frozen=True)
class Bootstrap:
    """Copies of rows at random: no privacy at all."""

    released: int

    def __call__(self, rows: Codes, *, seed_sequence: np.random.SeedSequence) -> Codes:
        """Draw rows with replacement."""
        copies: Codes = np.random.default_rng(seed_sequence).choice(rows, size=self.released)
        return copies


@dataclass(frozen=True)
class Fixed:
    """One of our own trainers, whose sets have as many rows as those of the others."""

    shadow: ShadowTrainer
    released: int

    def __call__(self, rows: Codes, *, seed_sequence: np.random.SeedSequence) -> WhiteBox:
        """One shadow release."""
        return next(self.many([rows], seed_sequences=[seed_sequence]))

    @property
    def group(self) -> int:
        """As many as the pipeline trains side by side."""
        return self.shadow.group

    def many(
        self, rows: Sequence[Codes], *, seed_sequences: Sequence[np.random.SeedSequence]
    ) -> Iterator[WhiteBox]:
        """Shadow releases, trained side by side."""
        for white in self.shadow.many(rows, seed_sequences=seed_sequences):
            assert isinstance(white, WhiteBox)
            yield WhiteBox(white.synthetic[: self.released], white.scores)


def trainer(
    name: str, *, rows: int, columns: int, epsilon: float, seconds: float
) -> tuple[Codes, tuple[int, ...], Trainer, Claim | None]:
    """Rows, sizes of columns, what trains on them, and what it claims."""
    job = survey(STEPS)
    codes, sizes = job.rows[:rows, :columns].astype(np.int64), job.trainer.domain.sizes[:columns]
    if name == CONTROL:
        return codes, sizes, Bootstrap(rows - 1), None
    if name not in OURS:
        return (
            codes,
            sizes,
            PeerTrainer(PEERS[name], sizes, epsilon, rows - 1, seconds),
            Claim(epsilon, DELTA),
        )
    own = narrowed(job.trainer.spec, columns)
    mode = (
        own.graph
        if name == "synthdp"
        else own.graph.model_copy(update={"mode": "none", "edges": ()})
    )
    changes = {
        "graph": mode,
        "privacy": own.privacy.model_copy(update={"epsilon": epsilon, "delta": DELTA}),
    }
    changes |= {
        "dataset": own.dataset.model_copy(
            update={"rows": own.dataset.rows.model_copy(update={"value": rows})}
        )
    }
    release = own.model_copy(
        update=changes | {"sampling": own.sampling.model_copy(update={"rows": rows})}
    )
    domain = Domain.from_spec(release.columns)
    plan = make_plan(release, domain)
    graph = job.trainer.graph.from_spec(release.graph, domain.names)
    shadow = ShadowTrainer(release, domain, plan, graph, white_box=True)
    return codes, sizes, Fixed(shadow, rows - 1), Claim(plan.epsilon, plan.delta, plan.profile)


def narrowed(spec: ReleaseSpec, columns: int) -> ReleaseSpec:
    """The release on its first `columns` columns, with the arrows among them."""
    names = list(spec.columns)[:columns]
    kept = tuple(
        Edge(causes=(a,), effects=(b,)) for a, b in spec.graph.pairs() if {a, b} <= set(names)
    )
    update = {
        "columns": {name: spec.columns[name] for name in names},
        "graph": spec.graph.model_copy(update={"edges": kept}),
    }
    return spec.model_copy(update=update)


def attacked(
    name: str,
    work: Path,
    *,
    pairs: int,
    rows: int,
    columns: int,
    epsilon: float,
    workers: int,
    seconds: float,
) -> MembershipReport:
    """The game against one synthesizer."""
    codes, sizes, train, claim = trainer(
        name, rows=rows, columns=columns, epsilon=epsilon, seconds=seconds
    )
    return attack_membership(
        codes,
        train,
        public=Public(sizes),
        targets=isolated_targets(codes, 1, np.random.default_rng(SEED)),
        pairs=pairs,
        rng=np.random.default_rng(SEED),  # of the game's coins
        threat=ThreatModel(relation="add_remove"),
        fleet=Fleet(
            folder=work / f"{name}-{pairs}-{rows}-{columns}-{epsilon:g}",
            runner=Loky(workers) if workers > 1 else Serial(),
        ),
        claim=claim,
        also=WHITE_BOX if name in OURS else (),
    )


def lines(
    name: str,
    report: MembershipReport,
    *,
    rows: int,
    columns: int,
    epsilon: float,
    pairs: int,
    seconds: float,
) -> list[dict[str, Any]]:
    """All attacks on one synthesizer as lines of the table."""
    declared = {(v.row.extractor, v.row.classifier): v for v in report.declared}
    common = {
        "peer": name,
        "epsilon": epsilon,
        "rows": rows,
        "columns": columns,
        "pairs": pairs,
        "seconds": round(seconds),
    }
    common |= {"ceiling": report.ceiling, "epsilon_provable": report.epsilon_provable}
    found = []
    for row in report.table:
        verdict = declared.get((row.extractor, row.classifier))
        found.append(
            common
            | {
                "declared": verdict is not None,
                "epsilon_lower": verdict.epsilon_lower if verdict else None,
            }
            | figures(row)
        )
    return found


def main(arguments: list[str] | None = None) -> None:
    """Attack all that are asked for; those that do not install or fit are told and left out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=NAMES,
        default=["synthdp", "synthdp-no-graph", "dpmm-mst", "smartnoise-mst", CONTROL],
    )
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument(
        "--columns", type=int, default=COLUMNS, help=f"the first so many of {COLUMNS}"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--limit", type=float, default=600.0, help="CPU seconds for one fit of a peer"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("build") / "attack_peers",
        help="folder of results that are kept",
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    size = {
        "rows": options.rows,
        "columns": options.columns,
        "epsilon": options.epsilon,
        "pairs": options.pairs,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.peers:
        if name in PEERS and python_of(PEERS[name])[0] is None:
            print(f"{name}: does not install: {python_of(PEERS[name])[1]}", flush=True)
            continue
        begin = time.monotonic()
        try:
            report = attacked(
                name, options.work, workers=options.workers, seconds=options.limit, **size
            )
        except RuntimeError as error:
            print(f"{name}: {error}", flush=True)
            continue
        print(
            f"{name}: {report.conclusion} So many models can prove at most epsilon"
            f" {report.epsilon_provable:.2f}.",
            flush=True,
        )
        write(
            lines(name, report, seconds=time.monotonic() - begin, **size),
            options.out / "attack_peers.csv",
        )


def write(new: list[dict[str, Any]], path: Path) -> None:
    """Add the lines of one synthesizer, in place of its earlier ones."""
    table = pd.DataFrame(new)
    if path.exists():
        old = pd.read_csv(path)
        table = pd.concat(
            [old[(old["peer"] != new[0]["peer"]) | (old["epsilon"] != new[0]["epsilon"])], table],
            ignore_index=True,
        )
    table.round(5).to_csv(path, index=False)


if __name__ == "__main__":
    main()
