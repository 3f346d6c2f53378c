"""Results for people: plans, outcomes, audits, differences as text in lines that fit, or cards."""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from synthdp.report.prose import say_of_plan, template
from synthdp.spec.load.wording import many

if TYPE_CHECKING:
    from synthdp.bundle.audit_record import AuditRecord
    from synthdp.release.job import ReleaseOutcome
    from synthdp.release.study import Line, Study
    from synthdp.report.sections import ReportTable
    from synthdp.report.verdicts import Verdict
    from synthdp.verify.diff import BundleDifference, Difference


def render(*parts: object) -> str:
    """Lines and tables as text: in the width of the terminal, elsewhere as wide as they are."""
    buffer, terminal = StringIO(), Console(file=sys.stdout)
    width = terminal.width if terminal.is_terminal else 1_000_000
    console = Console(file=buffer, width=width, highlight=False, color_system=None, markup=False)
    for part in parts:
        shown = part.fitted(width) if isinstance(part, Rows) else part
        console.print(shown, width=min(width, 110) if isinstance(part, Markdown) else None)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()).rstrip()


def _ledger_line(ledger: Mapping[str, Any]) -> str:
    """What the ledger has before and after a release, its cap, and the rule that it goes by."""
    cap = "no cap" if ledger["cap"] is None else f"cap {ledger['cap']:g}, by {ledger['rule']}"
    if "filter" in ledger["rule"]:
        cap += f": all releases, at the cap's delta of {ledger['cap_delta']:g}, not their own"
    if ledger["cap"] is not None:
        cap = f"{max(ledger['cap'] - ledger['spent_after'], 0):.4g} left of {cap}"
    return f"{ledger['spent_before']:.4g} spent before, {ledger['spent_after']:.4g} after, {cap}"


def plan_text(facts: Mapping[str, Any]) -> str:
    """A plan as text, with other budgets and a rehearsal where they were asked for."""
    spends = []
    for s in facts["spends"]:
        share, alone = f"{s['share']:.0%}", f"{s['epsilon_alone']:.3f}"
        spends.append((s["purpose"], share, alone, s["mechanism"], ", ".join(s["serves"])))
    parts: list[object] = [
        say_of_plan("plan_head", facts=facts),
        Rows(["spend", "part", "epsilon alone", "mechanism", "serves"], spends, numbers=[1, 2]),
        "(parts of the cost add up, as in the reports; what each costs alone does not)",
        f"ledger: {_ledger_line(facts['ledger'])}",
        _expected_line(facts["expected"]),
        *quality_lines(facts["quality"]),
        *map(estimand_line, facts.get("estimands", ())),
        *([say_of_plan("played")] if facts.get("estimands") else ()),
        *(
            say_of_plan("reach", goal=facts["reach"], told=e)
            for e in facts.get("reach", {}).get("estimands", ())
        ),
        *(() if "rehearsal" in facts else (say_of_plan("rehearse"),)),
        *facts.get("notes", ()),
        *_rows_of_one_part(facts.get("rows_of_one", ())),
        *(f"warning: {w}" for w in facts.get("warnings", ())),
    ]
    if "what_if" in facts:
        parts += ["", *_what_if_table(facts["what_if"])]
    if "rehearsal" in facts:
        parts += ["", *_rehearsal_parts(facts["rehearsal"])]
    return "\n".join(map(render, parts))


def linked_plan_text(facts: Mapping[str, Any]) -> str:
    """A plan of persons with visits as text."""
    head = ["spend", "part", "epsilon alone", "rows of a person", "tables", "noise"]
    rows = [
        (
            s["purpose"],
            f"{s['share']:.0%}",
            f"{s['epsilon_alone']:.3f}",
            f"{s['rows_of_a_person']}",
            "chosen later" if s["tables"] is None else f"{s['tables']}",
            f"{s['noise']:.3g}",
        )
        for s in facts["spends"]
    ]
    return "\n".join(
        map(
            render,
            [
                say_of_plan("plan_head_linked", facts=facts),
                Rows(head, rows, numbers=range(1, 6)),
                "(noise: standard deviation in each cell, in rows of the look; of pairs about,"
                " where all have the same; of those chosen later for one table alone)",
                say_of_plan("score_noise", noise=facts["score_noise"]),
                *map(estimand_line, facts["estimands"]),
                *([say_of_plan("played_visits")] if facts["estimands"] else ()),
                f"ledger: {_ledger_line(facts['ledger'])}",
                _expected_line(facts["expected"]),
                *facts["notes"],
                f"writes {many(facts['persons'], 'person')} with their visits, in"
                f" {many(len(facts['files']), 'file')}",
                *(f"warning: {w}" for w in facts["warnings"]),
            ],
        )
    )


def forecast_text(facts: Mapping[str, Any]) -> str:
    """The lines of a plan that a steward looks at while writing: what it would protect, cost and
    answer. Its first alternative is the plan's own epsilon; others make a table.
    """
    if "at_most" in facts:
        return linked_plan_text(facts)
    own, *others = facts["what_if"]
    worst = sorted(facts["quality"]["columns"], key=lambda c: -c["tv1"])[:4]
    columns = ", ".join(f"{c['column']} {1000 * c['tv1']:.0f}" for c in worst)
    asked = [told for told in facts["estimands"] if told["statistic"] != "table"]
    answered = sum(not told["likely_refused"] for told in asked)
    claims = [least for _, least in facts["quality"]["claims"]]
    medium = sum(least is not None and least <= 0.3 for least in claims)
    lines = [
        f"epsilon {facts['epsilon']:g}: someone who knows every other row is right about one unit"
        f" with at most {math.ceil(1000 * own['right_at_most']) / 10:g}% (guessing: 50%)",
        f"ledger: {_ledger_line(facts['ledger'])}",
        f"in the wrong level, of 1,000 rows: {1000 * facts['quality']['tv1']:.0f} of a column;"
        f" {columns}",
        *([f"estimands: {answered} of {len(asked)} likely answered"] if asked else ()),
        *map(estimand_line, asked),
        *([f"claims of the graph: a test sees a medium effect in {medium} of {len(claims)}"]
          if claims else ()),
        *(["", *_what_if_table([own, *others])] if others else ()),
    ]  # fmt: skip
    return "\n".join(map(render, lines))


def _what_if_table(options: Sequence[Mapping[str, Any]]) -> list[object]:
    from synthdp.release.what_if import figures_table

    header, rows = figures_table(options)
    return [Rows(header, rows, numbers=range(1, len(header)))]


def _expected_line(expected: Mapping[str, float]) -> str:
    about = f"about {expected['cpu_seconds']:g} CPU seconds and {expected['memory_mb']} MB"
    return f"expected: {about} for measuring, fitting and sampling"


def _rows_of_one_part(choices: Sequence[Mapping[str, Any]]) -> list[object]:
    if not choices:
        return []
    rows = [
        (
            f"{c['max_rows']}",
            f"x {c['noise']}",
            *(f"{part:.0%} kept, x {c['noise'] / part:.1f}" for part in c["kept"].values()),
        )
        for c in choices
    ]
    means = (f"{mean} rows an id" for mean in choices[0]["kept"])
    header = ["max_rows", "noise of a table", *means]
    return [
        Rows(header, rows, numbers=range(len(header))),
        "(rows kept, and noise over them, where ids have so many rows on average, geometrically)",
    ]


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


def audit_text(record: AuditRecord, path: Path, *, published: bool = True) -> str:
    """What an audit found, as text; `published`: by the next release of its plan."""
    from synthdp.bundle.certificate_text import audit_markdown

    who = "public: the next release of this plan publishes it" if published else "public"
    if record.rows == "real":
        who = "confidential: for the steward only"
    return render(Markdown(audit_markdown(record)), f"\nrecord  {path}   ({who})")


def study_text(found: Study, folder: Path) -> str:
    """What a study found: every attack in every arm, what graph and privacy take, and the use."""

    def table(head: Sequence[str], lines: Iterable[Line]) -> Rows:
        """A row for each attack or learner, a column for each arm or difference."""
        cells: dict[str, dict[str, str]] = {}
        for line in lines:
            ends = "" if line.lower is None else f" ({line.lower:.2f} to {line.upper:.2f})"
            whose = f"{line.extractor}, {line.classifier}"
            cells.setdefault(whose, {})[line.of] = f"{line.value:.2f}{ends}"
        columns = list(dict.fromkeys(of for row in cells.values() for of in row))
        rows = [(whose, *(row.get(of, "-") for of in columns)) for whose, row in cells.items()]
        return Rows([*head, *columns], rows, numbers=range(1, 1 + len(columns)))

    taken = found.of("advantage taken")
    sure = sum(not line.ends[1] <= 0 <= line.ends[2] for line in taken)
    declared = [line for line in taken if (line.extractor, line.classifier) in found.declared]
    parts: list[object] = [
        table(["advantage of"], found.of("advantage")),
        "\nWhat the attacks that were declared beforehand lose (95% intervals):",
        table(["advantage taken from"], declared),
        f"Of all {len(taken)} differences {sure} have an interval without 0; chance alone gives"
        f" about {0.05 * len(taken):.0f}.",
    ]
    for figure in ("auc", "r2"):
        gaps = [*found.of(f"{figure} lost"), *found.of(f"{figure} given")]
        if gaps:
            told = [
                (line.figure, line.of)
                + tuple(
                    "-" if x is None else f"{x:.3f}" for x in (line.value, line.lower, line.upper)
                )
                for line in gaps
            ]
            parts.append(f"\nMean {figure.upper()} on rows held out, 95% intervals over targets:")
            parts.append(Rows([figure, "", "mean", "from", "to"], told, numbers=[2, 3, 4]))
    who = "confidential: for the steward only" if found.rows == "real" else "public: simulated rows"
    notes = [f"note: {told}" for told in found.notes]
    return render(*parts, *notes, f"\nSanity, not proof. study  {folder}   ({who})")


def finding_cells(f: Difference) -> tuple[str, ...]:
    """A finding as a row of texts."""

    def value(x: str | float | None) -> str:
        if x is None:
            return "-"
        if isinstance(x, str):
            return x
        return f"{x:,}" if isinstance(x, int) else f"{x:.4g}"

    return f.topic, f.what, value(f.a), value(f.b), f.verdict, f.why


def difference_text(found: BundleDifference) -> str:
    """How two bundles differ, as text."""
    rows = [*map(finding_cells, found.findings)]
    if (graph := found.graph) is None:
        return render(
            f"A  {found.a}   (expected before any row was read)\nB  {found.b}   (verified; one draw"
            " of the noise)",
            Rows(["", "", "expected", "got", "got is", ""], rows, numbers=[2, 3]),
        )
    turned = [now for _, now in graph.turned]
    kinds = (("added", graph.added), ("removed", graph.removed), ("turned", turned))
    links = [f"{how} {e.cause} - {e.effect}" for how, edges in kinds for e in edges]
    if len(links) > (most := 20):
        links[most:] = [f"and {len(links) - most} more"]
    return render(
        f"A  {found.a}\nB  {found.b}   (both verified; the verdict is of B)",
        Rows(["", "", "A", "B", "B is", ""], rows, numbers=[2, 3]),
        *links,
    )


# --- tables ---


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
        gap = 2  # characters between columns
        gaps = gap * (len(columns) - 1)
        if sum(least) + gaps > width:  # each row's first cell, and below it the others by name
            lines = list[str]()
            for first, *rest in self.rows:
                named = zip(self.header[1:], rest, strict=True)
                lines += [first, *(f"    {name} {cell}".rstrip() for name, cell in named if cell)]
            return "\n".join(lines)
        widths = shared(least, natural, width - gaps)
        made = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, show_header=any(self.header))
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


# --- cards ---


def plan_cards(facts: Mapping[str, Any]) -> str:
    """A plan as cards, for a notebook."""
    from synthdp.report.sections import ReportTable
    from synthdp.report.verdicts import Verdict

    expected = facts["expected"]
    before, after, *rest = _ledger_line(facts["ledger"]).split(", ", 2)
    allowed = f"of {facts['epsilon']:g} allowed, at delta {facts['delta']:g}"
    seconds, tv1 = f"{expected['cpu_seconds']:g} CPU seconds", f"{facts['quality']['tv1']:.2g}"
    cost = f"and {expected['memory_mb']} MB, for measuring, fitting and sampling"
    quality = "mean total variation of single columns, by public facts and the planned noise"
    neighbours = f"{allowed}; {facts['adjacency']} neighbours"
    cards = [
        Verdict("Guarantee", f"epsilon {facts['epsilon_spent']:.4f}", neighbours),
        Verdict("Ledger", f"{after} this release", ", ".join([before, *rest])),
        Verdict("Expected cost", seconds, cost),
        Verdict("Expected quality", f"TV1 about {tv1}", quality),
    ]
    rows = [
        (s["purpose"], f"{s['epsilon_alone']:.3f}", s["mechanism"], ", ".join(s["serves"]))
        for s in facts["spends"]
    ]
    head: Sequence[str] = ("spend", "epsilon alone", "mechanism", "serves")
    tables = [ReportTable("Spends, each with its epsilon alone", tuple(head), tuple(rows))]
    if "what_if" in facts:
        from synthdp.release.what_if import figures_table

        head, figures = figures_table(facts["what_if"])
        tables.append(ReportTable("At other budgets", tuple(head), tuple(map(tuple, figures))))
    notes = (*facts.get("notes", ()), *facts["warnings"])
    return cards_html(f"Plan for {facts['dataset']}", cards, tables=tables, notes=notes)


def outcome_cards(outcome: ReleaseOutcome) -> str:
    """A finished run as cards, for a notebook."""
    from synthdp.report.verdicts import Verdict

    plan, run = outcome.job.plan, outcome.job.folder.run
    cards = [
        Verdict("Guarantee", f"epsilon {plan.epsilon_spent:.4f}", f"at delta {plan.delta:g}"),
        Verdict("Bundle", str(outcome.bundle), "public: give it to anyone"),
        Verdict("Report", str(outcome.report), "for the steward only: computed on real rows"),
    ]
    for v in outcome.verdicts:
        tone: Literal["good", "unknown"] = "good" if v.outcome == "passed" else "unknown"
        cards.append(Verdict(f"Gate {v.gate.metric}", v.outcome, v.gate.bound, tone))
    return cards_html(f"Release, run {run}", cards, notes=outcome.warnings)


def cards_html(
    title: str,
    cards: Sequence[Verdict],
    *,
    tables: Sequence[ReportTable] = (),
    svg: str | None = None,
    notes: Sequence[str] = (),
) -> str:
    """HTML of a title, verdict cards, tables, a picture and notes, without any script.

    The template escapes text. What is shown is public: a notebook keeps its outputs, and may be
    sent on.

    >>> from synthdp.report.verdicts import Verdict
    >>> html = cards_html("A <title>", [Verdict("Epsilon", "1", "at delta 1e-05")])
    >>> "A &lt;title&gt;" in html
    True
    """
    picture = None if svg is None else base64.b64encode(svg.encode()).decode()
    page = template("notebook.html.j2")
    return str(page.render(title=title, cards=cards, tables=tables, picture=picture, notes=notes))
