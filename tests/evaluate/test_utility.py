"""TSTR beside TRTR on simulated tables: where the answer is known, and where there is none."""

import json
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from synthdp.data import Domain
from synthdp.evaluate import CLASSIFIERS, REGRESSORS, EvaluationReport, Learner, evaluate
from synthdp.evaluate.utility import (
    UtilityReport,
    build_features,
    join,
    target_levels,
    utility,
)
from synthdp.graph import CausalGraph
from synthdp.spec.model import (
    CONFIDENTIAL_METRICS,
    Boolean,
    Categorical,
    Datetime,
    Evaluation,
    Graph,
    Number,
    Ordinal,
)

DOMAIN = Domain.from_spec(
    {
        "group": Categorical(type="categorical", categories=("a", "b", "c"), missing=True),
        "rank": Ordinal(type="ordinal", categories=("low", "mid", "high")),
        "dose": Number(type="number", lower=0, upper=10, spikes=(0,), bins=8, missing=True),
        "day": Datetime(type="datetime", lower="2020-01-01", upper="2020-12-31", bins=6),
        "ill": Boolean(type="boolean"),
        "kind": Categorical(type="categorical", categories=("x", "y", "z")),
    }
)


def table(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    group, rank = rng.integers(0, 3, rows), rng.integers(0, 3, rows)
    dose = np.where(rng.random(rows) < 0.2, 0.0, rng.uniform(0, 10, rows))
    ill = rng.random(rows) < 1 / (1 + np.exp(-(dose - 5 + 2 * (group == 1))))
    kind = np.where(rng.random(rows) < 0.7, group, rng.integers(0, 3, rows))
    frame = pd.DataFrame(
        {
            "group": np.array(["a", "b", "c"], dtype=object)[group],
            "rank": np.array(["low", "mid", "high"])[rank],
            "dose": dose,
            "day": (
                pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 365, rows), unit="D")
            ),
            "ill": np.where(ill, "true", "false"),
            "kind": np.array(["x", "y", "z"])[kind],
        }
    )
    frame.loc[rng.random(rows) < 0.1, "group"] = None
    frame.loc[rng.random(rows) < 0.1, "dose"] = np.nan
    return frame


TRAIN, TEST = table(1500, 1), table(800, 2)


def run(
    train: pd.DataFrame,
    test: pd.DataFrame,
    synthetic: pd.DataFrame,
    *targets: str,
    classifiers: tuple[str, ...] = ("logistic",),
    **more: int,
) -> UtilityReport:
    return utility(
        train,
        test,
        synthetic,
        domain=DOMAIN,
        targets=targets,
        classifiers=classifiers,
        max_rows=more.get("max_rows", 20_000),
        rng=np.random.default_rng(0),
    )


@pytest.mark.check
@pytest.mark.parametrize("target", ["ill", "kind"])
def test_another_draw_of_the_same_law_is_as_useful(target: str) -> None:
    report = run(TRAIN, TEST, table(1500, 3), target, classifiers=tuple(CLASSIFIERS))
    assert len(report.rows) == 3 * len(CLASSIFIERS)
    for row in report.rows:
        assert row.difference == pytest.approx(0, abs=0.06), row
        assert row.low is not None and row.high is not None and row.low <= row.high
    assert all(
        row.real > 0.75 for row in report.rows if row.metric == "auc" and row.real is not None
    )
    assert report.tstr_ratio == pytest.approx(1, abs=0.03)
    assert report.notes == ()


def test_the_same_rows_give_no_difference_at_all() -> None:
    # Row order differs between the two sides, which random forests would notice.
    for row in run(TRAIN, TEST, TRAIN, "ill", classifiers=("logistic", "knn")).rows:
        assert row.difference == pytest.approx(0, abs=0.01)


def test_a_shuffled_target_teaches_nothing_and_the_interval_says_so() -> None:
    # One shuffle leans to a random side of the one strong signal; several average out.
    found = []
    for seed in range(16):
        shuffled = TRAIN.assign(ill=np.random.default_rng(seed).permutation(TRAIN["ill"]))
        found.append(run(TRAIN, TEST, shuffled, "ill").rows[0])
    assert np.mean([row.synthetic for row in found]) == pytest.approx(0.5, abs=0.08)
    for row in found:
        assert row.low is not None and row.difference is not None and row.high is not None
        assert 0 < row.low < row.difference < row.high


def test_ranged_targets_get_regressors() -> None:
    report = run(TRAIN, TEST, table(1500, 3), "dose", "day")
    assert {(r.target, r.classifier, r.metric) for r in report.rows} == {
        (t, c, x)
        for t in ("dose", "day")
        for c in ("ridge", "boosted_trees")
        for x in ("r2", "mae")
    }
    dose = next(
        r
        for r in report.rows
        if (r.target, r.classifier, r.metric) == ("dose", "boosted_trees", "r2")
    )
    assert dose.real is not None and 0.15 < dose.real < 0.9
    assert dose.difference == pytest.approx(0, abs=0.1)
    day = next(
        r for r in report.rows if (r.target, r.classifier, r.metric) == ("day", "ridge", "mae")
    )
    assert day.real == pytest.approx(365 / 4, rel=0.1)  # a uniform day guessed by its mean, in days
    assert report.mean_auc_synthetic is None and report.tstr_ratio is None


def test_max_rows_cuts_every_table() -> None:
    small = run(TRAIN, TEST, TRAIN, "ill", max_rows=100)
    wide = next(r for r in small.rows if r.metric == "accuracy")
    assert wide.real is not None
    assert (wide.real * 100) == pytest.approx(round(wide.real * 100), abs=1e-9)


@pytest.mark.parametrize("classifier", list(CLASSIFIERS))
def test_a_synthetic_target_with_one_class(classifier: str) -> None:
    report = run(TRAIN, TEST, TRAIN.assign(ill="true"), "ill", classifiers=(classifier,))
    by = {r.metric: r for r in report.rows}
    assert by["auc"].synthetic == 0.5
    assert by["accuracy"].synthetic == pytest.approx((TEST["ill"] == "true").mean())
    assert any("single class" in note for note in report.notes)


@pytest.mark.parametrize("classifier", list(CLASSIFIERS))
def test_a_class_that_training_never_saw(classifier: str) -> None:
    lacking = TRAIN[TRAIN["kind"] != "z"]
    auc = run(TRAIN, TEST, lacking, "kind", classifiers=(classifier,)).rows[0]
    assert auc.synthetic is not None and auc.real is not None and 0.5 < auc.synthetic < auc.real


def test_a_test_table_with_one_class_has_no_auc() -> None:
    rows = {r.metric: r for r in run(TRAIN, TEST[TEST["ill"] == "true"], TRAIN, "ill").rows}
    assert (rows["auc"].real, rows["auc"].difference, rows["auc"].low) == (None, None, None)
    assert rows["accuracy"].real is not None


def test_nothing_to_learn_from_or_to_test_on() -> None:
    assert "held out" in run(TRAIN, TEST.iloc[:0], TRAIN, "ill").notes[0]
    assert "no rows" in run(TRAIN, TEST, TRAIN.iloc[:0], "ill").notes[0]
    assert "no evaluation targets" in run(TRAIN, TEST, TRAIN).notes[0]
    assert "too few rows" in run(TRAIN, TEST.assign(dose=np.nan), TRAIN, "dose").notes[0]
    alone = Domain.from_spec({"ill": Boolean(type="boolean")})
    report = utility(
        TRAIN,
        TEST,
        TRAIN,
        domain=alone,
        targets=("ill",),
        classifiers=("logistic",),
        max_rows=100,
        rng=np.random.default_rng(0),
    )
    assert report.rows == () and "no other column" in report.notes[0]


POOR: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "one row": lambda rows: rows[:1],
    "two rows": lambda rows: rows[:2],
    "fewer rows than neighbours": lambda rows: rows[:14],
    "one value in each column": lambda rows: pd.concat([rows[:1]] * 30, ignore_index=True),
    "columns without a value": lambda rows: rows.assign(group=None, dose=np.nan),
    "a second class once": lambda rows: rows.assign(ill=["true"] + ["false"] * (len(rows) - 1)),
}


@pytest.mark.check
@pytest.mark.parametrize("poor", POOR)
@pytest.mark.parametrize("side", ["train", "test", "synthetic"])
def test_a_poor_table_is_judged_and_no_learner_fails(side: str, poor: str) -> None:
    """A user's table may be small, constant, or empty in a column, and its budget is spent by the
    time that it is judged.
    """
    tables = {name: TRAIN[:60].reset_index(drop=True) for name in ("train", "test", "synthetic")}
    tables[side] = POOR[poor](tables[side])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = run(*tables.values(), "ill", "kind", "dose", classifiers=tuple(CLASSIFIERS))
        settings = Evaluation(targets=("ill",), classifiers=("logistic",))
        whole = evaluate(
            *tables.values(), domain=DOMAIN, settings=settings, rng=np.random.default_rng(0)
        )
    assert all(
        0 <= row.real <= 1
        for row in report.rows
        if row.metric in ("auc", "accuracy", "macro_f1") and row.real is not None
    )
    assert {row.classifier for row in report.rows if row.target == "ill"} == set(CLASSIFIERS)
    json.dumps(whole.to_json(), allow_nan=False)


def test_a_column_without_a_value_teaches_as_if_it_were_not_there() -> None:
    blank = TRAIN.assign(dose=np.nan)
    trees = ("boosted_trees", "random_forest")
    for row in run(blank, TEST, blank, "ill", classifiers=trees).rows:
        assert row.real is not None and (
            row.metric != "auc" or 0.5 < row.real < 0.75
        )  # `group` alone speaks of the illness


def test_what_a_model_warns_of_is_recorded_and_does_not_leak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sklearn.linear_model import LogisticRegression

    hasty = Learner(lambda seed, mask: LogisticRegression(max_iter=1), "wide")
    monkeypatch.setitem(CLASSIFIERS, "logistic", hasty)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = run(TRAIN, TEST, TRAIN, "ill")
    assert report.notes == (
        "ill, logistic on real rows: ConvergenceWarning",
        "ill, logistic on synthetic rows: ConvergenceWarning",
    )


# --- features ---


def test_features_come_from_the_domain_alone() -> None:
    names = ["group", "dose", "ill"]
    some, one = (
        join(list(build_features(DOMAIN, rows, names).values()))
        for rows in (TRAIN, TRAIN.iloc[[3]])
    )
    np.testing.assert_array_equal(some.wide[[3]], one.wide)
    # 3 groups and missing; dose, its spike at 0 and missing; ill
    assert some.wide.shape == (1500, 4 + 3 + 1) and some.narrow.shape == (1500, 3)
    hand = pd.DataFrame({"group": [None, "b"], "dose": [0.0, np.nan], "ill": ["true", "false"]})
    np.testing.assert_allclose(
        join(list(build_features(DOMAIN, hand, names).values())).wide,
        [[0, 0, 0, 1, 0, 1, 0, 1], [0, 1, 0, 0, 0.5, 0, 1, 0]],
    )


def test_features_stay_inside_public_bounds_and_memory() -> None:
    outside = TRAIN.assign(dose=1e9)
    assert build_features(DOMAIN, outside, ["dose"])["dose"].wide.max() == 1
    many = Domain.from_spec(
        {"code": Categorical(type="categorical", categories=tuple(map(str, range(1000))))}
    )
    frame = pd.DataFrame({"code": ["0", "999", "256"]})
    assert build_features(many, frame, ["code"])["code"].wide.shape == (3, 256)
    assert target_levels(many["code"], frame["code"]).tolist() == [0, 999, 256]


# --- the whole ---


def judged(synthetic: pd.DataFrame, test: pd.DataFrame = TEST, **more: object) -> EvaluationReport:
    chosen = Evaluation(**{"targets": ("ill", "dose"), "classifiers": ("logistic",), **more})
    return evaluate(
        TRAIN, test, synthetic, domain=DOMAIN, settings=chosen, rng=np.random.default_rng(0)
    )


def test_metrics_have_the_names_that_gates_use() -> None:
    report = judged(table(1500, 3))
    found = report.metrics()
    assert (
        set(found) == {"tv1", "tv2", "tv3", "tstr_auc", "tstr_ratio"} <= set(CONFIDENTIAL_METRICS)
    )
    assert 0 < found["tv1"] < found["tv2"] < found["tv3"] < 0.4
    assert report.floor is not None and report.floor.tv1 == pytest.approx(found["tv1"], abs=0.02)
    again = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert again["metrics"] == pytest.approx(found)
    assert np.shape(again["fidelity"]["by_pair"]["tv"]) == (6, 6)
    assert len(again["utility"]["rows"]) == 3 + 4


def test_held_out_rows_are_compared_with_as_many_synthetic_ones() -> None:
    """A small sample of the training rows is as far from them as held-out rows are, and the whole
    of them is not: so much of the floor is size.
    """
    report = judged(TRAIN, TEST.iloc[:200])
    assert report.fidelity and report.equal and report.floor
    assert report.fidelity.tv1 < 1e-9
    assert report.equal.tv1 == pytest.approx(report.floor.tv1, rel=0.5)


@pytest.mark.check
def test_a_bad_table_scores_worse() -> None:
    rng = np.random.default_rng(9)
    independent = TRAIN.apply(
        lambda column: pd.Series(rng.permutation(column.to_numpy()), dtype=column.dtype)
    )
    good, bad = judged(table(1500, 3)).metrics(), judged(independent).metrics()
    assert bad["tv1"] < 1e-9
    assert bad["tv2"] > 1.2 * good["tv2"]
    assert bad["tstr_auc"] < 0.65 < good["tstr_auc"]


def test_without_holdout_or_targets_the_rest_is_there() -> None:
    report = judged(TRAIN, TEST.iloc[:0])
    assert set(report.metrics()) == {"tv1", "tv2", "tv3"} and report.floor is None
    json.dumps(report.to_json(), allow_nan=False)
    assert set(judged(TRAIN.iloc[:0]).metrics()) == set()


@pytest.mark.parametrize(("fitted", "rows"), [(len(TRAIN), len(TEST)), (len(TRAIN), 0), (0, 0)])
def test_steps_are_counted_by_the_spec_alone(fitted: int, rows: int) -> None:
    """Where no row is held out nothing is learned, and without rows to fit nothing is analysed; how
    far the evaluation is does not say so.
    """
    heard: list[tuple[int, int, str]] = []
    evaluate(
        TRAIN.iloc[:fitted],
        TEST.iloc[:rows].reset_index(drop=True),
        TRAIN,
        domain=DOMAIN,
        settings=Evaluation(targets=("ill", "dose"), classifiers=("logistic",)),
        rng=np.random.default_rng(0),
        graph=CausalGraph.from_spec(Graph(mode="none"), DOMAIN.names),
        columns={},
        progress=lambda *step: heard.append(step),  # type: ignore[arg-type]
    )
    names, totals = [what for _, _, what in heard], {total for _, total, _ in heard}
    learning = 2 * (1 + len(REGRESSORS))
    assert totals == {2 + learning + 6} and len(names) == 2 + learning + 6
    assert [done for done, _, _ in heard] == list(range(len(names)))
    assert names[2] == "ill by logistic on real rows"
    assert names[2 + learning :] == [
        "two-sample test",
        "coverage of intervals",
        "subgroups",
        "effects",
        "independences",
        "pair plots",
    ]


@pytest.mark.parametrize("spoilt", ["kind", "dose", "every row"])
def test_the_same_trainings_are_heard_whatever_the_rows(spoilt: str) -> None:
    """A line about a training that these rows left out, or the lack of one, would say that they
    did.
    """
    heard: dict[bool, list[str]] = {True: [], False: []}
    without = TEST[:0] if spoilt == "every row" else TEST.assign(**{spoilt: None})
    for degenerate, names in heard.items():
        utility(
            TRAIN,
            without if degenerate else TEST,
            TRAIN,
            domain=DOMAIN,
            targets=("kind", "dose"),
            classifiers=("logistic", "knn"),
            max_rows=300,
            rng=np.random.default_rng(0),
            begin=names.append,
        )
    assert heard[True] == heard[False] and len(heard[True]) > 4
