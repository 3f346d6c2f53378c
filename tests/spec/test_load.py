"""Loading: files, what codes become, limits, and that no text makes the loader fail in any other
way.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from synthdp.errors import SpecError, SpecProblem
from synthdp.spec import LIMITS, load_spec, parse_spec, read, replaced
from synthdp.spec.model import Boolean, Categorical, Datetime, Number, Ordinal
from tests.builders import skeleton

COMPLETE = Path(__file__).with_name("complete_spec.yaml")
ADULT = Path(__file__).parents[2] / "specs" / "adult.yaml"
TEXT = COMPLETE.read_text(encoding="utf-8")


def places(node: Any, *path: str) -> Iterator[tuple[str, object]]:
    """Each key of a tree by its path, and its value."""
    for key, inside in node.entries.items():
        if "." not in key:
            yield ".".join((*path, key)), inside.value()
            yield from places(inside, *path, key)


@pytest.mark.check
@pytest.mark.parametrize("file", [COMPLETE, ADULT], ids=lambda file: str(file.stem))
def test_a_key_that_is_replaced_by_its_own_value_changes_nothing(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    tree, _ = read(text)
    assert tree is not None
    for path, value in list(places(tree))[::11]:
        again, mistakes = read(replaced(text, {path: value}, path="s.yaml"))
        assert again is not None and not mistakes and again.value() == tree.value(), path
        assert again.place(("sampling",))[0] == tree.place(("sampling",))[0], path


def test_a_complete_spec() -> None:
    spec = load_spec(COMPLETE)
    education, income, gain, joined = (
        spec.columns[n] for n in ("education", "income", "gain", "joined")
    )
    assert isinstance(education, Ordinal)
    assert education.categories == ("01", "1.50", "no", "true")
    assert isinstance(income, Boolean)
    assert (income.false, income.true) == ("low", "high")
    assert isinstance(gain, Number)
    assert (type(gain.upper), gain.upper) == (float, 1e5)
    assert isinstance(joined, Datetime)
    assert joined.upper == datetime(2020, 12, 31)
    assert spec.privacy.delta == 1e-5
    assert spec.graph.pairs() == (
        ("age", "education"),
        ("sex", "education"),
        ("education", "income"),
        ("age", "income"),
    )


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    assert load_spec(path) == load_spec(COMPLETE)


@pytest.mark.parametrize(
    ("data", "place", "message"),
    [
        (None, (1, 1), "no such file"),
        (b"", (1, 1), "empty"),
        (b"a: 1\nb: \xff\n", (2, 4), "UTF-8"),
        ("a: 1".encode("utf-16"), (1, 1), "UTF-8"),
        (b"#" * (LIMITS.bytes + 1), (1, 1), "larger"),
    ],
)
def test_files_that_are_no_spec(
    tmp_path: Path, data: bytes | None, place: tuple[int, int], message: str
) -> None:
    path = tmp_path / "spec.yaml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(SpecError, match=message) as caught:
        load_spec(path)
    assert [(p.path, p.line, p.column) for p in caught.value.problems] == [(str(path), *place)]


def test_a_folder_is_no_spec(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="folder"):
        load_spec(tmp_path)


def test_a_path_that_cannot_be() -> None:
    with pytest.raises(SpecError):
        load_spec(Path("a\0b"))


def test_names_may_be_codes() -> None:
    text = (
        TEXT.replace("  sex:", "  2019:")
        .replace("age, sex ->", "age, 2019 ->")
        .replace("[age, sex]", "[age, 2019]")
    )
    text = text.replace("targets: [income]", "targets: [2019]")
    spec = parse_spec(text, path="s")
    assert isinstance(spec.columns["2019"], Categorical)
    assert spec.evaluation.targets == ("2019",)
    assert spec.graph.tiers[0] == ("age", "2019")


@pytest.mark.parametrize("value", ["yes", "'true'", "1", "True"])
def test_only_true_and_false_are_booleans(value: str) -> None:
    with pytest.raises(SpecError, match="expected true or false"):
        parse_spec(TEXT.replace("lower: 17,", f"lower: 17, missing: {value},"), path="s")


@pytest.mark.parametrize("value", ["true", "'17'", "17.5", "null", "0x11", "1_7"])
def test_only_whole_numbers_are_whole_numbers(value: str) -> None:
    with pytest.raises(SpecError, match="expected a whole number"):
        parse_spec(TEXT.replace("lower: 17,", f"lower: {value},"), path="s")


def test_a_whole_number_may_be_written_as_a_power_of_ten() -> None:
    spec = parse_spec(TEXT.replace("value: 48842", "value: 5e4"), path="s")
    assert (type(spec.dataset.rows.value), spec.dataset.rows.value) == (int, 50_000)


def test_times_have_no_zone() -> None:
    with pytest.raises(SpecError, match="without time zone"):
        parse_spec(TEXT.replace("2020-12-31T00:00:00", "2020-12-31T00:00:00Z"), path="s")


def test_a_misspelt_required_key_is_one_mistake() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(TEXT.replace("  epsilon: 1", "  epsilom: 1"), path="s")
    assert [(p.field, p.hint) for p in caught.value.problems] == [
        ("privacy.epsilom", "did you mean 'epsilon'?")
    ]


def test_mistakes_between_sections_are_told_once_the_fields_are_right() -> None:
    edges = "    - age ->\n    - sex -> education\n    - education -> nowhere\n"
    text = TEXT.replace(
        "    - age, sex -> education\n    - {causes: [education, age], effects: [income]}\n", edges
    ).replace("1e-5", "1e-3")
    first = text.splitlines().index("    - age ->") + 1
    for spec, expected in (
        (text, [("graph.edges #1", first)]),
        (
            text.replace("age ->\n", "age -> sex\n"),
            [("privacy.delta", 23), ("graph.edges #3", first + 2)],
        ),
    ):
        with pytest.raises(SpecError) as caught:
            parse_spec(spec, path="s")
        assert [(p.field, p.line) for p in caught.value.problems] == expected


def test_no_cross_check_runs_on_a_default_that_was_not_meant() -> None:
    text = TEXT.replace("mode: given", "mode: lern").replace(
        "  delta: 1e-5", "  delta: 1e-5\n  shares: {measure: 0.1, graph: 0.2, train: 0.7}"
    )
    with pytest.raises(SpecError) as caught:
        parse_spec(text, path="s")
    assert [p.field for p in caught.value.problems] == ["graph.mode"]


def test_the_list_ends_after_a_hundred() -> None:
    extra = "".join(f"k{i:03}: 1\n" for i in range(250))
    with pytest.raises(SpecError) as caught:
        parse_spec(TEXT + extra, path="s")
    assert len(caught.value.problems) == LIMITS.listed + 1
    assert "150 more mistakes" in caught.value.problems[-1].message


@pytest.mark.check
def test_many_wrong_names_are_told_quickly() -> None:
    edges = "".join(f"    - x{i} -> y{i}\n" for i in range(20_000))
    with pytest.raises(SpecError, match="more mistakes"):
        parse_spec(TEXT.replace("  tiers:", edges + "  tiers:"), path="s")


def test_secrets_in_place_of_a_variable_are_not_repeated() -> None:
    text = TEXT.replace(
        '{kind: csv, path: people.csv, missing_values: ["", "?"]}',
        '{kind: sql, url_env: "db://me:hunter2@h", query: q}',
    )
    with pytest.raises(SpecError, match="environment variable") as caught:
        parse_spec(text, path="s")
    assert "hunter2" not in str(caught.value)


def _only_spec_errors(text: str) -> None:
    problems: list[SpecProblem] = []
    try:
        parse_spec(text, path="s")
    except SpecError as error:
        problems = error.problems
        str(error).encode()
    assert all(p.line >= 1 and p.column >= 1 for p in problems)


@settings(max_examples=150, deadline=None)
@given(st.text())
def test_any_text(text: str) -> None:
    _only_spec_errors(text)


def test_loading_imports_nothing_heavy() -> None:
    heavy = (
        "numpy",
        "pandas",
        "torch",
        "sklearn",
        "mlflow",
        "opacus",
        "dp_accounting",
        "opendp",
        "sqlalchemy",
        "matplotlib",
        "networkx",
        "pyarrow",
    )
    code = (
        "import sys; from pathlib import Path; from synthdp.spec.load.loader import load_spec;"
        " import synthdp.spec.draft, synthdp.spec.writing\n"
        f"load_spec(Path({str(COMPLETE)!r}));"
        f" print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ("lower: 0, upper: 1.0e-9, decimals: 4", "use 11 digits"),
        ("lower: 0.96, upper: 1.04, decimals: 0", "use 3 digits"),
        ("lower: 0, upper: 1.0e-13, decimals: 4", "another; rescale the column"),
    ],
)
def test_decimals_that_tell_no_bin_from_another_are_refused(bounds: str, told: str) -> None:
    with pytest.raises(SpecError, match=r"all values from .* are written alike") as caught:
        parse_spec(
            re.sub(r"gain: \{type: number[^}]*\}", f"gain: {{type: number, {bounds}}}", TEXT),
            path="s.yaml",
        )
    assert told in str(caught.value) and "columns.gain.decimals" in str(caught.value)


def test_decimals_that_tell_some_bins_apart_are_allowed() -> None:
    for lower, upper, decimals, bins in (
        (0.0, 1.0, 0, 32),
        (0.96, 1.04, 0, 1),
        (0.0, 1e-9, 11, 32),
    ):
        assert (
            Number(type="number", lower=lower, upper=upper, decimals=decimals, bins=bins).decimals
            == decimals
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("evaluation: {disclosure: charged}", "charged is called private now: write private"),
        (
            "gates: [{metric: tv1_charged, at_most: 1}]",
            "tv1_charged is called tv1_dp now: write tv1_dp",
        ),
    ],
)
def test_an_old_name_is_refused_with_the_new_one(change: str, said: str) -> None:
    text = yaml.safe_dump({**skeleton(), "columns": {"a": {"type": "boolean"}}})
    with pytest.raises(SpecError, match=said):
        parse_spec(f"{text}{change}\n", path="s.yaml")
