"""What the certificate states: sound numbers, the guarantee in causal words, and what it leaves
out.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from synthdp.bundle import (
    BundleContent,
    describe_event,
    for_people,
    plain,
    render,
    template,
    write_bundle,
)
from synthdp.bundle.certificate import (
    Certificate,
    _groups,
    certify,
    charges_of,
    composed_of,
    events_of,
    plan_problems,
)
from synthdp.privacy import accounting
from synthdp.privacy.plan import Spend, spends_digest
from synthdp.spec import up
from synthdp.spec.model import DomainFrom, Gate
from synthdp.verify import verify_bundle

Build = Callable[..., Any]


def _certificate(release: Any) -> Certificate:
    content: BundleContent = release.content
    receipts = {"synthetic.csv": content.synthetic.receipts}
    return certify(
        content.spec,
        run=content.run,
        planned=content.planned,
        entries=release.ledger.run_entries(content.run),
        group_epsilons=content.group_epsilons,
        receipts=receipts,
    )


@pytest.mark.check
def test_epsilon_is_composed_from_the_plan(release: Any) -> None:
    certificate = _certificate(release)
    charged = charges_of(release.ledger.run_entries("run-1"))
    coin, told = composed_of(charged, release.content.spec), events_of(charged)
    assert certificate.held_out == 0.2 and len(coin) == 1 < len(told)
    assert (
        certificate.epsilon
        == certificate.epsilon_spent
        == accounting.epsilon(coin, delta=1e-5, adjacency="add_remove")
        < certificate.epsilon_told
        == accounting.epsilon(told, delta=1e-5, adjacency="add_remove")
    )
    assert [p.purpose for p in certificate.purposes] == ["measure", "train"]
    assert (
        max(p.epsilon for p in certificate.purposes)
        < certificate.epsilon
        < sum(p.epsilon for p in certificate.purposes)
    )
    assert certificate.groups[0].joint_epsilon == pytest.approx(certificate.epsilon)


def test_the_reservation_names_its_plan(release: Any) -> None:
    planned, entries = release.content.planned, list(release.ledger.run_entries("run-1"))
    assert list(plan_problems(planned, entries)) == []
    unused = Spend(
        purpose="graph: round 2",
        mechanism="tables",
        event={"event": "gaussian", "noise_multiplier": 3.0},
    )
    assert list(plan_problems((*planned, unused), entries)) == [
        "the reservation was made for another plan"
    ]
    assert list(plan_problems(planned, [e for e in entries if e.kind != "reserve"])) == [
        "the reservation was made for another plan"
    ]
    moved = planned[0].model_copy(update={"mechanism": "discrete Gaussian on 2 tables"})
    assert spends_digest((moved, *planned[1:])) != spends_digest(planned)


def test_what_was_planned_and_not_used_is_part_of_the_guarantee(release: Any) -> None:
    """A bit decides whether the second look is taken: the guarantee of either outcome is that of
    both looks.
    """
    second = Spend(
        purpose="graph: round 2",
        mechanism="Gaussian on tables",
        event={"event": "gaussian", "noise_multiplier": 2.0},
    )
    before = _certificate(release)
    release.content = replace(release.content, planned=(*release.content.planned, second))
    certificate = _certificate(release)
    events = composed_of(certificate.planned, release.content.spec)
    assert (
        certificate.epsilon
        == accounting.epsilon(events, delta=1e-5, adjacency="add_remove")
        > 1.5 * before.epsilon
    )
    assert certificate.epsilon_spent == before.epsilon
    assert [(p.purpose, p.used) for p in certificate.purposes] == [
        ("measure", True),
        ("train", True),
        ("graph: round 2", False),
    ]
    text = render(certificate)
    assert (
        "Planned and unused: graph: round 2. The looks that were taken compose to epsilon"
        f" {up(before.epsilon)}." in text
    )
    assert (
        "changes the probability of any outcome by at most a factor of"
        f" {up(math.exp(certificate.epsilon), digits=2)}" in text
    )
    assert "Planned and unused" not in render(before)
    assert "| spent on this outcome | all that was planned |" in render(before)


def test_total_effect_of_two_is_three_epsilon_and_joint_two() -> None:
    """The worked example of Tschantz et al., section 6.3, with pure epsilon: a group of k has k
    epsilon.
    """
    one, two, three, five = _groups({1: 0.5, 2: 1.0, 3: 1.5, 5: 2.5}, delta=1e-6)
    assert (one.joint_epsilon, one.total_epsilon) == (0.5, 0.5)
    assert (two.joint_epsilon, two.total_epsilon, two.total_delta) == (1.0, 1.5, 2e-6)
    assert three.total_epsilon == pytest.approx(3.0)
    assert five.total_epsilon == pytest.approx(0.5 + 1.0 + 1.5 + 2.5 + 2.5)  # 4 is bounded by 5
    assert five.total_epsilon >= 15 * 0.5


def test_the_total_effect_is_a_sum_and_no_chain(made: Path) -> None:
    """Chained, the bounds would need a larger delta than the sum that is stated; the joint effect
    bounds that change, and is said to.
    """
    five = _groups({1: 0.5, 2: 1.0, 3: 1.5, 5: 2.5}, delta=1e-6)[-1]
    chained = 1e-6 * sum(math.exp(sum((0.5, 1.0, 1.5, 2.5)[:i])) for i in range(5))
    assert chained > five.total_delta == 5 * five.joint_delta
    assert five.joint_epsilon is not None
    assert five.total_epsilon is not None
    assert five.joint_epsilon <= five.total_epsilon
    text = (made / "privacy" / "certificate.md").read_text()
    assert "The total is a sum of k bounds, one for each status." in text
    assert (
        "Changing all k statuses reaches these k data points alone, so what tells that world from"
        " this one is bounded by the joint effect." in text
    )


# --- in short ---


def first_page(certificate: Certificate) -> str:
    return render(certificate).partition("## In short")[2].partition("## ")[0]


def test_the_first_page_answers_a_board(made: Path) -> None:
    """What harm is left, why this epsilon, who was asked, until when, what else is out."""
    facts = Certificate.model_validate_json((made / "privacy" / "certificate.json").read_text())
    assert facts.publication is not None
    why = {"justification": "a | limit", "consulted": "the ethics board", "until": "2029"}
    full = facts.model_copy(update={"publication": facts.publication.model_copy(update=why)})
    text = first_page(full)
    for words in (
        "**Who answers for it**: The Clinic (Data desk",
        "**Why this epsilon**: a \\| limit",
        "**Who was asked**: the ethics board",
        "**Until when**: 2029",
        "releases of the original for epsilon 3.5 together",
        "all of them together may use an epsilon of at most 9",
        "Use it for what it is for: Teaching",
        "No attempt to break it with these settings is published",
    ):
        assert words in text, words
    assert "not stated" not in text and len(text.split()) < 330
    blank = first_page(full.model_copy(update={"publication": None}))
    for words in ("not stated; ask", "gives no reason", "does not say", "no review is stated"):
        assert words in blank, words
    first = full.model_copy(update={"balance": (full.epsilon_allowed, full.delta)})
    assert "no other release of the original" in first_page(first)
    assert "no other release of the original" not in text
    assert "the ethics board" in for_people(full)
    assert "not come to more than epsilon 9 together" in for_people(full)
    assert "has set no limit." in for_people(full.model_copy(update={"cap": None}))


def test_the_first_page_can_be_read_aloud(made: Path) -> None:
    """No power of ten, digits of a run, path or command with a dot stands in it."""
    facts = Certificate.model_validate_json((made / "privacy" / "certificate.json").read_text())
    text = first_page(facts)
    assert facts.run not in text and facts.run in render(facts)
    assert re.search(r"\de-\d|synthdp \w+ \.|/", text) is None
    assert "which covers the improbable: 1 in 1" in text
    assert max(len(s.split()) for s in re.split(r"[.:] |\n", text)) <= 35


def test_a_chance_is_never_told_smaller() -> None:
    told = template("certificate.md.j2").environment.filters["one_in"]
    assert [told(d) for d in (1e-5, 3e-7, 0.003, 1.1e-5)] == [
        "1 in 100,000",
        "1 in 3,333,333",
        "1 in 333",
        "1 in 90,909",
    ]


@pytest.mark.parametrize(("noise", "right"), [(0.5, 78), (2.0, 58), (8.0, 52), (1e3, 51)])
def test_how_often_the_best_guess_is_right(release: Any, noise: float, right: int) -> None:
    """Of one Gaussian look at four fifths: of them Phi(1 / 2 noise), rounded up."""
    spend = Spend(
        purpose="x", mechanism="x", event={"event": "gaussian", "noise_multiplier": noise}
    )
    release.content = replace(release.content, planned=(spend,))
    made = _certificate(release)
    assert right - 1 < 100 * (0.8 * stats.norm.cdf(1 / (2 * noise)) + 0.1) <= right
    assert f"**at most {right} times in 100**" in first_page(made)
    assert f"at most **{right} times in 100**" in for_people(made)


def test_a_search_for_the_domain_and_gates_on_real_rows_are_not_left_out(release: Any) -> None:
    """Both widen what the first page and the page for people may promise."""
    spend = Spend(purpose="x", mechanism="x", event={"event": "gaussian", "noise_multiplier": 2.0})
    spec = release.content.spec.model_copy(update={"gates": ()})
    release.content = replace(release.content, planned=(spend,), spec=spec)
    alone = _certificate(release)
    own = DomainFrom(run="20261124-0123456789ab", epsilon=0.5, delta=1e-7)
    both = alone.model_copy(update={"domain_from": own})
    right = math.ceil(100 * (0.8 * stats.norm.cdf(1 / 4) + 0.1) + 50 * math.tanh(0.25))
    assert right == 71
    assert "at most 58 times" in first_page(alone) and "at most 71 times" in first_page(both)
    assert "**71 times in 100**" in for_people(both)
    assert "and 0.5 on top for the columns' domain" in first_page(both)
    gate = Gate(metric="tv1", at_most=0.2, outside_guarantee=True)
    gated = alone.model_copy(update={"outside_gates": (gate,)})
    for page in (first_page, for_people):
        assert len(page(gated)) > len(page(alone))
    assert "this does not bound" in first_page(gated)
    assert "looked at the table itself" in for_people(gated)


def test_tables_of_several_noises_are_told_in_one_cell() -> None:
    once = {"event": "discrete_gaussian", "sigma": 42.7, "sensitivity": 1}
    of = [{"event": "repeated", "count": 4, "of": once}, once | {"sigma": 60.0}]
    assert describe_event({"event": "all", "of": of}) == (
        "discrete Gaussian on counts that a unit moves by at most 1; tables: 4 of sigma 42.7, 1 of"
        " sigma 60"
    )
    apart = [once, once | {"sensitivity": 2}]
    assert describe_event({"event": "all", "of": apart}).count("; and discrete Gaussian") == 1


def test_infinite_group_bounds_are_named(release: Any) -> None:
    release.content = replace(release.content, group_epsilons={1: 1.3, 10: math.inf})
    certificate = _certificate(release)
    assert certificate.groups[1].joint_epsilon is None
    assert certificate.groups[1].total_epsilon is None
    assert "| 10 | no bound |" in render(certificate)
    json.dumps(certificate.model_dump(mode="json"), allow_nan=False)


def test_json_roundtrip_gives_the_same_text(made: Path) -> None:
    certificate = Certificate.model_validate_json(
        (made / "privacy" / "certificate.json").read_text()
    )
    assert render(certificate) == (made / "privacy" / "certificate.md").read_text()


@pytest.mark.parametrize(
    "words",
    [
        "causal effect of one *data point*",
        "do(D_i)",
        "no assumption that rows are independent",
        "joint* effect: **2 epsilon**",
        "**3 epsilon**",
        "one row: one visit",
        "add or remove one unit",
        "(with 5 rows, line k = 5)",
        "declared as 200",
        "Timing:",
        (
            "a table that lacks a column or has far more rows than declared or holds a value"
            " outside the declared domain or has another number of rows"
        ),
        "Correlated rows:",
        "Being in the source:",
        "The decision to publish**: the spec asked for `tv1` at most 0.2",
        "caps all of them together at epsilon 9, delta 0.001",
        "3 times: discrete Gaussian of sigma 12 on counts that a unit moves by at most 1",
        "40 times: Gaussian of 1.5 times the clipping norm, on a Poisson sample of rate 0.05",
        "synthdp verify .",
    ],
)
def test_text_says(made: Path, words: str) -> None:
    assert words in (made / "privacy" / "certificate.md").read_text()


def test_tables_chosen_in_the_search_have_other_noise(made: Path) -> None:
    certificate = Certificate.model_validate_json(
        (made / "privacy" / "certificate.json").read_text()
    )
    chosen = certificate.charges[0].model_copy(
        update={"event": {"event": "rounded_gaussian", "sigma": 4.0, "sensitivity": 1}}
    )
    words = "on tables chosen during the search it is a 64-bit Gaussian rounded to whole numbers"
    assert words not in render(certificate) and words in render(
        certificate.model_copy(update={"planned": (*certificate.planned, chosen)})
    )


def test_text_without_gates_does_not_speak_of_them(release: Any) -> None:
    release.content = replace(
        release.content, spec=release.content.spec.model_copy(update={"gates": ()})
    )
    assert "decision to publish" not in render(_certificate(release))


@pytest.mark.check
def test_id_unit_replace_one_and_approximate_rows(
    build: Build, tmp_path: Path, spec_text: str
) -> None:
    text = spec_text.replace(
        "{kind: row, meaning: one visit}",
        "{kind: id, column: person, max_rows: 2, meaning: one patient}",
    )
    release = build(tmp_path, text.replace("kind: public", "kind: approximate"))
    text = render(_certificate(release))
    assert "all rows of one id, at most 2 of which are used: one patient" in text
    assert "exact number was not used" in text and "treated as known" not in text
    assert "for up to 2 rows of a unit" in text and "moves by at most 2" in text
    assert "A person with several rows is a group" not in text


QUERY = "{kind: sql, url_env: CLINIC_URL, query: SELECT secret FROM visits}"
ID = "{kind: id, column: person, max_rows: 2, meaning: one patient}"


@pytest.mark.check
@pytest.mark.parametrize(
    ("unit", "whose"),
    [(None, "each row of that answer"), (ID, "all rows of one id in that answer")],
)
def test_rows_that_a_query_made_are_told(
    build: Build, tmp_path: Path, spec_text: str, unit: str | None, whose: str
) -> None:
    csv, row = "{kind: csv, path: /home/steward/secret-folder/visits.csv}", "{kind: row, meaning"
    text = spec_text.replace(csv, QUERY)
    if unit is not None:
        text = text.replace(f"{row}: one visit}}", unit).replace("epsilon: 3\n", "epsilon: 8\n")
    made = build(tmp_path, text)
    bundle = write_bundle(tmp_path / "bundle", made.content, ledger=made.ledger, force=False)
    told = (bundle / "privacy" / "certificate.md").read_text()
    (sentence,) = [
        line
        for line in told.partition("## The guarantee")[2].partition("## ")[0].split("\n")
        if "query" in line
    ]
    assert ". " not in sentence and f"the guarantee is for {whose}" in sentence
    assert "holds for the people" in sentence and "if the query makes one row of each" in sentence
    facts = json.loads((bundle / "privacy" / "certificate.json").read_text())
    assert facts["source"] == "sql" and "secret" not in json.dumps(facts) + told
    assert verify_bundle(bundle).ok


def test_rows_of_a_file_are_no_answer(made: Path) -> None:
    facts = json.loads((made / "privacy" / "certificate.json").read_text())
    told = (made / "privacy" / "certificate.md").read_text()
    assert facts["source"] == "csv" and "answer of a query" not in told


@pytest.mark.parametrize(
    ("mode", "words"),
    [("none", "no causal graph was used"), ("validate", "what was found about it was paid for")],
)
def test_graph_modes(release: Any, mode: str, words: str) -> None:
    spec = release.content.spec
    release.content = replace(
        release.content,
        spec=spec.model_copy(update={"graph": spec.graph.model_copy(update={"mode": mode})}),
    )
    assert words in render(_certificate(release))


@pytest.mark.check
@given(st.floats(1e-6, 1e4), st.integers(1, 6))
def test_up_never_falls_below(value: float, digits: int) -> None:
    assert float(up(value, digits=digits)) >= value - 2e-6 * 10**-digits
    assert float(up(value, digits=digits)) <= value + 1.01 * 10**-digits


def test_up_keeps_decimal_fractions() -> None:
    assert (up(0.3), up(1.0), up(0.1 + 0.2), up(1.00001)) == ("0.3", "1", "0.3", "1.0001")


def test_stewards_words_cannot_break_out(build: Build, tmp_path: Path, spec_text: str) -> None:
    assert plain("a|b\n\n# c <img> `x`") == "a\\|b # c &lt;img> 'x'"
    title = '"x | y\\n\\n# Fake guarantee"'
    release = build(tmp_path, spec_text.replace("title: Clinic visits | 2025", f"title: {title}"))
    assert "\n# Fake" not in render(_certificate(release))


def test_every_event_is_described() -> None:
    gaussian = {"event": "gaussian", "noise_multiplier": 2.0}
    assert (
        describe_event({"event": "all", "of": [gaussian, {"event": "nothing"}]})
        == "Gaussian of 2 times the most that a unit moves all numbers together (in L2); and"
        " nothing"
    )
    assert (
        describe_event({"event": "rounded_gaussian", "sigma": 9.0, "sensitivity": 3})
        == "rounded Gaussian of sigma 9 on counts that a unit moves by at most 3"
    )
    assert "Gumbel noise of scale 4" in describe_event(
        {"event": "gumbel_max", "scale": 4.0, "sensitivity": 1, "rows": 1}
    )
    assert describe_event({}) == "unknown"


@pytest.mark.check
def test_groups_have_more_to_lose_where_the_domain_came_from_rows(release: Any) -> None:
    """Its search is no part of the table, which is of the planned events of this run."""
    own = DomainFrom(run="20261124-0123456789ab", epsilon=0.5, delta=1e-7)
    plain = _certificate(release)
    told = render(plain.model_copy(update={"domain_from": own})).split("## Groups")[1]
    assert "lines are of this release alone" in told.split("\n## ")[0] and own.run in told
    assert "of this release alone" not in render(plain)
