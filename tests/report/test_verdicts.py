"""Verdicts: green only for what was tested and could have failed, and the same release is judged
alike on both pages.
"""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from synthdp.bundle import gate_words
from synthdp.data import ColumnDomain, Domain
from synthdp.evaluate import CoverageRow, TwoSampleRow
from synthdp.evaluate.dp_scores import ChargedScore
from synthdp.evaluate.fidelity import fidelity, sampling_distance
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.release.gates import Figure, check_gates
from synthdp.report import (
    About,
    Bounds,
    Came,
    EstimandBeside,
    GateResult,
    GraphView,
    Look,
    Measured,
    PublicContent,
    Verdict,
    attack_card,
    forecasts,
    mean_noise,
    number,
    public_cards,
    public_uses,
    render,
    render_public,
    report_cards,
    report_uses,
    shares,
    verdicts,
)
from synthdp.spec.model import Gate
from tests.report.test_public import facts, public, table_of
from tests.report.test_report import attack, content


def by_heading(found: Any) -> dict[str, Verdict]:
    return {verdict.heading: verdict for verdict in found}


def cards_of(whole: PublicContent) -> dict[str, Verdict]:
    return by_heading(public_cards(whole, Measured.of(whole)))


def uses_of(whole: PublicContent) -> dict[str, Verdict]:
    return by_heading(public_uses(whole, Measured.of(whole)))


def score(name: str, value: float | None, low: float, high: float, **more: Any) -> dict[str, Any]:
    stated = {"name": name, "target": None, "counts": [3], "sigma": 2.0, "tables": 3}
    return {**stated, "value": value, "low": low, "high": high, **more}


def stated(kind: str, known: int, refused: int) -> dict[str, Any]:
    """An estimand with so many figures, and so many that have none."""
    figure = {"estimate": 0.001, "interval": [-0.01, 0.012], "rows": 100.0}
    figures: list[dict[str, Any]] = [{**figure, "group": f"g{k}"} for k in range(known)]
    figures += [{"refused": "too few rows"} for _ in range(refused)]
    text, statistic = f"{kind} of t", "coefficient" if kind == "regression" else "mean"
    return {"kind": kind, "text": text, "statistic": statistic, "about": ["a"], "figures": figures}


class TestStates:
    @pytest.mark.parametrize(
        ("epsilon", "state"), [(1.0, "plain"), (4.9, "plain"), (5.0, "fair"), (20.0, "bad")]
    )
    def test_a_guarantee_is_never_green(self, epsilon: float, state: str) -> None:
        card = verdicts.guarantee(epsilon, 1e-5, advantage=0.1)
        assert card.state == state and "at most 55 times in 100" in card.text
        assert bool(card.advice) == (state != "plain")

    @pytest.mark.parametrize(
        ("low", "high", "ceiling", "state"),
        [
            (-0.664, 0.116, 0.105, "unknown"),  # 12 models resolve nothing
            (0.0, 0.12, 0.105, "good"),
            (0.0, 0.12, 0.99, "unknown"),  # nothing could refute so large a claim
        ],
    )
    def test_an_attack_tells_only_what_it_could_have_found(
        self, low: float, high: float, ceiling: float, state: str
    ) -> None:
        card = verdicts.attack(-0.333, low, high, ceiling=ceiling, trials="12", refuted=False)
        assert card.state == state and (card.number == "cannot tell") == (state == "unknown")

    def test_a_refuted_claim_is_red_whatever_the_interval(self) -> None:
        card = verdicts.attack(0.9, 0.1, 1.0, ceiling=0.1, trials="12", refuted=True)
        assert card.state == "bad" and "do not publish" in card.advice

    def test_every_state_has_words(self) -> None:
        for state in verdicts.WORDS:
            assert bool(Verdict("h", "1", "t", state).word) == (state != "plain")
        assert Verdict("h", "1", "t", "bad", use=True).word == "no"

    def test_the_worst_of_several(self) -> None:
        assert verdicts.worst(["good", "unknown"]) == "unknown"
        assert verdicts.worst(["unknown", "fair", "good"]) == "fair"
        assert verdicts.worst([]) == "unknown"


class TestThePublicPage:
    def test_without_paid_scores_nothing_is_claimed_of_pairs(self) -> None:
        cards, uses = cards_of(public()), uses_of(public())
        assert cards["Pairs of columns"].state == uses["Shares and tables"].state == "unknown"
        assert uses["Prediction"].word == "cannot tell"
        assert "paid for" in uses["Prediction"].better

    def test_a_good_release(self) -> None:
        scores = [
            score("tv1", 0.01, 0.0, 0.02),
            score("tv2", 0.02, 0.01, 0.03),
            score("tstr_accuracy", 0.8, 0.7, 0.9, target="sort"),
        ]
        whole = public(rows=4000, facts=facts(scores=scores), floors={"tv1": 0.01, "tv2": 0.03})
        cards, uses = cards_of(whole), uses_of(whole)
        assert cards["Pairs of columns"].state == cards["Single columns"].state == "good"
        assert "another sample of as many real rows: 0.03" in cards["Pairs of columns"].floor
        assert [uses[u].word for u in ("Teaching and code", "Shares and tables", "Prediction")] == [
            "yes",
            "with care",
            "yes",
        ]
        assert "commonest answer" in uses["Prediction"].floor
        assert uses["Coefficients"].number == "by copies alone"

    def test_a_small_table_is_told_to_be_bad(self) -> None:
        whole = public(rows=40)  # noise of 5 in levels of 10
        cards, uses = cards_of(whole), uses_of(whole)
        assert cards["Columns whose shape is noise"].state == "bad"
        assert uses["Shares and tables"].word == "no"
        assert "good" not in {v.state for v in (*cards.values(), *uses.values())}

    @pytest.mark.parametrize(
        ("mode", "word"), [("none", "no"), ("predict", "no"), ("given", "cannot tell")]
    )
    def test_effects_need_a_causal_graph_that_was_tested(self, mode: str, word: str) -> None:
        assert uses_of(public(graph=GraphView(mode=mode)))["Effects"].word == word

    def test_models_that_do_no_better_than_a_constant_guess(self) -> None:
        worse = [score("tstr_accuracy", 0.1, 0.05, 0.15, target="sort")]
        assert uses_of(public(facts=facts(scores=worse)))["Prediction"].word == "no"
        hidden = [score("tstr_accuracy", None, 0.0, 1.0, target="sort")]
        assert uses_of(public(facts=facts(scores=hidden)))["Prediction"].word == "cannot tell"

    @pytest.mark.parametrize("turned", [False, True])
    def test_of_several_targets_the_worst_has_name_figure_and_colour(self, turned: bool) -> None:
        """Whichever is named first, and where another is known better or not at all."""
        good = score("tstr_accuracy", 0.9, 0.85, 0.95, target="sort")
        bad = score("tstr_accuracy", 0.12, 0.08, 0.16, target="size")
        none = score("tstr_accuracy", None, 0.0, 1.0, target="kind")

        def card(*found: dict[str, Any]) -> Verdict:
            shown = [*found][::-1] if turned else [*found]
            return uses_of(public(rows=4000, facts=facts(scores=shown)))["Prediction"]

        two = card(good, bad)
        assert (two.number, two.state) == ("0.12 (0.08 to 0.16)", "bad")
        assert two.text.startswith("of answers on size, the worst of 2 targets,")
        assert two.text.endswith("; of the other target is 0.9")
        assert card(good, bad, {**good, "value": 0.8}).text.endswith("mean of the others is 0.85")
        hidden = card(good, none)
        assert (hidden.number, hidden.state) == ("not known", "unknown")
        assert "models of kind" in hidden.text and hidden.text.endswith("the other target is 0.9")
        least = card({**good, "value": 0.3, "low": 0.27}, good)
        assert (least.number, least.state) == ("0.3 (0.27 to 0.95)", "good")
        assert "worst" not in card(good).text and "other" not in card(good).text

    @pytest.mark.parametrize(("half", "state"), [(0.01, "good"), (0.3, "fair"), (2.0, "bad")])
    def test_estimands_are_judged_by_their_intervals(self, half: float, state: str) -> None:
        figure = {"estimate": 0.5, "interval": [0.5 - half, 0.5 + half], "rows": 100.0}
        stated = {"text": "t", "statistic": "share", "about": ["a"], "figures": [figure]}
        assert cards_of(public(estimands=[stated]))["Questions answered"].state == state

    @pytest.mark.parametrize("kind", ["effect", "regression"])
    def test_effects_and_coefficients_are_not_judged_by_their_size(self, kind: str) -> None:
        """No card denies what stands on the page with an interval."""
        none = public(estimands=[stated(kind, 0, 2)], graph=GraphView(mode="none"))
        assert uses_of(none)["Effects"].word == "no"
        assert cards_of(none)["Questions answered"].state == "bad"
        half = public(estimands=[stated(kind, 1, 1)], graph=GraphView(mode="none"))
        assert uses_of(half)["Effects"].number == "1 of 2"
        assert uses_of(half)["Effects"].word == "with care"
        card = cards_of(half)["Questions answered"]
        assert card.state == "fair" and f"no figure of {kind} of t (1 group of 2)" in card.text
        whole = public(estimands=[stated(kind, 2, 0)])
        card = cards_of(whole)["Questions answered"]
        assert (card.number, card.state) == ("2 of 2", "plain")

    def test_up_to_three_figures_stand_on_the_first_screen(self) -> None:
        asked = [stated("effect", 2, 1), stated("question", 0, 1), stated("regression", 3, 0)]
        html = render_public(public(estimands=asked))
        first = html[: html.index("<main>")]
        assert re.findall(r"<li>(.*?): <strong>(.*?)</strong>", first) == [
            ("effect of t, g0", "0.001 (-0.01 to 0.012)"),
            ("regression of t, g0", "0.001 (-0.01 to 0.012)"),
            ("effect of t, g1", "0.001 (-0.01 to 0.012)"),
        ]
        assert "First figures" not in render_public(public(estimands=[stated("effect", 0, 2)]))

    def test_linkage_checks_and_audits_stand_on_the_first_screen(self) -> None:
        gates = ("tv1_dp at most 0.1: 0.0134 (0 to 0.106), passed; noise decided",)
        html = render_public(public(gates=gates))
        first = html[: html.index("<main>")]
        assert gates[0] in first and "no audit is published" in first and "linking rows" in first

    def test_pairs_whose_table_is_noise_have_a_card_with_names(self) -> None:
        """Twelve levels by four under noise of 30 in 400 rows; four by four under noise of 1."""
        domain = Domain((*table_of(("sort", "size")).columns, *table_of(("land",), 12).columns))
        codes = np.random.default_rng(0).integers(0, 4, size=(400, 3)).astype(np.uint16)

        def pair(one: int, other: int, sigma: float) -> NoisyTable:
            names, sizes = domain.names, domain.sizes
            counts = np.zeros((sizes[one], sizes[other]))
            np.add.at(counts, (codes[:, one], codes[:, other]), 1.0)
            return NoisyTable((names[one], names[other]), counts, sigma)

        whole = public(domain=domain, codes=codes, tables=[pair(0, 1, 1.0), pair(0, 2, 30.0)])
        card = cards_of(whole)["Pairs whose table is noise"]
        assert (card.number, card.state) == ("1 of 2", "bad") and "sort with land" in card.text
        sound = [p.names for p in Measured.of(whole).pairs if p.sound]
        assert sound == [("sort", "size")]

    def test_where_many_columns_are_noise_no_score_makes_shares_of_them(self) -> None:
        scores = [score("tv1", 0.01, 0.0, 0.02), score("tv2", 0.02, 0.01, 0.03)]
        whole = public(rows=40, facts=facts(scores=scores))
        card = uses_of(whole)["Shares and tables"]
        assert card.word == "no" and card.number == "3 of 3"
        assert uses_of(whole)["Teaching and code"].word == "with care"
        html = render_public(whole)
        first = html[: html.index("<main>")]
        assert all(name in first for name in whole.domain.names) and "Noise alone" in first

    def test_means_by_a_group_are_a_use_by_the_number_of_its_levels(self) -> None:
        """Noise of 6 in 1,000 rows and ten bins: tables of 3 levels hold, of 12 they do not."""
        age = ColumnDomain(
            "age", "integer", tuple("abcdefghij"), False, (), (*range(10),), 10, 0, 9
        )
        domain = Domain((age, *table_of(("sex",), 3).columns, *table_of(("land",), 12).columns))
        rng, sizes = np.random.default_rng(0), (10, 3, 12)
        codes = np.stack([rng.integers(0, k, 1000) for k in sizes], axis=1).astype(np.uint16)
        tables = [
            NoisyTable((domain.names[i], "age"), np.full((sizes[i], 10), 1000 / sizes[i] / 10), 6.0)
            for i in (1, 2)
        ]
        whole = public(domain=domain, codes=codes, tables=tables)
        card = uses_of(whole)["Means by group"]
        assert (card.number, card.word) == ("up to 3 levels", "with care")
        assert "not of age by land (12 levels)" in card.text
        far = replace(whole, tables=[replace(t, sigma=60.0) for t in tables])
        assert uses_of(far)["Means by group"].word == "no"
        tail = replace(whole, means={"age": 0.5})
        card = uses_of(tail)["Means by group"]
        assert card.word == "no" and card.text.endswith("; no mean at all of age")
        assert uses_of(public())["Means by group"].word == "cannot tell"

    def test_the_first_screen_says_what_whom_and_whom_to_ask(self) -> None:
        about = About(description="A survey.", licence="CC0-1.0", day="2026-11-05")
        told = {"curators": [{"name": "The <Office>"}], "intended_use": "lessons"}
        told |= {"justification": "a board's limit", "consulted": "<the board>"}
        stated = facts(contact="<desk@x.example>", publication=told)
        html = render_public(public(about=about, facts=stated))
        for said in ("The &lt;Office&gt;", "lessons", "a board&#39;s limit; asked before: &lt;the"):
            assert said in html[: html.index("<main>")]
        first = html[: html.index("<main>")]
        for said in ("A survey.", "one person", "&lt;desk@x.example&gt;", "CC0-1.0", "2026-11-05"):
            assert said in first
        assert "unsigned" in first and html.count("<details") == 5


class TestTheInternalPage:
    def test_a_gate_on_what_the_rows_were_fitted_to_is_not_green(self) -> None:
        fitted = content()
        assert by_heading(report_cards(fitted))["Gates"].state == "unknown"
        gate = GateResult(metric="tv2_dp", bound="at most 0.2", value=0.1, passed=True)
        assert by_heading(report_cards(replace(fitted, gates=(gate,))))["Gates"].state == "good"
        failed = replace(gate, passed=False)
        assert by_heading(report_cards(replace(fitted, gates=(failed,))))["Gates"].state == "bad"

    def test_bad_news_has_cards(self) -> None:
        whole = content()
        assert whole.evaluation is not None
        report = replace(
            whole.evaluation,
            two_sample=(TwoSampleRow("synthetic from real", "trees", 0.8, 0.78, 0.82),),
            coverage=(
                CoverageRow("means of columns", 40, 0.5, 0.94),
                CoverageRow("shares of levels", 40, 0.8, 0.94),
            ),
        )
        bad = replace(whole, evaluation=report)
        cards, uses = by_heading(report_cards(bad)), by_heading(report_uses(bad))
        assert cards["Told from real rows"].state == cards["Intervals"].state == "bad"
        assert uses["Shares and tables"].word != "yes"
        assert "80% of 95% intervals of shares" in uses["Shares and tables"].text
        assert "in samples of equal size" in uses["Shares and tables"].floor

    def test_a_wrong_mean_is_seen_where_the_shape_is_near(self) -> None:
        """Of 2,000 rows 2 have a payment in the last of 100 bins, and 9 of the synthetic ones."""
        paid = ColumnDomain(
            "paid", "number", tuple(map(str, range(100))), False, (), (*range(100),), 100, 0, 100
        )
        real, drawn = (np.repeat([0, 99], (2000 - k, k))[:, None] for k in (2, 9))
        codes = [np.repeat(c, 2, axis=1).astype(np.uint16) for c in (real, drawn)]
        table = Domain((paid, replace(paid, name="again")))
        whole = content()
        assert whole.evaluation is not None
        near = fidelity(*codes, table, triples=0)
        report = replace(whole.evaluation, fidelity=near)
        wrong = replace(whole, domain=table, graph=None, evaluation=report)
        cards = by_heading(report_cards(wrong))
        assert cards["Columns whose shape is lost"].state == "good"
        assert cards["Means that are wrong"].number == "2 of 2"
        same = replace(
            wrong,
            evaluation=replace(
                whole.evaluation, fidelity=fidelity(codes[0], codes[0], table, triples=0)
            ),
        )
        assert by_heading(report_cards(same))["Means that are wrong"].state == "good"
        assert by_heading(report_uses(wrong))["Coefficients"].number == "by copies alone"

    @pytest.mark.parametrize(
        ("kept", "tables", "effects"), [(1.0, "yes", "yes"), (0.0, "no", "no")]
    )
    def test_what_goes_together_no_longer_is_no_table_and_no_effect(
        self, kept: float, tables: str, effects: str
    ) -> None:
        """Independences of a graph hold where nothing is left; what its arrows say does not."""
        rng, table = np.random.default_rng(1), table_of(("sort", "kind"), 2)
        real = rng.integers(0, 2, size=(4000, 1)) ^ (rng.random((4000, 2)) < 0.2)
        drawn = real if kept else np.stack([real[:, 0], rng.permutation(real[:, 1])], axis=1)
        whole = content()
        assert whole.evaluation is not None and whole.graph is not None
        near = fidelity(real.astype(np.uint16), drawn.astype(np.uint16), table, triples=0)
        report = replace(whole.evaluation, fidelity=near, coverage=(), effects=())
        graph = replace(whole.graph, edges=(("sort", "kind", "given"),))
        uses = by_heading(report_uses(replace(whole, domain=table, evaluation=report, graph=graph)))
        assert uses["Shares and tables"].word == tables
        assert uses["Effects"].word == effects
        assert f"{1 - kept:.0f} of 1 arrow that the rows show" in uses["Effects"].text

    @pytest.mark.parametrize(("statistic", "word"), [("effect", "with care"), ("mean", "no")])
    def test_an_effect_that_has_a_figure_is_not_denied(self, statistic: str, word: str) -> None:
        beside = EstimandBeside(
            text="t",
            statistic=statistic,
            group="",
            released=2.7,
            interval=(0.7, 4.7),
            real=3.3,
        )
        whole = content(graph=None, estimands=(beside,))
        assert by_heading(report_uses(whole))["Effects"].word == word
        assert whole.evaluation is not None
        missed: Any = replace(whole.evaluation, effects=[SimpleNamespace(covered=False)] * 4)
        wrong = replace(whole, graph=content().graph, evaluation=missed)
        assert by_heading(report_uses(wrong))["Effects"].word == word  # of the rows it would be no

    def test_the_attack_that_tells_most_speaks(self) -> None:
        few = {"attack": "shadow", "models": 12, "refutes_claim": False}
        few["shared_advantage"] = {"value": 0.3, "lower": -0.3, "upper": 0.8}
        many = {"attack": "tables", "models": 600, "refutes_claim": False}
        many["shared_advantage"] = {"value": 0.06, "lower": 0.0, "upper": 0.12}
        card = attack_card(attack(declared=[few, many]))
        assert card.state == "good" and "600 tests in each world (tables)" in card.text
        assert attack_card(attack(declared=[few])).state == "unknown"
        assert attack_card(None).state == "unknown"

    def test_curves_of_too_few_models_are_not_drawn(self) -> None:
        main = dict(attack()["main"])
        main["advantage"] = {"value": 0.1, "lower": -0.4, "upper": 0.6}
        html = render(content(attack=attack(main=main)))
        assert "is not drawn" in html and "this attack</text>" not in html
        assert "this attack</text>" in render(content())


def test_both_pages_draw_the_same_budget_and_the_same_bound() -> None:
    stated = facts()
    steps = tuple(Look(**purpose) for purpose in stated["purposes"])
    whole = content(profile=tuple(public().profile), attack=None)
    inside = replace(whole, budget=replace(whole.budget, steps=steps))
    figures = [
        re.findall(r"<svg[^>]*>(.*?)</svg>", html, re.DOTALL)
        for html in (render(inside), render_public(public()))
    ]
    for mark in ("left of the budget", "the guarantee rules this out"):
        one, other = (next(f for f in page if mark in f) for page in figures)
        assert one == other


def test_shares_of_the_budget_add_up_in_any_order() -> None:
    alone = [0.2, 0.9, 0.3, 0.06]
    parts = shares(alone, delta=1e-5)
    assert sum(parts) == pytest.approx(1)
    assert shares(alone[::-1], delta=1e-5) == pytest.approx(parts[::-1])
    # A Gaussian mechanism of twice the mu counts four times as much.
    from dp_accounting import GaussianDpEvent

    from synthdp.privacy.accounting import epsilon as composed

    one, two = (
        composed([GaussianDpEvent(sigma)], delta=1e-5, adjacency="add_remove")
        for sigma in (8.0, 4.0)
    )
    assert shares([one, two], delta=1e-5) == pytest.approx([0.2, 0.8], abs=0.01)


def test_the_sampling_floor_is_that_of_two_samples() -> None:
    rng, law = np.random.default_rng(0), np.array([0.5, 0.3, 0.15, 0.05])
    drawn = [
        0.5 * np.abs(rng.multinomial(500, law) / 500 - rng.multinomial(2000, law) / 2000).sum()
        for _ in range(2000)
    ]
    assert sampling_distance(law, 500, 2000) == pytest.approx(np.mean(drawn), rel=0.03)


def test_the_guarantee_counts_the_search_for_columns() -> None:
    alone = verdicts.guarantee(0.99937, 1e-5, advantage=0.1)
    assert alone.number == "epsilon 0.9994" and "for everything in the bundle" in alone.text
    both = verdicts.guarantee(0.99937, 1e-5, advantage=0.1, search=(4.5, 1e-6))
    assert "at most 55 times in 100" in alone.text and "at most 100 times" in both.text
    assert "epsilon 5.4994 at delta 1.1e-05 for everything" in both.text and both.state == "fair"


def test_a_distance_that_another_sample_has_needs_no_care() -> None:
    def state(low: float, high: float, floor: float) -> str:
        found = score("tv1", (low + high) / 2, low, high)
        return verdicts.distance("Columns", found, verdicts.COLUMNS, "", floor=floor).state

    assert state(0.03, 0.06, 0.06) == "good"
    assert state(0.03, 0.061, 0.06) == "fair"
    assert state(0.16, 0.2, 0.4) == "bad"


def test_a_figure_of_noise_is_shown_as_its_interval_in_the_colour_of_its_worse_end() -> None:
    """The truth was .071, and noise had made .013 of it."""
    lucky = [score("tv1", 0.0134, 0.0, 0.106), score("tv2", 0.02, 0.0, 0.3)]
    whole = public(rows=4000, facts=facts(scores=lucky), floors={"tv1": 0.02, "tv2": 0.05})
    cards, uses = cards_of(whole), uses_of(whole)
    assert (cards["Single columns"].number, cards["Single columns"].state) == ("0 to 0.106", "fair")
    assert (cards["Pairs of columns"].number, cards["Pairs of columns"].word) == (
        "0 to 0.3",
        "cannot tell",
    )
    assert uses["Teaching and code"].number == "0 to 0.106"
    assert "0 to 106 of 1,000 rows" in cards["Single columns"].text
    narrow = [score("tv1", 0.0134, 0.01, 0.016)]
    card = cards_of(public(facts=facts(scores=narrow), floors={"tv1": 0.02}))["Single columns"]
    assert (card.number, card.state) == ("0.0134 (0.01 to 0.016)", "good")


@pytest.mark.parametrize(
    ("bound", "value", "ends", "outcome"),
    [
        ({"at_most": 0.15}, 0.0134, (0.0, 0.106), "passed"),
        ({"at_most": 0.1}, 0.0134, (0.0, 0.106), "passed; noise decided"),
        ({"at_most": 0.1}, 0.12, (0.09, 0.15), "failed; noise decided"),
        ({"at_most": 0.1}, 0.12, (0.11, 0.15), "failed"),
        ({"at_least": 0.8}, 0.85, (0.81, 0.9), "passed"),
        ({"at_least": 0.8}, 0.85, (0.79, 0.9), "passed; noise decided"),
        ({"at_least": 0.8}, 0.75, (0.7, 0.81), "failed; noise decided"),
        ({"at_least": 0.8}, 0.75, (0.7, 0.79), "failed"),
        ({"at_most": 0.1}, 0.1, (), "passed"),
        ({"at_most": 0.1}, None, (), "failed"),
    ],
)
def test_a_gate_says_where_noise_decided(
    bound: dict[str, float], value: float | None, ends: tuple[float, ...], outcome: str
) -> None:
    gate = Gate(metric="tstr_accuracy_dp" if "at_least" in bound else "tv1_dp", **bound)
    (verdict,) = check_gates([gate], {gate.metric: Figure(value, ends=ends)})
    assert verdict.outcome == outcome and verdict.passed == outcome.startswith("passed")
    if ends:
        assert f"got {value} ({number(ends[0])} to {number(ends[1])})" in str(verdict)


def test_a_gate_that_noise_decided_is_not_green() -> None:
    gate = GateResult(
        metric="tv1_dp",
        bound="at most 0.1",
        value=0.0134,
        ends=(0.0, 0.106),
        passed=True,
        outcome="passed; noise decided",
    )
    whole = replace(content(), gates=(gate,))
    assert by_heading(report_cards(whole))["Gates"].state == "fair"
    html = render(whole)
    assert "0.0134 (0 to 0.106)" in html and "<td>passed; noise decided</td>" in html


def test_a_bundle_states_its_gates_with_the_interval() -> None:
    """As certificate, index and page have it."""
    lucky = ChargedScore(name="tv1", counts=(3,), sigma=2, value=0.0134, low=0, high=0.106)
    told = [gate_words(Gate(metric=m, at_most=0.1), [lucky]) for m in ("tv1_dp", "tv1_noisy")]
    assert told == [
        "tv1_dp at most 0.1: 0.0134 (0 to 0.106), passed; noise decided",
        "tv1_noisy at most 0.1: passed",
    ]


def test_a_long_tail_that_noise_makes_is_seen_by_its_mean_and_by_no_shape() -> None:
    """Payments of 200 bins up to 1,000,000 of which the first holds nearly all of 20,000 rows; the
    noise of 20 in each bin moves one row in ten, and the mean by more than it is.
    """
    edges = tuple(float(5_000 * k) for k in range(200))
    paid = ColumnDomain("paid", "number", tuple(map(str, edges)), False, (), edges, 1e6, 0.0, 1e6)
    age = ColumnDomain("age", "number", tuple("abcd"), False, (), (0, 25, 50, 75), 100, 0, 100)
    domain, rng = Domain((paid, age)), np.random.default_rng(0)
    codes = np.stack([rng.random(20_000) > 0.999, rng.integers(0, 4, 20_000)], axis=1)
    codes = codes.astype(np.uint16)
    tables = [
        NoisyTable((c.name,), np.bincount(codes[:, i], minlength=c.levels).astype(float), 20.0)
        for i, c in enumerate(domain.columns)
    ]
    found = mean_noise(domain, codes, tables)
    assert found["paid"] > 1 and found["age"] < 0.01
    whole = public(domain=domain, codes=codes, tables=tables, means=found, rows=20_000)
    cards = cards_of(whole)
    assert cards["Columns whose shape is noise"].number == "0 of 2"
    card = cards["Means that noise makes"]
    assert (card.number, card.state) == ("1 of 2", "bad") and card.text.endswith(": paid")


def test_the_noise_of_a_mean_is_that_of_draws() -> None:
    age = ColumnDomain("age", "number", tuple("abcd"), False, (), (0, 25, 50, 75), 100, 0, 100)
    counts, rng = np.array([400.0, 300.0, 200.0, 100.0]), np.random.default_rng(0)
    codes = np.repeat(np.arange(4), counts.astype(int))[:, None].astype(np.uint16)
    mean = float(counts @ age.centres) / 1000
    drawn = (rng.normal(0, 20, (20_000, 4)) @ (age.centres - mean)) / 1000
    found = mean_noise(Domain((age,)), codes, [NoisyTable(("age",), counts, 20.0)])["age"]
    assert found * mean == pytest.approx(1.96 * drawn.std(), rel=0.03)


# --- expected beside got ---


@pytest.mark.parametrize(
    ("low", "high", "so"),
    [
        (0.026, 0.026, "worse"),
        (0.0249, 0.0249, "as expected"),
        (0.0161, 0.0249, "as expected"),
        (0.0161, 0.026, "inside its interval"),
        (0.0, 1.0, "inside its interval"),
        (0.0159, 0.0159, "better"),
        (0.0, 0.0159, "better"),
        (0.0251, 0.03, "worse"),
    ],
)
def test_a_forecast_is_held_against_what_came(low: float, high: float, so: str) -> None:
    told = forecasts({"tv1": 0.02, "figures": []}, (low, low, high), {})
    assert told.tables[0].rows[0][-1] == so and f"1 {so}." in told.sentence


def test_figures_that_were_forecast_stand_beside_what_came_of_them() -> None:
    def figure(group: str | None, half: float | None, refused: float) -> dict[str, Any]:
        return {"estimand": "1", "group": group, "half_width": half, "refused": refused}

    plan = [figure("a", 0.1, 0.0), figure("b", 0.1, 0.25), figure("c", None, 1.0)]
    plan += [figure("d", 0.1, 0.75), figure("e", None, 1.0), figure("gone", 0.1, 0.0)]
    ends: dict[str, Any] = {"a": (1, 1.2), "b": None, "c": (0, 1), "d": None, "e": None}
    came = {("1", group): Came.of("share(x)", each, "share") for group, each in ends.items()}
    told = forecasts({"tv1": 0.02, "figures": plan}, None, came)
    assert [row[1:] for row in told.tables[0].rows] == [
        ("0.02", "not measured", "not known"),
        ("± 10.00%", "± 10.00%", "as expected"),
        ("± 10.00%, refused in 25% of plays", "refused", "worse"),
        ("refused in 100% of plays", "± 50.00%", "better"),
        ("± 10.00%, refused in 75% of plays", "refused", "as expected"),
        ("refused in 100% of plays", "refused", "as expected"),
    ]
    assert told.tables[0].rows[1][0] == "95% interval of share(x), a"
    assert "6 figures" in told.sentence and "1 worse" in told.sentence
    assert not forecasts(None, None, came).tables


def test_the_public_page_has_the_forecast_beside_public_figures_alone() -> None:
    asked = {**stated("effect", 1, 1), "name": "1"}
    expected = {"estimand": "1", "group": "g0", "half_width": 0.005, "refused": 0.0}
    plan = {"tv1": 0.2, "figures": [expected]}
    paid = [score("tv1", 0.01, 0.0, 0.02)]
    html = render_public(public(facts=facts(scores=paid, expected=plan), estimands=[asked]))
    section = html[html.index('id="expected"') :]
    assert "0.01 (0 to 0.02)" in section and "<td>better</td>" in section
    assert "± 0.005" in section and "± 0.011" in section and "<td>worse</td>" in section
    assert 'id="expected"' not in render_public(public(estimands=[asked]))


# --- every verdict on each side of each of its bounds ---


def distanced(bounds: Bounds) -> Any:
    return lambda low, high: verdicts.distance("x", score("tv1", low, low, high), bounds, "").state


def told_apart(low: float, high: float) -> str:
    return verdicts.told_apart((low + high) / 2, low, high, floor=None).state


def of_parts(hidden: int, every: int) -> str:
    parts = {f"c{k}": verdicts.NOISY_SHAPE if k < hidden else 0.1499 for k in range(every)}
    return verdicts.noisy("x", "t", parts).state


def of_means(hidden: float, every: int) -> str:
    parts = {f"c{k}": 0.1 for k in range(every - 1)} | {"c": hidden}
    return verdicts.noisy("x", "t", parts, limit=verdicts.LOOSE.fair).state


def of_models(low: float, high: float) -> str:
    """Beside a constant guess, which is right on .25675 of these rows."""
    found = [score("tstr_accuracy", (low + high) / 2, low, high, target="sort")]
    return uses_of(public(rows=4000, facts=facts(scores=found)))["Prediction"].state


def of_columns(sigma: float) -> str:
    """Four levels of 100 rows that fit their counts: noise alone moves .0040 sigma of them."""
    whole = public()
    tables = [replace(t, sigma=sigma) for t in whole.tables]
    return cards_of(replace(whole, tables=tables))["Single columns"].state


def of_estimand(half: float) -> str:
    figure = {"estimate": -1.0, "interval": [-1 - half, -1 + half], "rows": 100.0}
    asked = {"text": "t", "statistic": "share", "about": ["a"], "figures": [figure]}
    return cards_of(public(estimands=[asked]))["Questions answered"].state


def of_answered(known: int, refused: int) -> str:
    return cards_of(public(estimands=[stated("effect", known, refused)]))[
        "Questions answered"
    ].state


def of_claims(refuted: int, supported: int) -> str:
    none = {"supported": 0, "refuted": 0, "undecided": 5}
    counts = {"arrow": {**none, "refuted": refuted, "supported": supported}, "independence": none}
    graph = replace(public().graph, validation={"findings": [], "counts": counts})
    found = {cards_of(public(graph=graph))["Causal graph"].state}
    return (found | {verdicts.claims("x", refuted, refuted + supported, "").state}).pop()


CASES: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "single columns": (
        distanced(verdicts.COLUMNS),
        [
            (0.0, 0.049, "good"),
            (0.0, 0.05, "fair"),
            (0.0, 0.149, "fair"),
            (0.05, 0.15, "bad"),
            (0.0, 0.15, "unknown"),
        ],
    ),
    "pairs": (
        distanced(verdicts.PAIRS),
        [
            (0.0, 0.099, "good"),
            (0.0, 0.1, "fair"),
            (0.0, 0.249, "fair"),
            (0.1, 0.25, "bad"),
            (0.099, 0.25, "unknown"),
        ],
    ),
    "teaching": (
        distanced(verdicts.ROUGH),
        [
            (0.0, 0.149, "good"),
            (0.0, 0.15, "fair"),
            (0.0, 0.399, "fair"),
            (0.15, 0.4, "bad"),
            (0.149, 0.4, "unknown"),
        ],
    ),
    "told apart": (
        told_apart,
        [
            (0.5, 0.599, "good"),
            (0.5, 0.6, "fair"),
            (0.6, 0.749, "fair"),
            (0.6, 0.75, "bad"),
            (0.599, 0.75, "unknown"),
        ],
    ),
    "what learning loses": (
        verdicts.LOST.within,
        [
            (-0.1, 0.099, "good"),
            (0.0, 0.1, "fair"),
            (0.1, 0.299, "fair"),
            (0.1, 0.3, "bad"),
            (0.0, 0.3, "unknown"),
        ],
    ),
    "columns and pairs that are noise": (
        of_parts,
        [
            (0, 31, "good"),
            (1, 31, "fair"),
            (1, 999, "fair"),
            (33, 100, "fair"),
            (34, 100, "bad"),
            (0, 0, "unknown"),
        ],
    ),
    "means that noise makes": (of_means, [(0.249, 3, "good"), (0.25, 3, "fair"), (9.0, 1, "bad")]),
    "prediction": (
        of_models,
        [
            (0.30, 0.80, "good"),
            (0.258, 0.90, "good"),
            (0.256, 0.90, "fair"),
            (0.158, 0.90, "fair"),
            (0.156, 0.90, "unknown"),
            (0.10, 0.256, "bad"),
            (0.10, 0.258, "unknown"),
            (0.0, 1.0, "unknown"),
        ],
    ),
    "columns without a score": (of_columns, [(12.0, "good"), (13.0, "unknown")]),
    "estimands": (
        of_estimand,
        [(0.249, "good"), (0.25, "fair"), (0.999, "fair"), (1.0, "bad")],
    ),
    "effects that were asked for": (of_answered, [(2, 0, "plain"), (1, 1, "fair"), (0, 2, "bad")]),
    "the graph": (
        of_claims,
        [
            (0, 5, "good"),
            (1, 19, "fair"),
            (1, 999, "fair"),
            (9, 91, "fair"),
            (1, 9, "bad"),
            (0, 0, "unknown"),
        ],
    ),
    "the guarantee": (
        lambda epsilon: verdicts.guarantee(epsilon, 1e-5, advantage=None).state,
        [(4.999, "plain"), (5.0, "fair"), (9.999, "fair"), (10.0, "bad")],
    ),
    "the guarantee with a search": (
        lambda found: verdicts.guarantee(4.0, 1e-5, advantage=None, search=(found, 0)).state,
        [(0.999, "plain"), (1.0, "fair"), (6.0, "bad")],
    ),
    "an attack": (
        lambda half, ceiling, refuted: (
            verdicts.attack(0.0, -half, half, ceiling=ceiling, trials="12", refuted=refuted).state
        ),
        [
            (0.1, 0.1, False, "good"),
            (0.11, 0.1, False, "unknown"),
            (0.099, 0.9, False, "good"),
            (0.11, 0.9, False, "unknown"),
            (0.01, 0.1, True, "bad"),
        ],
    ),
    "intervals of analysts": (
        lambda held, figures: verdicts.coverage("means", held, figures, floor=None).state,
        [
            (0.8501, 10, "good"),
            (0.849, 10, "fair"),
            (0.7001, 10, "fair"),
            (0.699, 10, "bad"),
            (0.699, 9, "unknown"),
        ],
    ),
    "a change of a pair": (
        verdicts.CHANGED.state,
        [(0.099, "good"), (0.1, "fair"), (0.199, "fair"), (0.2, "bad")],
    ),
    "gone": (
        verdicts.GONE.state,
        [(0.099, "good"), (0.1, "fair"), (0.499, "fair"), (0.5, "bad")],
    ),
}


@pytest.mark.parametrize(
    ("verdict", "case"), [(name, case) for name, (_, cases) in CASES.items() for case in cases]
)
def test_every_verdict_on_each_side_of_each_of_its_bounds(
    verdict: str, case: tuple[Any, ...]
) -> None:
    *given, state = case
    assert CASES[verdict][0](*given) == state


def test_every_bound_of_verdicts_has_cases() -> None:
    """A new bound comes with its cases."""
    bounds = {name for name, value in vars(verdicts).items() if isinstance(value, Bounds)}
    assert bounds == {
        *("EPSILON", "ROUGH", "COLUMNS", "PAIRS", "NOISY_COLUMNS", "APART", "MISSED", "REFUTED"),
        *("LOST", "LOOSE", "CHANGED", "GONE"),
    }
