"""Two questions that ask the same in other words."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from synthdp.data import Domain
from synthdp.inference import answer_bundle, ask_the_same
from synthdp.spec import parse_query
from synthdp.spec.model import ReleaseSpec


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("share(age >= 50)", "share(age > 49)", True),
        ("share(age >= 50)", "share(age > 49.5)", True),
        ("share(age >= 50)", "share(not age < 50)", True),
        ("share(age >= 50)", "share(age >= 51)", False),
        ("share(age >= 50)", "share(age < 50)", False),
        ("share(18 <= age < 65)", "share(age >= 18 and age <= 64)", True),
        ("mean(age) where visits == 0", "mean(age) where visits < 1", True),
        ("mean(age) where visits == 0", "mean(age)", False),
        ("mean(age) where visits == 0", "mean(age) where visits is missing", False),
        ("share(smoker) where age > 49 by sex", "share(smoker) by sex where age >= 50", True),
        ("share(smoker) where age > 49 by sex", "share(smoker) where age >= 50", False),
        ("share(sex == 'female')", "share(sex != 'male')", True),
        ("share(`weight kg` > 70)", "share(`weight kg` >= 70)", False),
        ("count(age > 49)", "share(age > 49)", False),
        ("count()", "count(age >= 0)", False),
        ("median(age) where age > 49", "quantile(age, 0.5) where age >= 50", True),
        ("share(age > 49 and smoker)", "share(smoker and age >= 50)", True),
    ],
)
def test_conditions_that_select_the_same_rows_are_one(
    spec: ReleaseSpec, domain: Domain, one: str, other: str, same: bool
) -> None:
    first, second = parse_query(one, spec.columns), parse_query(other, spec.columns)
    assert ask_the_same(first, second, domain) is same
    assert ask_the_same(second, first, domain) is same


def test_the_same_of_clipped_numbers_is_named(small_bundle: Callable[..., Path]) -> None:
    bundle = small_bundle(("age", "sex"), ("age",))
    path, sums = bundle / "spec.yaml", bundle / "SHA256SUMS"
    old = hashlib.sha256(path.read_bytes()).hexdigest()
    spec = json.loads(path.read_text())
    spec["estimands"] = [{"kind": "question", "ask": "mean(age) by sex", "clip": [20, 60]}]
    spec["privacy"]["shares"] = {"measure": 0.2, "estimands": 0.2, "train": 0.6}
    path.write_text(json.dumps(spec))
    sums.write_text(sums.read_text().replace(old, hashlib.sha256(path.read_bytes()).hexdigest()))
    said = answer_bundle(bundle, "mean(age) by sex").about
    assert "paid for: the same with age of 20 to 60" in said[-1]
    assert not any("paid for" in line for line in answer_bundle(bundle, "mean(age)").about)
