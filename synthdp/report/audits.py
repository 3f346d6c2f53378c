"""The report's section on audits: what each record found, from its plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synthdp.report.appendix import Table
from synthdp.report.findings import number

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
ATTACK_HEADINGS = ("attack", "test models in each world", "advantage", "lower", "upper", "AUC", "epsilon: at least", "claim")


def conclusion(records: Sequence[Mapping[str, Any]]) -> str:
    """What the audits come to, in one sentence."""
    if not records:
        return "No audit of this plan was found beside the release; `synthdp audit` makes one."
    bad = [r for r in records if r["refuted"]]
    where = " and ".join(ROWS[r["rows"]] for r in records)
    if bad:
        return f"An audit ({where}) refutes the claim: {'; '.join(f for r in bad for f in r['refuted'])}. Do not publish this release."
    return f"Audits {where} found nothing that speaks against the claim. An audit can refute a claim and never prove one."


def audit_tables(records: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Replay, statistical audits and attack of each record."""
    return [table for record in records for table in _tables(record)]


def _tables(record: Mapping[str, Any]) -> Iterator[Table]:
    where = f"{ROWS[record['rows']]}, {record['day']}"
    replay, attack = record["replay"], record["membership"]
    if replay:
        figures = {"mechanisms": str(replay["mechanisms"]), "pairs of neighbouring tables": str(replay["pairs"])}
        figures |= {
            "most that a pair used of what the event allows": f"{replay['largest_share']:.1%}",
            "other differences": str(len(replay["findings"])),
        }
        yield Table(f"Record and replay, {where}", ("figure", "value"), tuple(figures.items()))
    if record["audits"]:
        yield Table(f"Statistical audits {where}", HEADINGS, tuple(_row(a) for a in record["audits"]))
    if attack:
        values = {k: number(attack[k]) for k in ("advantage", "lower", "upper", "ceiling")}
        yield Table(f"Membership attack {where}", ("pairs of models", *values), ((str(attack["pairs"]), *values.values()),))
        if attack["attacks"]:
            yield Table(f"Attacks {where}", ATTACK_HEADINGS, tuple(_attack_row(a) for a in attack["attacks"]))


def _attack_row(a: Mapping[str, Any]) -> tuple[str, ...]:
    figures = (number(a[key]) for key in ("advantage", "lower", "upper", "auc", "epsilon_lower"))
    return a["attack"], str(a["models"]), *figures, "refuted" if a["refuted"] else "not refuted"


def _row(a: Mapping[str, Any]) -> tuple[str, ...]:
    claimed = "none" if a["epsilon"] is None else number(a["epsilon"])
    shown = (claimed, f"{a['delta']:g}", number(a["epsilon_lower"]), number(a["epsilon_provable"]), f"{a['fault']}: {a['power']:.0%}")
    return a["mechanism"], a["method"], str(a["unit_rows"]), str(a["runs"]), *shown, "refuted" if a["refuted"] else "not refuted"
