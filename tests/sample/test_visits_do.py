"""Persons with visits under an intervention: the g-formula, and who is lost."""

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from synthdp.data import VisitFrame
from synthdp.errors import OutputError, SpecError
from synthdp.model import Intervention, Law, VisitModel, groups_of_views, sizes_of, trajectories
from synthdp.sample import Lost, drawn_frames, intervention
from synthdp.spec.model import LinkedSpec
from tests.visits import linked_dict

STAGE = np.array([[0.0, 0.5, -0.5], [0.0, 1.0, 0.5], [0.0, 0.5, 1.5]])  # by the stage before
DRUG = np.array([[0.0, 0.0, 0.0], [1.5, 0.5, -1.0]])  # by the drug before, on the stage
GIVEN = np.array([-1.5, 0.0, 1.5])  # by stage, that the drug is given
STOPS = np.array([-2.5, -1.5, 0.5])  # by stage, and with the drug
STOPS_DRUG = 1.0
FIRST = np.array([[0.4, 0.4, 0.2], [0.1, 0.3, 0.6]])  # by sex


def spec_of() -> LinkedSpec:
    content = linked_dict()
    del content["dataset"]["tables"]["visits"]["ends"]
    for name in ("birth", "death"):
        del content["columns"]["persons"][name]
    content["constraints"] = []
    content["columns"]["visits"]["bp"]["bins"] = 4
    content["graph"]["edges"] = [
        "persons.sex -> visits[1].stage",
        "visits[-1].stage, visits[-1].drug -> visits.stage",
        "visits.stage -> visits.drug",
        "visits.stage, visits.drug -> visits.end",
    ]
    return LinkedSpec.model_validate(content)


def model_of(frame: VisitFrame) -> VisitModel:
    sizes = sizes_of(groups_of_views(frame, {}))
    now, before, first = frame.now, frame.before, frame.first

    def only(name: str, level: int = 0) -> Law:
        return Law((), np.where(np.arange(sizes[name]) == level, 0.0, -60.0)[None])

    drug = np.column_stack([np.zeros(3), GIVEN])
    ends = np.zeros((sizes[now("stage")] + sizes[now("drug")] + 1, 2))
    ends[:3, 1], ends[4, 1] = STOPS, STOPS_DRUG
    laws = {
        "persons.sex": Law((), np.zeros((1, 2))),
        first("date"): only(first("date")),
        first("stage"): Law(("persons.sex",), np.vstack([np.log(FIRST), np.zeros(3)])),
        first("drug"): Law((first("stage"),), np.vstack([drug, np.zeros(2)])),
        first("bp"): only(first("bp")),
        now("gap"): only(now("gap")),
        now("stage"): Law((before("stage"), before("drug")), np.vstack([STAGE, DRUG, np.zeros(3)])),
        now("drug"): Law((now("stage"),), np.vstack([drug, np.zeros(2)])),
        now("bp"): only(now("bp")),
        now("end"): Law((now("stage"), now("drug")), ends),
    }
    columns = ("persons.sex", *map(first, ("date", "stage", "drug", "bp")))
    steps = (now("gap"), *map(now, ("stage", "drug", "bp")))
    numbers = np.array([0.0, 0.25, 0.25, 0.25, 0.25])
    return VisitModel(frame, {}, {}, laws, columns, steps, numbers, np.zeros(frame.most))


def truth(drug: int, at: tuple[int, ...], number: int, *, natural: bool) -> Any:
    """The law of the stage at a visit, and how many are there, by the chain itself."""
    given = 1 / (1 + np.exp(-GIVEN))

    def treated(stage: Any, visit: int) -> Any:
        own = np.eye(2)[drug][None] if visit in at else np.column_stack([1 - given, given])
        return stage[:, None] * own

    state = treated(FIRST.mean(0), 1)
    stays = 1 - 1 / (1 + np.exp(-(STOPS[:, None] + STOPS_DRUG * np.arange(2))))
    for visit in range(2, number + 1):
        state = state * stays if natural else state
        moves = softmax(STAGE[:, None, :] + DRUG[None], axis=2)
        state = treated(np.einsum("sd,sdn->n", state, moves), visit)
    return state.sum(1) / state.sum(), state.sum()


@pytest.mark.parametrize("lost", ["nobody", "natural"])
@pytest.mark.parametrize("at", [(2,), (1, 2, 3, 4)])
def test_rows_have_the_law_of_the_g_formula(lost: str, at: tuple[int, ...]) -> None:
    frame, persons = VisitFrame.from_spec(spec_of()), 60_000
    model, rng = model_of(frame), np.random.default_rng(4)
    laws = []
    for drug in (0, 1):
        every = {("drug", 0): drug} if len(at) == 4 else {("drug", 2): drug}
        do = Intervention({}, every, nobody=lost == "nobody")
        drawn = trajectories(model, persons, rng=rng, do=do)
        begins = np.searchsorted(drawn.owner, drawn.owner)
        number = np.arange(len(drawn.owner)) - begins + 1
        stage = drawn.visits[:, frame.of_visits.index("stage")]
        given = drawn.visits[:, frame.of_visits.index("drug")]
        assert (given[np.isin(number, at)] == drug).all()
        for visit in (3, 4):
            own = number == visit
            law, left = truth(drug, at, visit, natural=lost == "natural")
            assert own.sum() == pytest.approx(left * persons, abs=4 * np.sqrt(persons))
            seen = np.bincount(stage[own], minlength=3) / own.sum()
            assert seen == pytest.approx(law, abs=4 * np.sqrt(0.25 / own.sum()))
        laws.append(truth(drug, at, 3, natural=lost == "natural")[0])
    assert np.abs(laws[1] - laws[0]).max() > 0.1


def test_the_two_answers_differ() -> None:
    """The drug drives those of the last stage away: those who are still there look better."""
    natural, nobody = (truth(1, (2,), 3, natural=kind)[0][2] for kind in (True, False))
    assert nobody - natural > 0.01


def test_it_must_be_said_who_is_lost() -> None:
    spec = spec_of()
    with pytest.raises(OutputError, match="different numbers"):
        intervention(spec, ["visits.drug=true"], None)
    with pytest.raises(OutputError, match="of an intervention"):
        intervention(spec, [], "natural")
    assert intervention(spec, [], None) is None
    every: tuple[Lost, ...] = ("nobody", "natural")
    for lost in every:
        do = intervention(spec, ["visits[2].drug=true"], lost)
        assert do is not None and do.about[0].startswith(f"lost: {lost};")
        assert do.content == Intervention({}, {("drug", 2): 1}, lost == "nobody")


def test_what_is_not_identified_is_refused() -> None:
    spec = spec_of()
    for mode in ("predict", "none"):
        graph = spec.graph.model_copy(update={"mode": mode, "edges": ()})
        with pytest.raises(OutputError, match="no causes"):
            intervention(spec.model_copy(update={"graph": graph}), ["visits.drug=true"], "natural")
    ruled = spec.model_copy(update={"constraints": ({"nondecreasing": "visits.stage"},)})
    with pytest.raises(OutputError, match="not identified"):
        intervention(ruled, ["visits[2].stage=0"], "natural")
    assert intervention(ruled, ["visits[1].stage=0"], "natural")


@pytest.mark.parametrize(
    "text",
    ["visits[5].drug=true", "visits.drug=maybe", "visits.end=stops", "visits.date=2020-02-01"],
)
def test_mistakes_are_named(text: str) -> None:
    with pytest.raises(SpecError):
        intervention(spec_of(), [text], "nobody")


def test_numbers_are_set_to_the_very_value() -> None:
    """And a column of persons for all of them."""
    spec = spec_of()
    do = intervention(spec, ["visits[2].bp=123", "visits.bp=99", "persons.sex=M"], "nobody")
    assert do is not None
    frames = dict(
        zip(
            ("persons", "visits"),
            drawn_frames(
                spec,
                model_of(VisitFrame.from_spec(spec)),
                50,
                rng=np.random.default_rng(1),
                do=do.content,
            ),
            strict=True,
        )
    )
    do.put(frames, "id", "visits")
    visits = frames["visits"]
    number = visits.groupby("id").cumcount() + 1
    assert (frames["persons"]["sex"] == "M").all() and len(visits) == 200
    assert (visits["bp"][number == 2] == 123).all() and (visits["bp"][number != 2] == 99).all()
