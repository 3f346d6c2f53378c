"""A validation in words: what it found, what it excluded, and what to do about the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

SIZES = {"small": 0.1, "medium": 0.3, "large": 0.5}  # Cohen's w
MAX_TOLD = 3
ADVICE = "more rows, fewer levels or a larger shares.graph exclude more"


def validation_sentences(validation: Mapping[str, Any], arrows: int) -> list[str]:
    """What a reader can act on, of `ValidationReport.to_json()` for a graph of so many arrows.

    >>> found = {"kind": "arrow", "x": "a", "y": "b", "given": [], "status": "supported"}
    >>> validation_sentences({"findings": [found]}, arrows=1)
    ['no claim was refuted']
    """
    findings: Sequence[Mapping[str, Any]] = validation["findings"]
    refuted = [f for f in findings if f["status"] == "refuted"]
    independences = [f for f in findings if f["kind"] == "independence"]
    tested = len(findings) - len(independences)
    sentences = [_refuted(refuted) if refuted else "no claim was refuted"]
    if tested < arrows:
        sentences.append(
            f"{arrows - tested} of {arrows} arrows were not tested: they are within a group, or"
            " their tables have too many cells"
        )
    undecided = [f for f in independences if f["status"] == "undecided"]
    if undecided:
        sentences.append(_undecided(undecided, len(independences)))
    return sentences


def claim_text(finding: Mapping[str, Any]) -> str:
    """An arrow or an independence, as a line of a table."""
    verb = "->" if finding["kind"] == "arrow" else "independent of"
    given = f" given {', '.join(finding['given'])}" if finding["given"] else ""
    return f"{finding['x']} {verb} {finding['y']}{given}"


def _refuted(refuted: Sequence[Mapping[str, Any]]) -> str:
    first = sorted(refuted, key=lambda f: f["p_value"])[:MAX_TOLD]
    more = f", and {len(refuted) - MAX_TOLD} more" if len(refuted) > MAX_TOLD else ""
    named = "; ".join(map(claim_text, first))
    missing = any(f["kind"] == "independence" for f in refuted)
    advice = ": each independence wants an arrow or a common cause more" if missing else ""
    return f"refuted: {named}{more}{advice}"


def _undecided(undecided: Sequence[Mapping[str, Any]], independences: int) -> str:
    bounds = [f["effect_upper"] for f in undecided]
    known = sorted(bound for bound in bounds if bound is not None)
    head = f"{len(undecided)} of {independences} independences"
    head += " is undecided" if len(undecided) == 1 else " are undecided"
    if not known:
        return f"{head}, and noise excludes no effect in any; {ADVICE}"
    above = f"w = {median(known):.2g} (Cohen's w"
    if len(known) > 1:
        above += f", the median; {known[0]:.2g} in the best, {known[-1]:.2g} in the worst"
    size, bound = next(
        ((size, bound) for size, bound in SIZES.items() if known[0] <= bound), ("large", 0.5)
    )
    small = sum(value <= bound for value in known)
    return (
        f"{head}: an effect above {above}) is excluded, a {size} one ({bound:g}) in {small} of"
        f" {len(undecided)}; {ADVICE}"
    )
