"""The report's section on audits: what each record found, from its plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synthdp.report.parts import number
from synthdp.report.tables import ReportTable

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
    """What the audits conclude, in one sentence."""
    if not records:
        return "No audit of this plan was found beside the release; synthdp audit makes one."
    where = " and ".join(ROWS[record["rows"]] for record in records)
    refuted = [text for record in records for text in record["refuted"]]
    if refuted:
        return (
            f"An audit ({where}) refutes the claim: {'; '.join(refuted)}. Do not publish this"
            " release."
        )
    return (
        f"Audits {where} found nothing that speaks against the claim. An audit can refute a claim"
        " and never prove one."
    )


def audit_tables(records: Sequence[Mapping[str, Any]]) -> list[ReportTable]:
    """Replay, statistical audits and attack of each record."""
    return [table for record in records for table in _tables(record)]


def _tables(record: Mapping[str, Any]) -> Iterator[ReportTable]:
    """The tables of one record."""
    where = f"{ROWS[record['rows']]}, {record['day']}"
    if record["replay"]:
        yield _replay_table(record["replay"], where)
    if record["audits"]:
        rows = tuple(_row(a) for a in record["audits"])
        yield ReportTable(f"Statistical audits {where}", HEADINGS, rows)
    if record["membership"]:
        yield from _membership_tables(record["membership"], where)


def _replay_table(replay: Mapping[str, Any], where: str) -> ReportTable:
    figures = {
        "mechanisms": str(replay["mechanisms"]),
        "pairs of neighbouring tables": str(replay["pairs"]),
        "most that a pair used of what the event allows": f"{replay['largest_share']:.1%}",
        "other differences": str(len(replay["findings"])),
    }
    return ReportTable(f"Record and replay, {where}", ("figure", "value"), tuple(figures.items()))


def _membership_tables(attack: Mapping[str, Any], where: str) -> Iterator[ReportTable]:
    """The tables of an attack: its main figures, each declared attack, its warnings."""
    figures = {
        "target": "one row" if attack.get("unit") is None else f"all rows of {attack['unit']}",
        "pairs of models": str(attack["pairs"]),
        "dropped": str(attack["pairs_dropped"]),
        "advantage": number(attack["advantage"]),
        "lower": number(attack["lower"]),
        "upper": number(attack["upper"]),
        "ceiling": number(attack["ceiling"]),
        "baseline": _interval(attack["baseline"]),
    }
    yield ReportTable(f"Membership attack {where}", tuple(figures), (tuple(figures.values()),))
    if attack["attacks"]:
        rows = tuple(_attack_row(a) for a in attack["attacks"])
        yield ReportTable(f"Attacks {where}", ATTACK_HEADINGS, rows)
    if attack["warnings"]:
        warnings = tuple((text,) for text in attack["warnings"])
        yield ReportTable(f"Warnings of the attack {where}", ("before you believe it",), warnings)


def _attack_row(a: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        a["attack"],
        str(a["models"]),
        number(a["advantage"]),
        number(a["lower"]),
        number(a["upper"]),
        _interval(a["control"]),
        number(a["auc"]),
        number(a["auc_upper"]),
        number(a["tpr_upper"]),
        number(a["epsilon_lower"]),
        number(a["epsilon_provable"]),
        "refuted" if a["refuted"] else "not refuted",
    )


def _interval(gap: Mapping[str, float] | None) -> str:
    """An advantage with its 95% interval."""
    if gap is None:
        return "none"
    return f"{number(gap['value'])} ({number(gap['lower'])} to {number(gap['upper'])})"


def _row(a: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        a["mechanism"],
        a["method"],
        str(a["unit_rows"]),
        str(a["runs"]),
        "none" if a["epsilon"] is None else number(a["epsilon"]),
        f"{a['delta']:g}",
        number(a["epsilon_lower"]),
        number(a["epsilon_provable"]),
        f"{a['fault']}: {a['power']:.0%}",
        "refuted" if a["refuted"] else "not refuted",
    )
