"""Results as text for people: plans, outcomes, audits, differences; tables in lines that fit."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from synthdp.report.prose import say_of_plan

if TYPE_CHECKING:
    from synthdp.bundle.audit_record import AuditRecord
    from synthdp.release.job import ReleaseOutcome
    from synthdp.verify.diff import BundleDifference


MAX_LINKS = 20
PUBLIC_QUALITY = {
    "tv1_noisy": "single columns {:.2g} from the noisy counts (total variation)",
    "tv1_dp": "{:.2g} from the real ones, measured under privacy",
    "tv2_dp": "pairs of columns {:.2g} from the real ones, measured under privacy",
    "tstr_accuracy_dp": "models are right on {:.0%} of real rows, measured under privacy",
}


def render(*parts: object) -> str:
    """Lines and tables as text: in the width of the terminal, elsewhere as wide as they are."""
    buffer, terminal = StringIO(), Console(file=sys.stdout)
    width = terminal.width if terminal.is_terminal else 1_000_000
    console = Console(file=buffer, width=width, highlight=False, color_system=None, markup=False)
    for part in parts:
        shown = part.fitted(width) if isinstance(part, Rows) else part
        console.print(shown, width=min(width, 110) if isinstance(part, Markdown) else None)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()).rstrip()


def plan_text(facts: Mapping[str, Any]) -> str:
    """A plan as text, with other budgets and a rehearsal where they were asked for."""
    spends = []
    for s in facts["spends"]:
        share, alone = f"{s['share']:.0%}", f"{s['epsilon_alone']:.3f}"
        spends.append((s["purpose"], share, alone, s["mechanism"], ", ".join(s["serves"])))
    ledger, expected = facts["ledger"], facts["expected"]
    cap = "no cap" if ledger["cap"] is None else f"cap {ledger['cap']:g}"
    parts: list[object] = [
        say_of_plan("plan_head", facts=facts),
        Rows(["spend", "part", "epsilon alone", "mechanism", "serves"], spends, numbers=[1, 2]),
        "(parts of the cost add up, as in the reports; what each costs alone does not)",
        f"ledger: {ledger['spent_before']:g} spent before, {ledger['spent_after']:g} after, {cap}",
        f"expected: about {expected['cpu_seconds']:g} CPU seconds and {expected['memory_mb']} MB"
        " for measuring, fitting and sampling",
        *quality_lines(facts["quality"]),
        *map(estimand_line, facts.get("estimands", ())),
        *([say_of_plan("played")] if facts.get("estimands") else ()),
        *(
            say_of_plan("reach", goal=facts["reach"], told=e)
            for e in facts.get("reach", {}).get("estimands", ())
        ),
        *(() if "rehearsal" in facts else (say_of_plan("rehearse"),)),
        *facts.get("notes", ()),
        *(f"warning: {w}" for w in facts.get("warnings", ())),
    ]
    if "what_if" in facts:
        from synthdp.release.what_if import figures_table

        header, rows = figures_table(facts["what_if"])
        parts += ["", Rows(header, rows, numbers=range(1, len(header)))]
    if "rehearsal" in facts:
        parts += ["", *_rehearsal_parts(facts["rehearsal"])]
    return "\n".join(map(render, parts))


def _rehearsal_parts(facts: Mapping[str, Any]) -> list[object]:
    head = say_of_plan("rehearsed", facts=facts)
    if "refused" in facts:
        return [head]
    rows = []
    for a in facts["answers"]:
        errors = ("-" if a[key] is None else f"{a[key]:.2g}" for key in ("bias", "error"))
        rows.append((a["kind"], f"{a['asked']}", f"{a['answered']}", *errors, f"{a['covered']}"))
    header = ["answers", "asked", "answered", "bias", "error", "intervals that hold the truth"]
    counts = (f"{n:.0f} {kind.replace('_', ' ')}" for kind, n in facts["graph"].items())
    return [
        head,
        f"its graph: {', '.join(counts) or 'no arrows'}",
        Rows(header, rows, numbers=range(1, len(header))),
        "(bias and error in shares of rows, of means in shares of the range; intervals of 95%)",
        *_estimands_part(facts["estimands"]),
    ]


def _estimands_part(figures: Sequence[Mapping[str, Any]]) -> list[object]:
    from synthdp.inference.words import shown

    rows = []
    for figure in figures:
        name = f"{figure['text']}: {figure['group']}" if figure["group"] else figure["text"]
        told = (figure[key] for key in ("truth", "bias", "width"))
        sizes = ("-" if value is None else shown(figure["statistic"], value) for value in told)
        covered = "-" if figure["covered"] is None else f"{figure['covered']:.0%}"
        rows.append((name, *sizes, covered, f"{figure['answered']:.0%}"))
    if not rows:
        return []
    header = ["estimands", "truth", "bias", "width", "intervals that hold it", "answered"]
    return [
        "",
        Rows(header, rows, numbers=range(1, len(header))),
        "(over draws of the noise; width of the whole 95% interval, with the sampling of the rows)",
    ]


def estimand_line(expected: Mapping[str, Any]) -> str:
    """How wide intervals of an estimand, or of its first figures, will be, in words."""
    return say_of_plan("estimand", expected=expected, most=8)


def quality_lines(quality: Mapping[str, Any]) -> list[str]:
    """What a plan says of quality, in words."""
    from synthdp.release.expectations import NONE_SEEN

    told = say_of_plan(
        "expected_quality",
        quality=quality,
        worst=max(quality["columns"], key=lambda c: c["tv1"]),
        hidden=sorted(c["hidden_rows"] for c in quality["columns"]),
        noisy=sum(c["noisy_levels"] > 0 for c in quality["columns"]),
        none_seen=NONE_SEEN,
    )
    return told.split("\n")


def outcome_facts(outcome: ReleaseOutcome) -> dict[str, Any]:
    """A finished run as JSON, without any confidential figure."""
    plan = outcome.job.plan
    return {
        "run": outcome.job.folder.run,
        "bundle": None if outcome.bundle is None else str(outcome.bundle),
        "internal_report": str(outcome.report),
        "epsilon": plan.epsilon,
        "epsilon_planned": plan.epsilon_spent,
        "epsilon_spent": outcome.job.spent.epsilon_spent,
        "delta": plan.delta,
        "quality": {n: outcome.metrics[n] for n in PUBLIC_QUALITY if n in outcome.metrics},
        "gates": [
            {"metric": v.gate.metric, "bound": v.bound, "passed": v.passed}
            for v in outcome.verdicts
        ],
        "seconds": outcome.seconds,
        "warnings": list(outcome.warnings),
    }


def outcome_text(outcome: ReleaseOutcome) -> str:
    """A finished run as text."""
    plan, quality = outcome.job.plan, quality_of(outcome.metrics)
    return say_of_plan("outcome", outcome=outcome, plan=plan, quality=quality)


def quality_of(metrics: Mapping[str, float]) -> str:
    """How good a table is, by those figures of a run that are public or were paid for."""
    told = [text.format(metrics[name]) for name, text in PUBLIC_QUALITY.items() if name in metrics]
    return say_of_plan("quality", told=told, pairs="tv2_dp" in metrics)


def audit_text(record: AuditRecord, path: Path) -> str:
    """What an audit found, as text."""
    from synthdp.bundle.certificate_text import audit_markdown

    who = "public: the next release of this plan publishes it"
    if record.rows == "real":
        who = "confidential: for the steward only"
    return render(Markdown(audit_markdown(record)), f"\nrecord  {path}   ({who})")


def difference_text(found: BundleDifference) -> str:
    """How two bundles differ, as text."""

    def value(x: str | float | None) -> str:
        if x is None:
            return "-"
        if isinstance(x, str):
            return x
        return f"{x:,}" if isinstance(x, int) else f"{x:.4g}"

    rows = [(f.topic, f.what, value(f.a), value(f.b), f.verdict, f.why) for f in found.findings]
    graph = found.graph
    turned = [now for _, now in graph.turned]
    kinds = (("added", graph.added), ("removed", graph.removed), ("turned", turned))
    links = [f"{how} {e.cause} - {e.effect}" for how, edges in kinds for e in edges]
    if len(links) > MAX_LINKS:
        links[MAX_LINKS:] = [f"and {len(links) - MAX_LINKS} more"]
    return render(
        f"A  {found.a}\nB  {found.b}   (both verified; the verdict is of B)",
        Rows(["", "", "A", "B", "B is", ""], rows, numbers=[2, 3]),
        *links,
    )


# --- tables ---

GAP = 2  # characters between the columns of a table


@dataclass(frozen=True)
class Rows:
    """A table without lines; `numbers`: places of the columns that are lined up on the right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int]

    def fitted(self, width: int) -> Table | str:
        """The table in `width` characters a line, no word of it broken.

        Where that is too few for its columns, each row becomes a paragraph.
        """
        columns = list(zip(self.header, *self.rows, strict=True))
        natural = [
            max(cell_len(line) for c in cells for line in c.split("\n")) for cells in columns
        ]
        least = [
            min(max(cell_len(word) for c in cells for word in ["", *c.split()]), width // 2)
            for cells in columns
        ]
        gaps = GAP * (len(columns) - 1)
        if sum(least) + gaps > width:  # each row's first cell, and below it the others by name
            lines = list[str]()
            for first, *rest in self.rows:
                named = zip(self.header[1:], rest, strict=True)
                lines += [first, *(f"    {name} {cell}".rstrip() for name, cell in named if cell)]
            return "\n".join(lines)
        widths = shared(least, natural, width - gaps)
        made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=any(self.header))
        for i, name in enumerate(self.header):
            side: Literal["left", "right"] = "right" if i in self.numbers else "left"
            made.add_column(name, justify=side, overflow="fold", width=widths[i])
        for row in self.rows:
            made.add_row(*row)
        return made


def shared(least: Sequence[int], natural: Sequence[int], width: int) -> list[int]:
    """Widths from `least` up to `natural`, `width` together; those that lack least come first.

    >>> shared([3, 4], [5, 40], 20)
    [5, 15]
    """
    widths, spare = list(least), width - sum(least)
    order = sorted(range(len(least)), key=lambda i: natural[i] - least[i])
    for left, i in zip(range(len(order), 0, -1), order, strict=True):
        more = min(natural[i] - least[i], spare // left)
        widths[i], spare = widths[i] + more, spare - more
    return widths
