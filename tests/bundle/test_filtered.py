"""A bundle under a Gaussian filter: both numbers and the rule are said, and `verify` computes again
what the filter counted.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synthdp.bundle import write_bundle
from synthdp.privacy.events.kinds import event_from_json
from synthdp.privacy.plan import bound_of
from tests.bundle.conftest import edit_json, make_release, problems
from tests.bundle.test_verify_seams import LEDGER, chain

Change = Callable[[dict[str, Any], dict[str, Any]], object]  # of the balance and the reservation


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good bundle that no test may change."""
    release = make_release(tmp_path_factory.mktemp("filtered"), filtered=True)
    return write_bundle(
        release.folder / "bundle", release.content, ledger=release.ledger, force=False
    )


@pytest.fixture
def bundle(filtered: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filtered, tmp_path / "copy"))


def test_it_says_this_release_all_so_far_and_the_rule(bundle: Path) -> None:
    assert problems(bundle) == ""
    stated = json.loads((bundle / LEDGER).read_text())
    balance, reserved = stated["balance"], stated["entries"][0]["body"]
    assert balance["epsilon"] == 3.5 and balance["mu"] ** 2 == pytest.approx(
        0.1**2 + reserved["mu"] ** 2
    )
    assert 0.5 < balance["together"] < 3  # at a larger delta than the release's own
    together = f"{balance['together']:.4g}"
    for file, words in (
        ("report.html", f"alone took 3, all so far come to {together} by a Gaussian filter"),
        (
            "privacy/certificate.md",
            "the rule that it goes by, a Gaussian filter at the cap's delta",
        ),
    ):
        assert words in " ".join((bundle / file).read_text().split()), file


def least(content: dict[str, Any]) -> tuple[float, float]:
    """What the filter counts of the charges of the run alone."""
    events = [
        event_from_json(e["body"]["event"]) for e in content["entries"] if e["kind"] == "charge"
    ]
    return bound_of(events[:1], delta=1e-5, adjacency="add_remove")


FORGED: dict[str, tuple[Change, str]] = {
    "less mu than the plan costs": (
        lambda balance, own: own.update(mu=own["mu"] * (1 - 1e-4)),
        "the filter counted less than what the plan costs",
    ),
    "less lost than the plan costs": (
        lambda balance, own: own.update(lost=own["lost"] / 2),
        "the filter counted less than what the plan costs",
    ),
    "no mu at all": (lambda balance, own: own.update(mu=0.0), "something else than amounts"),
    "a text for mu": (lambda balance, own: own.update(mu="1"), "something else than amounts"),
    "less than this run alone": (
        lambda balance, own: balance.update(mu=own["mu"] / 2),
        "the balance says that all runs took mu",
    ),
    "less together": (
        lambda balance, own: balance.update(together=1.0),
        "by a Gaussian filter, and the balance says 1 of 9",
    ),
    "more than the cap": (
        lambda balance, own: balance.update(mu=9.0),
        "by a Gaussian filter, and the balance says",
    ),
    "more lost than the part of the cap": (
        lambda balance, own: balance.update(lost=2e-4),
        "by a Gaussian filter, and the balance says",
    ),
    "no rule in the balance": (
        lambda balance, own: balance.pop("mu"),
        "the balance has not the fields of one",
    ),
    "no rule in the reservation": (
        lambda balance, own: own.pop("mu"),
        "the balance has not the fields of one",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_numbers_of_the_filter_that_cannot_be_true(name: str, bundle: Path) -> None:
    """With every hash as it must be."""
    change, words = FORGED[name]

    def forge(content: Any) -> None:
        change(content["balance"], content["entries"][0]["body"])
        chain(content["entries"])

    edit_json(bundle / LEDGER, forge)
    assert words in problems(bundle)


def test_the_filter_counts_the_plan_and_not_the_outcome(bundle: Path) -> None:
    """A run that used one of two looks, and states what that one cost."""

    def forge(content: Any) -> None:
        mu, lost = least(content)
        content["entries"][0]["body"].update(mu=mu, lost=lost)
        chain(content["entries"])

    edit_json(bundle / LEDGER, forge)
    assert "the filter counted less than what the plan costs" in problems(bundle)
