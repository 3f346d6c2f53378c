"""The paper's membership study, re-done: does a causal graph hide who was in the table, with and
without privacy?

    python -m benchmarks.membership [--tables synthetic pain1000 pain5000] [--cells
    synthetic-none-dp ...] [--pairs 100] [--workers 2]
                                    [--rows N] [--steps N] [--work build/membership]

"Causally Constrained Data Synthesis for Private Data Release" (arXiv:2105.13144), section 6.2: {no
graph; complete, partial, wrong, learned graph} x {epsilon 1, no privacy}, five extractors x five
classifiers, and white boxes of the released model and its tables. The game is that of `synthdp
study`: the most isolated row, one synthetic set for each of `--pairs` models with it and as many
without, split by pair of models. Beside it stands the paper's own split: few models, many sets of
each, sets dealt at random to both halves - there a classifier may recognise the model instead of
the record, whatever epsilon says.

Shadow models train side by side and each has its own result file in the work folder, each cell one
too: stop it at any time and start it again. Writes results/membership.csv, results/membership.md
(tables in the shape of the paper's 5 to 10, and what holds) and results/membership.png (its figures
2 to 5). The tables are simulated, so that everything may be shown.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.membership_cells import SEED, TABLES, Cell, Setting, cells, setting
from benchmarks.membership_plot import plot
from benchmarks.membership_text import page
from synthdp.audit.membership import WHITE_BOX, Board
from synthdp.progress import unheard
from synthdp_attacks import AttackRow, GameOutcome, MembershipReport, Public, isolated_targets
from synthdp_attacks.membership import CLASSIFIERS, EXTRACTORS, feature_matrix, scores_after_fit
from synthdp_attacks.report import attack_row

RESULTS = Path(__file__).parent / "results"
HONEST, PAPERS = "by model pair", "by set, as in the paper"
PAPER_MODELS, PAPER_SETS = 5, 20  # models in each world, and sets of each, in the paper's split


def measured(
    cell: Cell, work: Path, *, pairs: int, workers: int, rows: int | None, steps: int | None
) -> list[dict[str, Any]]:
    """The lines of one cell; kept in a file of the work folder."""
    kept = work / f"{cell.name}-{pairs}-{rows or 'all'}-{steps or 'all'}.json"
    if kept.exists():
        found: list[dict[str, Any]] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    begin = time.monotonic()
    own = setting(cell, rows=rows, steps=steps, pairs=pairs, workers=workers)
    report = honest(own, kept.with_suffix(""))
    declared = {(v.row.extractor, v.row.classifier): v for v in report.declared}
    control = report.control.value if report.control else None
    common = {
        "table": cell.table,
        "graph": cell.graph,
        "epsilon": cell.epsilon,
        "rows": len(own.rows),
        "pairs": pairs,
    }
    common |= {
        "steps": own.shadow.spec.synthesizer.steps,
        "ceiling": report.ceiling,
        "control_advantage": control,
    }
    lines = []
    for row in report.table:
        verdict = declared.get((row.extractor, row.classifier))
        proved = {
            "declared": verdict is not None,
            "epsilon_lower": verdict.epsilon_lower if verdict else None,
        }
        lines.append(common | {"split": HONEST} | proved | figures(row))
    lines += [
        common | {"split": PAPERS, "pairs": PAPER_MODELS} | figures(row)
        for row in as_in_the_paper(own)
    ]
    print(f"{cell.name}: {time.monotonic() - begin:.0f} s; {report.conclusion}", flush=True)
    kept.write_text(json.dumps(lines), encoding="utf-8")
    return lines


def honest(own: Setting, folder: Path) -> MembershipReport:
    """One set of each model, models split by pair, as `synthdp study` plays it. The same call goes
    on where an earlier one stopped.
    """
    target = isolated_targets(own.rows, 1, np.random.default_rng(SEED))
    coins = np.random.default_rng(SEED)  # of the game; noise has no seed
    return Board(own.rows, target).attacked(own.shadow, folder, coins, unheard, also=WHITE_BOX)


def as_in_the_paper(own: Setting) -> list[AttackRow]:
    """Algorithm 1 as it was run: all sets of few models, dealt at random to training and test, so
    that both hold sets of every model.
    """
    rng = np.random.default_rng()
    (target,) = isolated_targets(own.rows, 1, np.random.default_rng(SEED))
    rest, record = np.delete(own.rows, target, axis=0), own.rows[target]
    tables = [own.rows] * PAPER_MODELS + [rest] * PAPER_MODELS
    sets = [s for sets in own.several(tables, sets=PAPER_SETS, rng=rng) for s in sets]
    members = np.repeat([True, False], PAPER_MODELS * PAPER_SETS)
    order = rng.permutation(len(sets))
    half, found = len(order) // 2, []
    for name, make in EXTRACTORS.items():
        features = feature_matrix(
            make(Public(own.shadow.domain.sizes), record, np.random.default_rng(SEED)), sets
        )
        fitted, asked = order[:half], order[half:]
        for classifier in CLASSIFIERS:
            scores = scores_after_fit(
                classifier, features[fitted], members[fitted], features[asked], seed=SEED
            )
            found.append(attack_row(name, classifier, GameOutcome(scores, members[asked])))
    return found


def figures(row: AttackRow) -> dict[str, Any]:
    """One attack as a line of the table."""
    line: dict[str, Any] = {
        "extractor": row.extractor,
        "classifier": row.classifier,
        "models": row.models,
    }
    for name in ("accuracy", "advantage", "auc"):
        interval = getattr(row, name)
        line |= {
            name: interval.value,
            f"{name}_lower": interval.lower,
            f"{name}_upper": interval.upper,
        }
    rate = dict(row.tpr_at)[0.01]
    return line | {
        "pa": row.positive_accuracy.value,
        "na": row.negative_accuracy.value,
        "tpr_at_1_fpr": rate.value if rate else None,
    }


def main(arguments: list[str] | None = None) -> None:
    """Run the study, as much of it as is asked for, and write all that is measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument(
        "--cells",
        nargs="+",
        help="names of cells, such as synthetic-none-dp [default: all of the tables]",
    )
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", type=int, help="fewer rows, for a quick look")
    parser.add_argument("--steps", type=int, help="fewer training steps, for a quick look")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("build") / "membership",
        help="folder of results that are kept",
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    asked = cells(options.tables)
    if options.cells:
        known = {cell.name: cell for cell in cells(list(TABLES))}
        if unknown := sorted(set(options.cells) - set(known)):
            parser.error(f"unknown cell {', '.join(unknown)}; known: {', '.join(known)}")
        asked = [known[name] for name in options.cells]
    options.work.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    for cell in asked:
        lines += measured(
            cell,
            options.work,
            pairs=options.pairs,
            workers=options.workers,
            rows=options.rows,
            steps=options.steps,
        )
        write(lines, options.out)


def write(lines: list[dict[str, Any]], out: Path) -> None:
    """Table, page and picture; cells of an earlier call that were not asked for again are kept."""
    out.mkdir(parents=True, exist_ok=True)
    path, new = out / "membership.csv", pd.DataFrame(lines)
    if path.exists():
        old, key = pd.read_csv(path), ["table", "graph", "epsilon"]
        told = set(map(tuple, new[key].to_numpy()))
        new = pd.concat(
            [old[[tuple(k) not in told for k in old[key].to_numpy()]], new], ignore_index=True
        )
    new = new.round(5)
    new.to_csv(path, index=False)
    (out / "membership.md").write_text(page(new), encoding="utf-8")
    plot(new, out / "membership.png")


if __name__ == "__main__":
    main()
