"""The report's section on audits: what each record found, from its plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synthdp.report.internal.appendix import ReportTable
from synthdp.report.internal.findings import number

ROWS = {"none": "without rows", "simulated": "on simulated rows", "real": "on real rows"}
HEADINGS = (
    "mechanism",
    "method",
    "rows of the unit",
    "runs",
    "claimed epsilon",
    "at delta",
    "shown: at least",
    "could show at most",
    "would notice",
    "claim",
)
ATTACK_HEADINGS = (
    "attack",
    "test models in each world",
    "advantage",
    "lower",
    "upper",
    "control",
    "AUC",
    "AUC at most",
    "TPR at 1% FPR at most",
    "epsilon: at least",
    "could show at most",
    "claim",
)


def conclusion(records: Sequence[Mapping[str, Any]]) -> str:
    """What the audits come to, in one sentence."""
    if not records:
        return "No audit of this plan was found beside the release; `synthdp audit` makes one."
    bad = [r for r in records if r["refuted"]]
    where = " and ".join(ROWS[r["rows"]] for r in records)
    if bad:
        return (
            f"An audit ({where}) refutes the claim:"
            f" {'; '.join(f for r in bad for f in r['refuted'])}. Do not publish this release."
        )
    return (
        f"Audits {where} found nothing that speaks against the claim. An audit can refute a claim"
        " and never prove one."
    )


def audit_tables(records: Sequence[Mapping[str, Any]]) -> list[ReportTable]:
    """Replay, statistical audits and attack of each record."""
    return [table for record in records for table in _tables(record)]


def _tables(record: Mapping[str, Any]) -> Iterator[ReportTable]:
    where = f"{ROWS[record['rows']]}, {record['day']}"
    replay, attack = record["replay"], record["membership"]
    if replay:
        figures = {
            "mechanisms": str(replay["mechanisms"]),
            "pairs of neighbouring tables": str(replay["pairs"]),
        }
        figures |= {
            "most that a pair used of what the event allows": f"{replay['largest_share']:.1%}",
            "other differences": str(len(replay["findings"])),
        }
        yield ReportTable(
            f"Record and replay, {where}", ("figure", "value"), tuple(figures.items())
        )
    if record["audits"]:
        yield ReportTable(
            f"Statistical audits {where}", HEADINGS, tuple(_row(a) for a in record["audits"])
        )
    if attack:
        counts = {"pairs of models": str(attack["pairs"]), "dropped": str(attack["pairs_dropped"])}
        values = {k: number(attack[k]) for k in ("advantage", "lower", "upper", "ceiling")} | {
            "baseline": _interval(attack["baseline"])
        }
        yield ReportTable(
            f"Membership attack {where}",
            (*counts, *values),
            ((*counts.values(), *values.values()),),
        )
        if attack["attacks"]:
            yield ReportTable(
                f"Attacks {where}",
                ATTACK_HEADINGS,
                tuple(_attack_row(a) for a in attack["attacks"]),
            )
        if attack["warnings"]:
            yield ReportTable(
                f"Warnings of the attack {where}",
                ("before you believe it",),
                tuple((w,) for w in attack["warnings"]),
            )


def _attack_row(a: Mapping[str, Any]) -> tuple[str, ...]:
    gap = (number(a[key]) for key in ("advantage", "lower", "upper"))
    figures = (
        number(a[key])
        for key in ("auc", "auc_upper", "tpr_upper", "epsilon_lower", "epsilon_provable")
    )
    return (
        a["attack"],
        str(a["models"]),
        *gap,
        _interval(a["control"]),
        *figures,
        "refuted" if a["refuted"] else "not refuted",
    )


def _interval(gap: Mapping[str, float] | None) -> str:
    """An advantage with its 95% interval."""
    return (
        "none"
        if gap is None
        else f"{number(gap['value'])} ({number(gap['lower'])} to {number(gap['upper'])})"
    )


def _row(a: Mapping[str, Any]) -> tuple[str, ...]:
    claimed = "none" if a["epsilon"] is None else number(a["epsilon"])
    shown = (
        claimed,
        f"{a['delta']:g}",
        number(a["epsilon_lower"]),
        number(a["epsilon_provable"]),
        f"{a['fault']}: {a['power']:.0%}",
    )
    return (
        a["mechanism"],
        a["method"],
        str(a["unit_rows"]),
        str(a["runs"]),
        *shown,
        "refuted" if a["refuted"] else "not refuted",
    )
