"""What a validation found, and what it excluded, in sentences."""

from collections.abc import Sequence
from typing import Any

import pytest

from synthdp.graph import validation_sentences


def finding(status: str, upper: float | None = 0.5, kind: str = "independence") -> dict[str, Any]:
    claim = {"kind": kind, "x": "a", "y": "b", "given": ["c"]}
    return claim | {"status": status, "effect_upper": upper, "p_value": 0.001}


def words(*findings: dict[str, Any], untested: Sequence[dict[str, Any]] = ()) -> list[str]:
    return validation_sentences({"findings": list(findings), "untested": untested})


def test_what_was_refuted_is_named_with_what_is_missing() -> None:
    assert words(finding("refuted")) == [
        "refuted: a independent of b given c: each independence wants an arrow or a common cause"
        " more"
    ]
    assert words(finding("refuted", kind="arrow")) == ["refuted: a -> b given c"]
    assert words(*[finding("refuted")] * 5)[0].count("a independent") == 3


def test_untested_claims_are_counted_with_their_reason() -> None:
    left = [{"kind": "arrow", "x": x, "y": "e", "given": [], "reason": "why"} for x in "abcd"]
    left.append({"kind": "independence", "x": "f", "y": "g", "given": ["h"], "reason": "so"})
    assert words(finding("supported", kind="arrow"), untested=left)[1:] == [
        "4 of 5 arrows were not tested (why): a -> e; b -> e; c -> e, and 1 more",
        "1 of 1 independences was not tested (so): f independent of g given h",
    ]


@pytest.mark.parametrize(
    ("uppers", "told"),
    [
        ([0.24], "1 of 1 independences is undecided: an effect above w = 0.24 (Cohen's w) is"),
        ([0.2, 0.4, 0.8], "0.4 (Cohen's w, the median; 0.2 in the best, 0.8 in the worst) is"),
        ([0.05, 0.08, 0.4], "a small one (0.1) in 2 of 3"),
        ([0.2, 0.4, 0.8], "a medium one (0.3) in 1 of 3"),
        ([0.4, None], "a large one (0.5) in 1 of 2"),
        ([0.9], "a large one (0.5) in 0 of 1"),
        ([None, None], "noise excludes no effect in any"),
    ],
)
def test_the_undecided_say_what_they_exclude(uppers: list[float | None], told: str) -> None:
    assert told in words(*(finding("undecided", upper) for upper in uppers))[1]
