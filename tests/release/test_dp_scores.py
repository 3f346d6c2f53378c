"""A release whose headline scores are charged: what is published, what it costs, and that nothing
exact goes with it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.bundle import SCORED_FILES
from synthdp.bundle.certificate import Certificate
from synthdp.data import Domain, encode
from synthdp.errors import VerifyError
from synthdp.ledger import INTERNAL, Entry
from synthdp.privacy import plan
from synthdp.privacy.mechanisms.scores import ScoreCounts, Scored
from synthdp.release import ReleaseOutcome, resume
from synthdp.report import estimated, number
from synthdp.spec import load_spec
from synthdp.verify import Reader, verify_bundle
from synthdp.verify.rewritten import score_problems
from tests.chance import seeded
from tests.release.conftest import Tiny, certificate, internal, interrupt

pytestmark = pytest.mark.check

CHARGED = {
    "evaluation": {"disclosure": "private", "disclosure_share": 0.5},
    "gates": [{"metric": "tv2_dp", "at_most": 0.9}],
}


@dataclass
class Made:
    """A release with charged scores; what the mechanism saw and gave; what the ledger held when it
    looked.
    """

    tiny: Tiny
    outcome: ReleaseOutcome | None = None
    seen: list[Scored] = field(default_factory=list)
    exact: list[int] = field(default_factory=list)
    ledger: list[list[str]] = field(default_factory=list)

    @property
    def certificate(self) -> dict[str, Any]:
        return certificate(self.tiny.bundle)

    def text(self, name: str) -> str:
        return (self.tiny.bundle / name).read_text(encoding="utf-8")


class Listening:
    """Randomness that keeps what was to be hidden."""

    def __init__(self, inner: Any, exact: list[int]) -> None:
        self.inner, self.exact = inner, exact

    def discrete_gaussian(self, counts: Any, *, sigma: float) -> Any:
        self.exact += counts.tolist()
        return self.inner.discrete_gaussian(counts, sigma=sigma)


def make(folder: Path, *, interrupted: bool) -> Made:
    """Release; where it is interrupted after the scores, then resume."""
    made = Made(Tiny(folder).write(**CHARGED))
    true_run = ScoreCounts.run

    def run(self: ScoreCounts, table: Any, randomness: Any) -> Scored:
        made.ledger.append(
            [
                e.body.get("purpose", e.kind)
                for e in made.tiny.ledger.entries()
                if e.kind not in INTERNAL
            ]
        )
        made.seen.append(true_run(self, table, Listening(randomness, made.exact)))  # type: ignore[arg-type]
        return made.seen[-1]

    with pytest.MonkeyPatch.context() as patch, seeded("charged"):
        patch.setattr(plan, "GROUP_SIZES", (1, 2))
        patch.setattr(ScoreCounts, "run", run)
        if interrupted:
            interrupt(made.tiny, "bundle")
        made.outcome = resume(made.tiny.out) if interrupted else made.tiny.release()
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("charged"), interrupted=False)


def test_the_look_for_scores_is_a_stage_of_its_own_and_nothing_pays_before_it(tiny: Tiny) -> None:
    interrupt(tiny.write(**CHARGED), "score under privacy")
    charged = [e.body["purpose"] for e in tiny.ledger.entries() if e.kind == "charge"]
    assert charged == ["measure", "train"]


def test_scores_are_charged_before_rows_are_looked_at_and_once(made: Made) -> None:
    assert made.ledger == [["cap", "reserve", "measure", "train", "scores"]]
    charged = [e for e in made.tiny.ledger.entries() if e.kind == "charge"]
    assert [e.body["purpose"] for e in charged] == ["measure", "train", "scores"]
    facts = made.certificate
    assert [p["purpose"] for p in facts["purposes"]] == ["measure", "train", "scores"]
    assert facts["planned"][-1]["event"] == charged[-1].body["event"]
    misplaced, answers = charged[-1].body["event"]["of"]
    assert (misplaced["count"], answers["event"], answers["of"]["count"]) == (2, "held_out", 1)
    assert misplaced["of"] == answers["of"]["of"]
    assert made.outcome is not None
    assert facts["epsilon"] == pytest.approx(made.outcome.job.plan.epsilon_spent)
    assert 0.98 < facts["epsilon"] <= 1 and 0 < facts["purposes"][-1]["epsilon"] < 0.9


def test_what_is_published_is_what_was_paid_for_in_every_place(made: Made) -> None:
    facts, scored = made.certificate, made.seen[0]
    shown = [s["counts"] for s in facts["scores"]]
    assert shown == [*([n] for n in scored.misplaced.tolist()), *scored.answers.tolist()]
    assert [(s["name"], s["target"], s["tables"]) for s in facts["scores"]] == [
        ("tv1", None, 6),
        ("tv2", None, 15),
        ("tstr_accuracy", "sex", None),
    ]
    paid = {r["file"]: r["receipts"] for r in facts["released"]}
    assert all(facts["charges"][-1]["entry"] in paid[name] for name in SCORED_FILES)
    for score in facts["scores"]:
        assert score["low"] <= score["value"] <= score["high"]
        assert score["high"] - score["low"] > 0.05
        for name in ("DATACARD.md", "privacy/certificate.md"):
            told = estimated(score["value"], score["low"], score["high"])
            assert told.startswith(number(score["value"])) and told in made.text(name)
    report = made.text("report.html")
    assert "Scores on real rows, with noise that was paid for" in report
    assert "can only be measured on real rows" not in report
    assert f"{facts['scores'][2]['counts'][0]}, {facts['scores'][2]['counts'][1]}" in report
    tv2 = facts["scores"][1]
    told = f"tv2\\_dp at most 0.9: {estimated(tv2['value'], tv2['low'], tv2['high'])}, passed"
    assert told in made.text("privacy/certificate.md")
    assert made.outcome is not None
    assert made.outcome.metrics["tv2_dp"] == facts["scores"][1]["value"]
    assert made.outcome.metrics["tv2_dp_high"] == tv2["high"]
    (gate,) = internal(made.tiny.out)["gates"]
    assert (gate["value"], gate["passed"]) == (facts["scores"][1]["value"], True)


def test_nothing_exact_goes_with_them(made: Made) -> None:
    """Neither the counts under the noise nor the steward's own figures, in any file of the
    bundle.
    """
    noisy = [n for s in made.certificate["scores"] for n in s["counts"]]
    assert len(made.exact) == len(noisy) == 4 and made.exact != noisy
    assert made.outcome is not None
    exact = [made.outcome.metrics[n] for n in ("tv1", "tv2", "tv3", "tstr_auc", "tstr_ratio")]
    # so many digits that none stands there by chance
    figures = [str(value)[:10] for value in exact if len(str(value)) > 10]
    assert len(figures) >= 3  # one of few digits, such as .625, happens
    for p in made.tiny.bundle.rglob("*"):
        if p.suffix in (".md", ".json", ".html", ".yaml", ".svg"):
            text = p.read_text(encoding="utf-8")
            assert not [value for value in figures if value in text], p.name
    internal = (made.tiny.out / "internal" / "internal.json").read_text()
    assert all(value in internal for value in figures), "the search would find them"


@pytest.mark.slow
def test_a_run_that_goes_on_publishes_the_table_that_was_scored(tmp_path: Path) -> None:
    """Although it drew another; and it does not look again."""
    made = make(tmp_path, interrupted=True)
    assert len(made.seen) == 1
    assert made.tiny.kinds() == ["cap", "reserve", *["charge"] * 3, "settle"]
    assert made.certificate["scores"][0]["counts"] == made.seen[0].misplaced[:1].tolist()
    assert verify_bundle(made.tiny.bundle).ok
    spec = load_spec(made.tiny.spec)
    domain = Domain.from_spec(spec.columns)
    frame = pd.read_csv(
        made.tiny.bundle / "synthetic.csv",
        keep_default_na=False,
        na_values=[""],
        parse_dates=["joined"],
    )
    published, _ = encode(domain, frame)
    assert np.array_equal(
        *(np.array(sorted(codes.tolist())) for codes in (published, made.seen[0].codes))
    )


LIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "do not follow from their noisy counts": lambda facts: facts["scores"][1].update(value=0.001),
    "are not as many as the spec has charged": lambda facts: facts["scores"].pop(),
    "have not the noise, or the number": lambda facts: [
        s.update(sigma=1.0) for s in facts["scores"]
    ],
    "they are missing": lambda facts: facts.update(scores=[]),
}


def test_verify_derives_them_again(made: Made) -> None:
    """By its check of the certificate alone: `verify_bundle` runs it among all others."""

    def told(change: Callable[[dict[str, Any]], Any]) -> list[str]:
        reader, facts = Reader(made.tiny.bundle), made.certificate
        reader.parsed = load_spec(made.tiny.bundle / "spec.yaml")
        reader.entries = [Entry(**e) for e in reader.json("privacy/ledger.json")["entries"]]
        change(facts)
        return [*score_problems(Certificate.model_validate(facts), reader)]

    assert told(lambda facts: None) == []
    for problem, lie in LIES.items():
        assert any(problem in p for p in told(lie)), problem
    assert "does not hold" in told(lambda facts: facts["charged_gates"][0].update(at_most=0.0))[0]


@pytest.mark.slow
def test_a_lie_about_them_does_not_verify(made: Made) -> None:
    assert verify_bundle(made.tiny.bundle).ok
    path, text = (
        made.tiny.bundle / "privacy" / "certificate.json",
        made.text("privacy/certificate.json"),
    )
    for problem, lie in LIES.items():
        facts = json.loads(text)
        lie(facts)
        path.write_text(json.dumps(facts))
        with pytest.raises(VerifyError, match=f"scores: .*{problem}"):
            verify_bundle(made.tiny.bundle)
    path.write_text(text)


def test_without_charged_there_is_nothing_of_it(one_release: Path) -> None:
    bundle = one_release / "out" / "bundle"
    facts = certificate(bundle)
    assert facts["scores"] == []
    assert facts["charged_gates"] == []
    assert [p["purpose"] for p in facts["planned"]] == ["measure", "train"]
    for name, words in (
        ("DATACARD.md", "## Quality"),
        ("privacy/certificate.md", "Scores on real rows"),
        ("report.html", "Scores on real rows"),
    ):
        assert words not in (bundle / name).read_text(encoding="utf-8")
    assert "can only be measured on real rows" in (bundle / "report.html").read_text(
        encoding="utf-8"
    )
