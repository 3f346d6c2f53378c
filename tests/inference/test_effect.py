"""Effects of bundles: graph, table and words together; tiers, refusals, the command line."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp import Bundle
from synthdp.data import Domain
from synthdp.errors import OutputError, VerifyError
from synthdp.graph import CausalGraph, GraphEdge, Knowledge, PagLink
from synthdp.inference import EffectQuery, adjustment_unseen
from synthdp.spec import parse_spec
from tests.inference.conftest import counted, drawn_levels, heavy, with_graph, write_bundle_of

DRAWN = {"mode": "given", "edges": ["sex -> smoker, visits", "smoker -> visits"]}
TABLE = ("sex", "smoker", "visits")


def test_an_effect_on_its_own_cause_is_refused_where_causes_may_be_unseen() -> None:
    """Adjusted for its outcome, an effect would be nothing whatever is true."""
    query = EffectQuery("t", "y")
    cause, outcome = PagLink("a", "t", "tail", "arrow"), PagLink("y", "t", "tail", "arrow")
    assert adjustment_unseen(query, [cause]).sets == (("a",),)
    for links in ([outcome], [cause, outcome]):
        with pytest.raises(OutputError, match=r"is not identified .*: y is a cause of t"):
            adjustment_unseen(query, links)
    open_ = PagLink("t", "y", "circle", "arrow")
    with pytest.raises(OutputError, match=r"is not identified .*: t o-> y"):
        adjustment_unseen(query, [cause, open_])
    assert adjustment_unseen(replace(query, adjust=("a",)), [outcome]).sets == (("a",),)


def rows_of(domain: Domain) -> Any:
    """Levels of 4,000 rows in which sex confounds smoking and visits."""
    codes, rng = drawn_levels(domain, 4000, 12).astype(int), np.random.default_rng(13)
    sex = codes[:, 1]
    codes[:, 2] = rng.random(4000) < 0.3 + 0.3 * sex
    codes[:, 3] = (rng.random((4, 4000)) < 0.2 + 0.3 * sex + 0.1 * codes[:, 2]).sum(axis=0)
    for column in (2, 3):
        codes[rng.random(4000) < 0.05, column] = domain.sizes[column] - 1
    return codes.astype(np.uint16)


def bundle_of(
    folder: Path,
    domain: Domain,
    *sets: Sequence[str],
    section: dict[str, Any] | None = None,
    graph: CausalGraph | None = None,
    sigma: float = 3.0,
) -> Bundle:
    """A bundle of 4,000 rows; its graph is that of the spec's section unless one is given."""
    section = section or DRAWN
    codes, rng = rows_of(domain), np.random.default_rng(11)
    tables = [counted(domain, codes, names, sigma=sigma, rng=rng) for names in sets]
    if graph is None:
        spec = parse_spec(json.dumps(with_graph(section)), path="clinic")
        knowledge = Knowledge.from_spec(spec.graph, domain.names)
        graph = CausalGraph.from_knowledge(knowledge, provenance="given")
    path = write_bundle_of(folder / "bundle", tables, codes, domain, section=section, graph=graph)
    return Bundle(path)


def learned(domain: Domain, *links: str) -> CausalGraph:
    """A graph of links such as "sex -> smoker", or "sex ? smoker" without an answer."""
    made = []
    for link in links:
        a, kind, b = link.split()
        found = "learned" if kind == "->" else "undecided"
        made.append(GraphEdge(a, b, directed=kind == "->", provenance=found))  # type: ignore[arg-type]
    return CausalGraph(domain.names, tuple(made))


def true_effect(domain: Domain, adjust: Sequence[str]) -> float:
    """Of smoking on mean visits in the rows, written anew."""
    codes = rows_of(domain).astype(int)
    smoker, visits = codes[:, 2], codes[:, 3].astype(float)
    known = visits < 5
    strata = np.zeros(len(codes), int)
    for name in adjust:
        strata = strata * domain[name].levels + codes[:, domain.index(name)]
    total = 0.0
    for z in np.unique(strata):
        here = strata == z
        means = [visits[here & known & (smoker == t)].mean() for t in (1, 0)]
        total += here.mean() * (means[0] - means[1])
    return total


def test_the_graph_chooses_and_the_table_measures(tmp_path: Path, domain: Domain) -> None:
    bundle = bundle_of(tmp_path, domain, TABLE, ("age",), sigma=0.1)
    found = bundle.effect("smoker", "visits")
    assert found.tier == "A" and found.adjusted == (("sex",),)
    (figure,) = found.figures
    assert figure.group == "yes against no"
    assert figure.estimate == pytest.approx(true_effect(domain, ["sex"]), abs=0.01)
    assert abs(true_effect(domain, ["sex"]) - true_effect(domain, [])) > 0.2
    low, high = figure.interval or (0.0, 0.0)
    assert low < figure.estimate < high and figure.bounds is None
    assert "adjusted for sex" in found.about
    assert "rows that lack smoker and visits are taken to be like the others of their stratum" in (
        found.about
    )


def test_shares_of_categories_and_levels_of_treatments(tmp_path: Path, domain: Domain) -> None:
    bundle = bundle_of(tmp_path, domain, TABLE)
    share = bundle.effect("sex", "smoker", reference="male")
    assert [f.group for f in share.figures] == ["female against male"]
    assert share.query.level == "yes" and share.contrasts[0].e_values is not None
    assert any(said.startswith("E-value, the least risk ratio") for said in share.about)
    assert " points  " in str(share)
    refusals: dict[tuple[str, str], tuple[dict[str, Any], str]] = {
        ("smoker", "visits"): (
            {"level": "1"},
            "'visits' has no share of a level: it holds numbers",
        ),
        ("smoker", "seen"): ({}, "'seen' has no share of a level: it holds dates"),
        ("smoker", "sex"): ({}, "has no mean: say of which level"),
        ("sex", "visits"): ({"reference": "maybe"}, "'sex' has no level 'maybe'"),
        ("smokr", "visits"): ({}, "'smokr' is no column that was counted"),
        ("age", "visits"): ({"adjust": ["age"]}, "not all different"),
    }
    for pair, (options, told) in refusals.items():
        with pytest.raises(OutputError, match=told):
            bundle.effect(*pair, **options)


def test_pairs_alone_do_not_measure_an_effect(tmp_path: Path, domain: Domain) -> None:
    """Tier C: the synthetic rows' own figure, without an interval, and the table that lacks."""
    pairs = [("sex", "smoker"), ("sex", "visits"), ("smoker", "visits")]
    found = bundle_of(tmp_path, domain, *pairs, sigma=0.1).effect("smoker", "visits")
    assert found.tier == "C" and found.figures[0].interval is None
    assert found.figures[0].estimate == pytest.approx(true_effect(domain, ["sex"]), abs=0.15)
    assert any("no table has smoker, visits and sex together" in said for said in found.about)
    assert "interval" not in json.dumps(found.to_json()["contrasts"])
    assert "(C, model only: no interval)" in str(found)


def test_a_measured_set_is_preferred(tmp_path: Path, domain: Domain) -> None:
    section = {"mode": "given", "edges": ["age -> smoker, sex", "sex, smoker -> visits"]}
    one = bundle_of(tmp_path / "a", domain, TABLE, section=section)
    assert one.effect("smoker", "visits").adjusted == (("sex",),)
    other = bundle_of(tmp_path / "b", domain, ("age", "smoker", "visits"), section=section)
    assert other.effect("smoker", "visits").adjusted == (("age",),)


def test_columns_that_do_not_identify_are_refused(tmp_path: Path, domain: Domain) -> None:
    bundle = bundle_of(tmp_path, domain, TABLE)
    with pytest.raises(OutputError, match="stays open: smoker <- sex -> visits"):
        bundle.effect("smoker", "visits", [])
    with pytest.raises(OutputError, match="smoker follows from sex, and is part of its effect"):
        bundle.effect("sex", "visits", ["smoker"])
    with pytest.raises(OutputError, match="visits has no effect on smoker in this graph"):
        bundle.effect("visits", "smoker")
    unseen = DRAWN | {"latent": [["smoker", "visits"]]}
    with pytest.raises(OutputError, match="block smoker <-> visits"):
        bundle_of(tmp_path / "u", domain, TABLE, section=unseen).effect("smoker", "visits")
    grouped = {"mode": "given", "groups": {"g": ["smoker", "sex"]}, "edges": ["g -> visits"]}
    with pytest.raises(OutputError, match="smoker shares a node of the graph with sex"):
        bundle_of(tmp_path / "g", domain, TABLE, section=grouped).effect("smoker", "visits")


@pytest.mark.parametrize("adjust", [None, [], ["smoker"]])
@pytest.mark.parametrize("pair", [("sex", "age"), ("age", "sex"), ("visits", "smoker")])
def test_where_no_arrows_lead_there_is_no_effect(
    tmp_path: Path, domain: Domain, pair: tuple[str, str], adjust: list[str] | None
) -> None:
    """In both directions, with and without columns to adjust for: no association is called one."""
    found = bundle_of(tmp_path, domain, TABLE)
    adjust = [name for name in adjust if name not in pair] if adjust else adjust
    with pytest.raises(OutputError, match=f"{pair[0]} has no effect on {pair[1]} in this graph"):
        found.effect(*pair, adjust, level={"sex": "female"}.get(pair[1]))


@pytest.mark.parametrize("mode", ["none", "predict"])
def test_without_causes_the_analyst_must_say(tmp_path: Path, domain: Domain, mode: str) -> None:
    bundle = bundle_of(
        tmp_path, domain, TABLE, section={"mode": mode}, graph=CausalGraph(domain.names)
    )
    with pytest.raises(OutputError, match="nothing can be intervened on: the arrows of this graph"):
        bundle.effect("smoker", "visits")
    found = bundle.effect("smoker", "visits", ["sex"])
    assert found.tier == "A" and found.figures[0].interval is not None
    assert found.about[1] == (
        "assumed, since the graph does not tell: these columns are all that confounds smoker and"
        " visits, and none of them follows from smoker"
    )


def test_a_learned_graph_is_no_more_than_its_class(tmp_path: Path, domain: Domain) -> None:
    """Nothing directs sex - smoker: as a cause it confounds, as a consequence it must stay out."""
    graph = learned(domain, "sex -> smoker", "sex -> visits", "smoker -> visits")
    section = {"mode": "learn", "tiers": [["sex", "smoker"], ["visits"]]}
    found = bundle_of(tmp_path, domain, TABLE, section=section, graph=graph)
    both = found.effect("smoker", "visits")
    assert set(both.adjusted) == {("sex",), ()}
    (figure,) = both.figures
    low, high = figure.interval or (0.0, 0.0)
    for names in both.adjusted:
        assert low < true_effect(domain, names) < high
    assert any("nothing shows which is the cause of sex and smoker" in s for s in both.about)
    with pytest.raises(OutputError, match="if smoker -> sex: sex follows from smoker"):
        found.effect("smoker", "visits", ["sex"])
    told = section | {"tiers": [["sex"], ["smoker"], ["visits"]]}
    sure = bundle_of(tmp_path / "t", domain, TABLE, section=told, graph=graph)
    assert sure.effect("smoker", "visits").adjusted == (("sex",),)


def test_undecided_pairs_that_make_no_difference(tmp_path: Path, domain: Domain) -> None:
    tiers = {"mode": "learn", "tiers": [["age", "sex"], ["smoker"], ["visits"]]}
    links = ("sex -> smoker", "sex -> visits", "smoker -> visits", "age ? sex")
    bundle = bundle_of(tmp_path, domain, TABLE, section=tiers, graph=learned(domain, *links))
    found = bundle.effect("smoker", "visits")
    assert found.adjusted == (("sex",),)
    assert any("age and sex; it makes no difference here" in said for said in found.about)
    matter = learned(domain, "sex -> smoker", "sex -> visits", "smoker ? visits")
    zero = bundle_of(tmp_path / "z", domain, TABLE, section=tiers | {
        "tiers": [["sex"], ["smoker", "visits"]]}, graph=matter)  # fmt: skip
    answer = zero.effect("smoker", "visits")
    low, high = answer.figures[0].interval or (1.0, 1.0)
    assert float(low) <= 0 <= float(high)
    assert any("in each reading, and for none" in said for said in answer.about)


def test_files_and_tables_are_checked(tmp_path: Path, domain: Domain) -> None:
    bundle = bundle_of(tmp_path, domain, TABLE)
    path = bundle.path / "graph.json"
    path.write_text(path.read_text().replace("smoker", "sex"))
    with pytest.raises(VerifyError, match=r"graph\.json .* was changed"):
        bundle.effect("smoker", "visits")


def test_many_levels_have_a_line_each_and_few_sentences(tmp_path: Path, domain: Domain) -> None:
    section = {"mode": "given", "edges": ["age -> smoker"]}
    found = bundle_of(tmp_path, domain, ("age", "smoker"), section=section).effect("age", "smoker")
    lines = str(found).splitlines()
    assert len(found.figures) == 7 and lines[2].startswith("  10 to 19 against 0 to 9  ")
    assert sum(line.startswith("- ") for line in lines) < 8
    (said,) = (s for s in found.about if s.startswith("E-value"))
    assert said.count(" for the interval") == 4 and said.endswith("; ...")
    fine = replace(domain["age"], labels=tuple(map(str, range(40))))
    with pytest.raises(OutputError, match="'age' has 40 levels, and a treatment may have 32"):
        found.query.levels(fine)


def test_few_rows_are_refused_by_name(tmp_path: Path, domain: Domain) -> None:
    found = bundle_of(tmp_path, domain, TABLE, sigma=400.0).effect("smoker", "visits")
    (figure,) = found.figures
    assert figure.estimate is None and "too few rows of one arm" in (figure.refused or "")
    assert any("sex female, or sex male" in s and "more budget" in s for s in found.about)


def test_the_command_line_prints_text_and_json(
    tmp_path: Path, domain: Domain, synthdp: Any
) -> None:
    folder = bundle_of(tmp_path, domain, TABLE).path
    asked = ("effect", folder, "--treatment", "smoker", "--outcome", "visits")
    printed = synthdp(*asked).out.splitlines()
    assert printed[0] == "effect of smoker on mean(visits)   (A, measured)"
    assert printed[1].split() == ["effect", "95%", "interval", "means"]
    assert printed[2].startswith("  yes against no  ") and printed[3] == "- adjusted for sex"
    facts = json.loads(synthdp(*asked, "--adjust", "sex", "--json").out)
    assert facts["tier"] == "A" and facts["adjusted"] == [["sex"]] and facts["reference"] == "no"
    fields = {"group", "rows", "estimate", "interval", "of_rows", "means"}
    assert set(facts["contrasts"][0]) == fields
    refused = synthdp(*asked, "--adjust", "none")
    assert refused.code == 2 and "this path stays open: smoker <- sex -> visits" in refused.err
    assert json.loads(synthdp(*asked, "--adjust", "sex,age", "--json").out)["tier"] == "C"


@pytest.mark.check
def test_a_measured_effect_needs_neither_torch_nor_pandas(tmp_path: Path, domain: Domain) -> None:
    folder = str(bundle_of(tmp_path, domain, TABLE).path)
    assert heavy(f"Bundle({folder!r}).effect('smoker', 'visits')") == ""
