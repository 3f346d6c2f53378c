"""Specs that were made to do harm end in the declared error and exit code, in bounded time and
memory.
"""

import contextlib
import copy
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from synthdp.data import Domain
from synthdp.errors import SpecError
from synthdp.ledger import steward_name
from synthdp.spec import parse_spec

TEXT = (Path(__file__).parent.parent / "spec" / "complete_spec.yaml").read_text(encoding="utf-8")
BOMB = "a: &a [x, x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
COLUMN = "  c{0}: {{type: categorical, categories: [a]}}\n"

SPECS: dict[str, str | bytes] = {
    "alias bomb": BOMB,
    "alias to itself": "a: &a [*a]\n",
    "python object": "!!python/object/apply:os.system ['touch /tmp/it-ran']\n",
    "python tag inside": TEXT.replace("synthdp: 1", "synthdp: !!python/name:os.system x"),
    "unknown tag": TEXT + "x: !evil {a: 1}\n",
    "binary tag": TEXT + "x: !!binary aGVsbG8=\n",
    "deep list": "a: " + "[" * 400_000,
    "deep map": "{a: " * 200_000,
    "deep block": "".join(" " * i + "a:\n" for i in range(1300)),
    "deep sequence": "- " * 400_000,
    "a megabyte in one scalar": f"synthdp: '{'x' * 990_000}'\n",
    "a megabyte in a category": TEXT.replace("[age, sex]", f"[age, {'y' * 900_000}]"),
    "a megabyte in a key": f"? {'k' * 900_000}\n: 1\n",
    "a megabyte of digits": f"synthdp: {'9' * 990_000}\n",
    "a megabyte of decimals": f"synthdp: 0.{'9' * 990_000}\n",
    "a megabyte of zeros": f"synthdp: {'0' * 990_000}\n",
    "a megabyte of anchors": "".join(f"&a{i} " for i in range(120_000)),
    "a megabyte of comments and no more": "#" * 999_999,
    "a hundred thousand columns": "columns:\n" + "".join(COLUMN.format(i) for i in range(100_000)),
    "twenty thousand columns": TEXT.replace(
        "columns:\n", "columns:\n" + "".join(f"  c{i}: {{type: t}}\n" for i in range(20_000))
    ),
    "ten thousand duplicate keys": TEXT + "x: 1\n" * 10_000,
    "ten thousand arrows in a ring": TEXT.replace(
        "  edges:\n", "  edges:\n" + "".join(f"    - x{i} -> x{i + 1}\n" for i in range(10_000))
    ),
    "duplicate key": TEXT + "synthdp: 1\n",
    "nul": TEXT.replace("synthdp: 1", "synthdp: 1\0"),
    "escaped nul in a category": TEXT.replace("[age, sex]", '["a\\0b", sex]'),
    "byte order mark inside": TEXT.replace("synthdp: 1", "synthdp: \ufeff1"),
    "invalid UTF-8": TEXT.encode() + b"\xff\xfe\xfa",
    "overlong UTF-8": TEXT.encode() + b"\xc0\x80",
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-32": TEXT.encode("utf-32"),
    "half a character": TEXT + 'x: "\\ud800"\n',
    "not a number": TEXT.replace("epsilon: 1", "epsilon: .nan"),
    "infinity": TEXT.replace("epsilon: 1", "epsilon: .inf"),
    "minus infinity": TEXT.replace("epsilon: 1", "epsilon: -.INF"),
    "nan by name": TEXT.replace("epsilon: 1", "epsilon: nan"),
    "merge key": TEXT + "<<: {synthdp: 2}\n",
    "anchor": TEXT.replace("epsilon: 1", "epsilon: &e 1"),
    "huge exponent": TEXT.replace("epsilon: 1", "epsilon: 1e999999"),
    "tiny exponent": TEXT.replace("epsilon: 1", "epsilon: 1e-999999"),
    "tiny delta": TEXT.replace("delta: 1e-5", "delta: 5e-324"),
    "huge integer": TEXT.replace("value: 48842", f"value: 1{'0' * 5000}"),
    "huge whole number as exponent": TEXT.replace("value: 48842", "value: 1e308"),
    "lists for everything": "[" + "[]," * 90_000 + "]",
    "complex key": "? [a, b]\n: 1\n",
    "two documents": TEXT + "---\nsynthdp: 1\n",
    "directive": "%TAG ! tag:evil.org,2000:\n---\n" + TEXT.replace("synthdp: 1", "synthdp: !x 1"),
    "pickle": (
        b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94."
    ),
    "zip": b"PK\x03\x04" + bytes(range(256)) * 10,
    "elf": b"\x7fELF" + bytes(range(256)) * 10,
    "empty": b"",
    "only a byte order mark": b"\xef\xbb\xbf",
    "more than a megabyte": b"#" * 1_000_001,
    "a URL for a path": TEXT.replace("path: people.csv", "path: 'http://example.org/people.csv'"),
    "a file URL for a path": TEXT.replace("path: people.csv", "path: 'file:///etc/passwd'"),
    "a bucket for a path": TEXT.replace("path: people.csv", "path: 's3://bucket/people.csv'"),
    "a chained address for a path": TEXT.replace(
        "path: people.csv", "path: 'filecache::s3://bucket/people.csv'"
    ),
    "a home folder for a path": TEXT.replace("path: people.csv", "path: ~/people.csv"),
    "a nul in a path": TEXT.replace("path: people.csv", 'path: "people\\0.csv"'),
    "a dataset id that climbs": TEXT.replace("id: people", "id: ../../people"),
    "a dataset id of dots": TEXT.replace("id: people", "id: '..'"),
    "a dataset id that is absolute": TEXT.replace("id: people", "id: /etc/people"),
    "a dataset id with a line break": TEXT.replace("id: people", 'id: "people\\n"'),
    "SQL for a dataset id": TEXT.replace("id: people", 'id: "x\'; DROP TABLE synthdp_ledger; --"'),
}


def _replaced_everywhere() -> None:
    for name, text in SPECS.items():
        if isinstance(text, str) and text.startswith(TEXT[:20]):
            assert text != TEXT, f"{name}: nothing was replaced"


_replaced_everywhere()


@pytest.mark.parametrize("name", SPECS)
def test_a_bad_spec_is_refused(
    synthdp: Callable[..., Any], figure: Callable[..., None], tmp_path: Path, name: str
) -> None:
    path, text = tmp_path / "spec.yaml", SPECS[name]
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    ended = synthdp("validate", path, megabytes=700, seconds=30)
    assert ended.code == 2 and ended.declared, ended.printed[-2000:]
    assert "mistake" in ended.printed and len(ended.printed) < 1_500_000
    assert not any(c in ended.printed for c in "\x1b\x07\x08\0\u202e")
    figure("bad inputs refused with the declared error", 1, 1)


@pytest.mark.parametrize(
    "kind",
    [
        "folder",
        "pipe",
        "device",
        "endless device",
        "link to itself",
        "broken link",
        "nothing",
        "terminal escape",
    ],
)
def test_what_is_no_file_is_no_spec(synthdp: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("\x1b[31mspec\u202e.yaml" if kind == "terminal escape" else "spec.yaml")
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind in ("device", "endless device"):
        path.symlink_to("/dev/null" if kind == "device" else "/dev/zero")
    elif "link" in kind:
        path.symlink_to(path if kind == "link to itself" else tmp_path / "gone")
    ended = synthdp("validate", path, megabytes=300, seconds=10)
    assert ended.code == 2 and ended.declared, ended.printed
    assert "\x1b" not in ended.printed and "\u202e" not in ended.printed


def test_a_name_that_is_no_text_can_be_told(synthdp: Callable[..., Any], tmp_path: Path) -> None:
    assert synthdp("validate", os.fsdecode(os.fsencode(tmp_path) + b"/\xff.yaml")).code == 2


def test_no_tag_ran() -> None:
    assert not Path("/tmp/it-ran").exists()


FORMULAS = [
    "=1+1",
    "+cmd",
    "-cmd",
    "@sum",
    "\t=1",
    "\r=1",
    "\uff1d1",
    "\uff0bcmd",
    "\uff0dcmd",
    "\uff20sum",
    "x;=cmd|' /C calc'!A0",
    "a\0",
    "\ufeff=1",
    "\u202eabc",
    "a\nb",
]


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("place", ["category", "column", "label"])
def test_cells_that_a_spreadsheet_would_run_are_refused(
    base_spec: dict[str, Any], text: str, place: str
) -> None:
    spec = copy.deepcopy(base_spec)
    if place == "category":
        spec["columns"]["sex"]["categories"].append(text)
    elif place == "column":
        spec["columns"][text] = {"type": "boolean"}
    else:
        spec["columns"]["smoker"]["true"] = text
    with pytest.raises(SpecError, match=r"formula|control character"):
        parse_spec(yaml.safe_dump(spec), path="s")


@pytest.mark.parametrize(
    "text",
    [
        "-5",
        "+1.5",
        "a-b",
        "18;24",
        "a=b",
        "\u05e9\u05dc\u05d5\u05dd",
        "\u0645\u0631\u062d\u0628\u0627",
        "x@y",
        "\u65e5\u672c",
    ],
)
def test_harmless_categories_stay(base_spec: dict[str, Any], text: str) -> None:
    spec = copy.deepcopy(base_spec)
    spec["columns"]["sex"]["categories"].append(text)
    assert parse_spec(yaml.safe_dump(spec, allow_unicode=True), path="s")


ALIKE = [
    ("male", "male\u200b"),
    ("boy", "bo\u200dy"),
    ("caf\u00e9", "cafe\u0301"),
    ("co-op", "co\u00ad-op"),
    ("x", "x\u200e"),
]


@pytest.mark.parametrize("pair", ALIKE)
@pytest.mark.parametrize("place", ["category", "column", "label"])
def test_names_that_look_the_same_are_refused(
    base_spec: dict[str, Any], pair: tuple[str, str], place: str
) -> None:
    spec = copy.deepcopy(base_spec)
    if place == "category":
        spec["columns"]["sex"]["categories"] += pair
    elif place == "column":
        spec["columns"] |= {name: {"type": "boolean"} for name in pair}
    else:
        spec["columns"]["smoker"] |= {"false": pair[0], "true": pair[1]}
    with pytest.raises(SpecError, match=r"look the same|control character"):
        parse_spec(yaml.safe_dump(spec), path="s")


@pytest.mark.parametrize(
    "pair",
    [
        ("caf\u00e9", "cafe"),
        ("x\u00b2", "x2"),
        ("\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0646"),
    ],
)
def test_names_that_differ_to_the_eye_stay(
    base_spec: dict[str, Any], pair: tuple[str, str]
) -> None:
    """Joiners have a meaning where they are written."""
    spec = copy.deepcopy(base_spec)
    spec["columns"]["sex"]["categories"] += pair
    assert parse_spec(yaml.safe_dump(spec, allow_unicode=True), path="s")


def test_a_name_of_megabytes_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNTHDP_STEWARD", "Jane Doe " + "x" * 100_000)
    assert steward_name() == "Jane Doe " + "x" * 191


@pytest.mark.parametrize(
    "bounds",
    [(-1e308, 1e308), (0, 5e-324), (1.0, 1.0000000000000002), (-1e-308, 1e300), (-0.0, 1e-300)],
)
def test_extreme_ranges_are_refused_or_usable(
    base_spec: dict[str, Any], bounds: tuple[float, float]
) -> None:
    """What the loader lets in, the domain can be built of: finite bins, in order."""
    spec = copy.deepcopy(base_spec)
    spec["columns"]["weight"] = {"type": "number", "lower": bounds[0], "upper": bounds[1]}
    try:
        loaded = parse_spec(yaml.safe_dump(spec), path="s")
    except SpecError:
        return
    column = Domain.from_spec(loaded.columns)["weight"]
    assert all(map(math.isfinite, (*column.edges, column.stop))) and list(column.edges) == sorted(
        set(column.edges)
    )


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.001, 1e-5), (1e-300, 1e-5), (1.0, 1e-13), (1.0, 5e-324)]
)
def test_budgets_below_what_the_accountant_resolves_are_refused(
    base_spec: dict[str, Any], epsilon: float, delta: float
) -> None:
    spec = copy.deepcopy(base_spec)
    spec["privacy"] |= {"epsilon": epsilon, "delta": delta}
    with pytest.raises(SpecError, match="at least"):
        parse_spec(yaml.safe_dump(spec), path="s")


def places(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every entry of a tree of maps and lists."""
    entries = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in entries:
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from places(value, (*at, key))


PREDICT = """
synthdp: 1
dataset:
  id: people
  source: {kind: csv, path: people.csv}
  privacy_unit: {kind: row, meaning: one person}
  rows: {kind: public, value: 2000}
columns:
  age: {type: integer, lower: 0, upper: 99}
  sex: {type: categorical, categories: [F, M]}
privacy: {epsilon: 1, delta: 1e-6, shares: {measure: .3, graph: .7, train: 0}}
graph: {mode: predict, tiers: [[age], [sex]]}
evaluation: {targets: [sex], holdout: .2}
"""


@pytest.mark.parametrize("value", [None, "x", -1, [], {}], ids=repr)
@pytest.mark.parametrize("text", [TEXT, PREDICT], ids=["complete", "predict"])
def test_a_wrong_value_anywhere_ends_in_the_declared_error(text: str, value: Any) -> None:
    """Rules for what is left out read no section that is lost."""
    tree = yaml.safe_load(text)
    for place in places(tree):
        spoilt = copy.deepcopy(tree)
        node = spoilt
        for key in place[:-1]:
            node = node[key]
        node[place[-1]] = value
        with contextlib.suppress(SpecError):
            parse_spec(yaml.safe_dump(spoilt), path="spec")
