"""The reference of the spec is what the models say, and its examples are allowed."""

import re
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from docs.site.reference import (
    _default,
    _parts,
    allowed,
    anchor,
    flow,
    page,
    sections,
    unit,
)
from synthdp.spec import Labelled, Mapped, json_schema, parse_any, read
from synthdp.spec.model import ChosenColumns, LinkedSpec, Model, Privacy, ReleaseSpec

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "spec.md"
MODELS = {section.model for section in sections()}
FIELDS = [
    pytest.param(model, name, info, id=f"{model.__name__}.{name}")
    for model in sorted({ReleaseSpec, LinkedSpec, *MODELS}, key=lambda m: m.__name__)
    for name, info in model.model_fields.items()
]


def _value(text: str) -> object:
    """As a spec that holds `text` is read."""
    tree, mistakes = read(f"x: {text}")
    assert tree is not None and not mistakes
    value = tree.value()
    assert isinstance(value, dict)
    return value["x"]


@pytest.mark.check
def test_the_committed_page_is_what_the_generator_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_model_of_the_contract_has_a_place() -> None:
    def below(model: type) -> set[type]:
        return {model}.union(*(below(m) for m in model.__subclasses__()))

    bases = {
        Model,
        Labelled,
        Mapped,
        ChosenColumns,
        ReleaseSpec,
        LinkedSpec,
        *(
            m
            for m in below(Model)
            if m.__name__
            in ("ColumnBase", "RangedColumn", "PaidEstimand", "Described", "Budget", "Parts")
        ),
    }
    assert {m for m in below(Model) if m.__module__.startswith("synthdp.spec.")} == MODELS | bases
    assert all(m.__doc__ and m.__doc__ != Model.__doc__ for m in MODELS)


@pytest.mark.parametrize(("model", "name", "info"), FIELDS)
def test_every_field_has_a_meaning_a_default_and_an_example_that_is_allowed(
    model: type, name: str, info: FieldInfo
) -> None:
    assert info.description and not info.description.endswith("."), "meanings are phrases"
    assert (_default(info) == "required") == info.is_required()
    adapter = TypeAdapter(
        Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
    )
    assert info.examples, f"{model.__name__}.{name} has no example"
    for example in info.examples:
        adapter.validate_python(_value(flow(example)))


def test_counted_and_measured_fields_have_a_unit() -> None:
    of_the_column = {"lower", "upper", "edges", "spikes"}
    without = {
        "Gate.at_most",
        "Gate.at_least",
        "LinkedGate.at_most",
        "LinkedGate.at_least",
        "SynthesizerSettings.learning_rate",
        "SynthesizerSettings.ema",
    }  # of the metric; none
    schemas = json_schema()["$defs"]
    bare = {
        f"{model.__name__}.{name}"
        for model in MODELS
        for name, info in model.model_fields.items()
        if not unit(info) and name not in of_the_column and not list(_parts(name, info.annotation))
        if "number" in allowed(schemas[model.__name__]["properties"][name]).replace("`number`", "")
    }
    assert bare == without
    assert unit(Privacy.model_fields["epsilon"]) == "nats"


def test_the_specs_on_the_page_load() -> None:
    specs = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for text, model in zip(specs, (ReleaseSpec, LinkedSpec), strict=True):
        loaded = parse_any(text, path="page")
        assert isinstance(loaded, model)
        assert (
            set(_value("{" + ", ".join(f"{name}: 1" for name in model.model_fields) + "}"))
            == loaded.model_fields_set
        )  # all sections are shown


def test_every_section_stands_on_the_page_under_the_anchor_that_links_to_it() -> None:
    text = PAGE.read_text(encoding="utf-8")
    anchors = [anchor(line.lstrip("# ")) for line in text.splitlines() if line.startswith("#")]
    assert len(anchors) == len(set(anchors)) == len(MODELS) + 2
    assert set(re.findall(r"\]\(#(.*?)\)", text)) == set(anchors[1:])


def test_every_field_is_told_in_its_section_or_where_its_section_points_to() -> None:
    text = PAGE.read_text(encoding="utf-8")
    told = dict(part.partition("\n")[::2] for part in re.split(r"^##+ ", text, flags=re.MULTILINE))
    for model, section in {
        section.model: section for section in reversed(list(sections()))
    }.items():
        here = r"^(?:- |(?:Also|It has) .*)\[?`{}`"
        missing = {
            name
            for name in model.model_fields
            if not re.search(here.format(name), told[section.title], re.MULTILINE)
        }
        assert missing <= {section.kind.partition(":")[0]}  # which the title tells


def test_an_example_that_is_not_allowed_is_found() -> None:
    info = Privacy.model_fields["epsilon"]
    with pytest.raises(ValidationError):
        TypeAdapter(Annotated[info.annotation, *info.metadata]).validate_python(0)
