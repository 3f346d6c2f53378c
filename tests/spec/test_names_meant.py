"""Which name is meant by a misspelt one, wherever a spec, a question or a command writes one."""

import pytest

from synthdp.data import Domain
from synthdp.errors import DataError, OutputError, QueryError, SpecError, SynthdpError
from synthdp.graph import CausalGraph
from synthdp.inference import EffectQuery
from synthdp.privacy import check_columns
from synthdp.privacy.readers.files import choice
from synthdp.sample import settings_of
from synthdp.spec import nearest, parse, parse_query, parse_spec, traps
from synthdp.spec.model import CsvSource, ParquetSource
from tests.builders import build_spec

SPEC = build_spec(
    {
        "State": {"type": "categorical", "categories": ["Unwell", "Well", "NEWLY WELL"]},
        "Estate": {"type": "boolean", "false": "no", "true": "yes"},
        "Größe": {"type": "number", "lower": 0, "upper": 3},
    }
)
DOMAIN = Domain.from_spec(SPEC.columns)


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("male", ["Female", "Male"], "Male"),
        ("WELL", ["Unwell", "Well"], "Well"),
        ("LOGISTC", ["logistic", "forest"], "logistic"),
        ("gro\u0308sse", ["Grosse", "GRÖẞE"], "GRÖẞE"),  # accents count, their form does not
        ("aGe", ["AGE", "age", "Age"], "age"),  # of several that fold to one, the nearest
        ("income", ["sex", "age"], None),
        ("x", [], None),
    ],
)
def test_case_is_set_aside_before_the_nearest_name_is_looked_for(
    name: str, known: list[str], meant: str | None
) -> None:
    told = meant and f"did you mean {meant!r}?"
    assert nearest(name, known) == nearest(name, known[::-1]) == told


def test_every_place_means_the_same_name() -> None:
    """A category, a column, and an option of the spec."""
    with pytest.raises(QueryError, match="did you mean 'Well'"):
        parse_query("share(State == 'well')", SPEC.columns)
    with pytest.raises(QueryError, match="did you mean 'State'"):
        parse_query("count() by state", SPEC.columns)
    assert parse("state == 'Well'", SPEC.columns)[1][0].hint == "did you mean 'State'?"
    with pytest.raises(SpecError, match="did you mean 'State'"):
        settings_of([], ["state=Well"], DOMAIN)
    with pytest.raises(OutputError, match="did you mean 'Well'"):
        EffectQuery("Estate", "State", level="well").checked(SPEC)
    with pytest.raises(OutputError, match="did you mean 'State'"):
        EffectQuery("state", "Größe").checked(SPEC)
    with pytest.raises(SynthdpError, match="did you mean 'State'"):
        CausalGraph(DOMAIN.names).around("state")
    with pytest.raises(OutputError) as caught:
        EffectQuery("Estate", "State").checked(SPEC)
    assert "None" not in str(caught.value) and "one of Unwell, Well" in str(caught.value)
    with pytest.raises(SpecError, match="did you mean 'epsilon'"):
        parse_spec("synthdp: 1\nprivacy: {EPSILON: 1}\n", path="s.yaml")


# --- names that look the same ---


@pytest.mark.parametrize(
    ("found", "how"),
    [
        ("Gro\u0308ße", "how accents are put together"),
        (" Größe", "spaces"),
        ("GRößE", "upper and lower case"),
        ("Grö\u200bße", "signs that are not seen"),
        ("grö\u200bße ", "spaces, case and signs that are hardly seen"),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_a_name_that_looks_like_a_declared_one_is_told_with_its_place(
    found: str, how: str, apart: bool
) -> None:
    told = f"the name in place 3 is 'Größe' but for {how}"
    with pytest.raises(DataError) as caught:
        check_columns(["State", "Estate", found], DOMAIN, None, apart=apart)
    assert told in str(caught.value)
    with pytest.raises(DataError) as caught:  # places of the source, where others are dropped
        check_columns([found], DOMAIN, None, places=[2], apart=apart)
    assert told in str(caught.value)
    kinds = {True: ParquetSource, False: CsvSource}
    source = kinds[apart].model_validate(
        {"kind": "parquet" if apart else "csv", "path": "t", "drop": ["Größe"]}
    )
    with pytest.raises(DataError) as caught:
        choice(source, DOMAIN, None)(["State", "Estate", found])
    assert told in str(caught.value)


def test_another_name_is_not_taken_for_a_declared_one() -> None:
    with pytest.raises(DataError) as caught:
        check_columns(["State", "Estate", "Grosse"], DOMAIN, None)
    assert "but for" not in str(caught.value) and "in place 3" in str(caught.value)
    assert "Grosse" not in str(caught.value)  # the first line may be a row


def test_names_that_differ_in_case_alone_are_warned_of() -> None:
    columns = {name: {"type": "boolean"} for name in ("Dose", "unit", "dose")}
    (told,) = traps(build_spec(columns))
    assert "'Dose' and 'dose' differ in upper and lower case alone" in told
    assert traps(SPEC) == []
