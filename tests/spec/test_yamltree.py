"""Strict YAML: what is read as what, and what is refused where."""

import pytest

from synthdp.spec import LIMITS, RawFloat, plain, read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("0", 0),
        ("1e-5", 1e-5),
        ("1.50", 1.5),
        (".5", 0.5),
        ("2.", 2.0),
        ("1E3", 1000.0),
        ("+5", 5.0),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("True", "True"),
        ("NULL", "NULL"),
        ("01", "01"),
        ("007.5", "007.5"),
        ("0x1F", "0x1F"),
        ("0o17", "0o17"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2020-01-01", "2020-01-01"),
        ("1e", "1e"),
    ],
)
def test_plain_scalars(text: str, value: object) -> None:
    assert plain(text) == value
    assert isinstance(plain(text), type(value))


def test_numbers_remember_how_they_were_written() -> None:
    assert str(plain("1.50")) == "1.50"
    assert str(plain("+5")) == "+5"
    huge = plain("123456789012345678901234567890")
    assert isinstance(huge, RawFloat)
    assert str(huge) == "123456789012345678901234567890"


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a: 1\na: 2", 2, 1, "twice"),
        ("a: &x 1", 1, 4, "anchors"),
        ("a: [*x]", 1, 5, "aliases"),
        ("a: !!str 1", 1, 4, "tags (!str)"),
        ("a: !own 1", 1, 4, "tags (!own)"),
        ("a: {<<: {b: 1}}", 1, 5, "merge keys"),
        ("[a]: 1", 1, 1, "a key must be plain text"),
        ("a: .inf", 1, 4, "not a number"),
        ("a: -.Inf", 1, 4, "not a number"),
        ("a: 1e999", 1, 4, "too large"),
        ("a: b\n---\nc: d", 2, 1, "second document"),
        ("a: 'x", 1, 4, "never closed"),
        ("a:\n\tb: 1", 2, 1, "tab"),
        ("a: 1\n b: 2", 2, 3, "':'"),
        ("a: @x", 1, 4, "begin with '@'"),
        ('a: "\\q"', 1, 5, "escape"),
        ("a: %x", 1, 4, "begin with '%'"),
        ("a: \x00", 1, 4, "U+0000"),
        ("a: 1\nb: \ud800", 2, 4, "U+D800"),
        ("- a\nb: 1", 2, 1, "among list items"),
        ("a\nb: 1", 2, 2, "':'"),
        ("%YAML 3.0\n---\na: 1", 1, 1, "%YAML"),
    ],
)
def test_refused(text: str, line: int, column: int, message: str) -> None:
    _, mistakes = read(text)
    assert [(m.line, m.column) for m in mistakes] == [(line, column)]
    assert message in mistakes[0].message


def test_all_mistakes_of_one_text() -> None:
    _, mistakes = read("a: &x 1\nb: *x\na: .nan\n<<: 1\nc: !t 2\n")
    assert [(m.line, m.column) for m in mistakes] == [
        (1, 4),
        (2, 4),
        (3, 1),
        (3, 4),
        (4, 1),
        (5, 4),
    ]


def test_the_value_of_a_refused_key_hangs_nowhere() -> None:
    tree, _ = read("? {x: [1, {y: 2}]}\n: {z: [3]}\na: 1\na: {b: 2}\nc: 3\n")
    assert tree is not None
    assert tree.value() == {"a": 1, "c": 3}


def test_quotes_make_text() -> None:
    tree, _ = read("a: '1'\nb: \"true\"\nc: |\n  .nan\nd: ''")
    assert tree is not None
    assert tree.value() == {"a": "1", "b": "true", "c": ".nan\n", "d": ""}


@pytest.mark.parametrize(
    "bomb", ["[" * 5000, "{a: " * 5000, "- " * 5000, "a: " + "[" * 60 + "]" * 60]
)
def test_depth_is_bounded(bomb: str) -> None:
    tree, mistakes = read(bomb)
    assert tree is None
    assert [f"{LIMITS.depth} levels" in m.message for m in mistakes] == [True]


@pytest.mark.check
def test_size_is_bounded() -> None:
    tree, mistakes = read("[" + "1," * (LIMITS.nodes + 1) + "]")
    assert tree is None
    assert f"{LIMITS.nodes:,} values" in mistakes[0].message


def test_places() -> None:
    tree, _ = read("a:\n  b: [1,\n      22]\n  c:\n    - x\n")
    assert tree is not None
    assert tree.place(("a",)) == (1, 1)
    assert tree.place(("a", "b")) == (2, 6)
    assert tree.place(("a", "b", 1)) == (3, 7)
    assert tree.place(("a", "c")) == (4, 3)
    assert tree.place(("a", "c", 0, "deeper")) == (5, 7)
    assert tree.place(("a", "absent")) == (1, 1)
