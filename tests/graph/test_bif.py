"""Reading Bayesian networks and sampling from them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bif import BayesianNetwork, parse_bif, read_bif
from synthdp.errors import SynthdpError
from synthdp.graph import READERS, GraphFileError

TEXT = """network n { }
variable a { type discrete [ 2 ] { yes, no }; }
variable b { type discrete [ 3 ] { x, y, z }; }
probability ( a ) { table 0.25, 0.75; }
probability ( b | a ) { default 0.2, 0.3, 0.5; (yes) 1.0, 0.0, 0.0; }
"""


def test_structure_and_tables(network: Callable[[str], BayesianNetwork]) -> None:
    net = network("cancer")
    assert net.parents["Cancer"] == ("Pollution", "Smoker")
    assert net.levels["Pollution"] == (
        "low",
        "high",
    )
    assert net.tables["Cancer"][1, 0].tolist() == pytest.approx([0.05, 0.95])
    assert net.graph().parents("Cancer") == ("Pollution", "Smoker")
    assert net.domain()["Xray"].labels == ("positive", "negative")


def test_defaults_and_samples(tmp_path: Path) -> None:
    path = tmp_path / "n.bif"
    path.write_text(TEXT)
    net = read_bif(path)
    codes = net.sample(40_000, rng=np.random.default_rng(1))
    assert codes.shape == (40_000, 2) and codes.dtype == np.uint16
    assert (codes[:, 0] == 0).mean() == pytest.approx(0.25, abs=0.01)
    assert set(codes[codes[:, 0] == 0, 1].tolist()) == {0}
    assert np.bincount(codes[codes[:, 0] == 1, 1]) / (codes[:, 0] == 1).sum() == pytest.approx(
        [0.2, 0.3, 0.5], abs=0.015
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("variable a", "node a", "n.bif:2:1: got 'node' where a block must stand"),
        ("table 0.25, 0.75", "table 0.25", "1 numbers where 2"),
        ("table 0.25, 0.75", "table 0.5, 0.75", "sum to 1"),
        ("table 0.25, 0.75", "table 0.25, many", "not a list of numbers"),
        ("(yes)", "(maybe)", "not a combination"),
        ("default 0.2, 0.3, 0.5;", "", "has no row"),
        ("probability ( a ) { table 0.25, 0.75; }", "", "no probability block for a"),
        (
            "probability ( a ) { table 0.25, 0.75; }",
            "probability ( a | b ) { default 0.5, 0.5; }",
            "cycle",
        ),
    ],
)
def test_mistakes_are_named(old: str, new: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "n.bif"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(SynthdpError, match=words):
        read_bif(path)


def test_not_a_network(tmp_path: Path) -> None:
    path = tmp_path / "n.bif"
    path.write_text("network n { }")
    with pytest.raises(SynthdpError, match="no discrete variable"):
        read_bif(path)


def structure(text: str) -> set[tuple[str, str]]:
    return set(READERS["bif"](text, file="n.bif").directed)


A = "variable a { type discrete [ 2 ] { x, y }; }\n"
B = A.replace(" a ", " b ")


@pytest.mark.parametrize(
    "text",
    [
        f"// variable z {{ }}\n/* probability ( a | b ) {{ }} */{A}{B}probability (a) {{ }}"
        "probability ( b | a ) { // table 1;\n }",
        f"{A}{B}probability ( b|a ) {{ table 0.1, 0.6, 0.9, 0.4; }} probability(a){{}}",
        f'{A}{B}probability ( "b" "a" ) {{ table 0.1 0.6 0.9 0.4; }} probability ( "a" ) {{ }}',
        f"{A}{B}probability ( b, a ) {{ }} probability ( a ) {{ }}",
        f"{A}{B}probability ( b | a ) {{ (x) 0.5, 0.5; }} probability ( a ) {{ table many; }}",
    ],
)
def test_a_graph_needs_no_tables(text: str) -> None:
    assert structure(text) == {("a", "b")}


def test_names_and_values_in_quotes_with_parentheses_and_in_intervals() -> None:
    text = """network "n" { property "a; b" ; }
    variable "Body mass" { type discrete[3] { (0.0, 18.5] (18.5, 25.0] (25.0,inf) } }
    variable Age_(years) { type discrete [ 2 ] { [0, 40), [40, inf) }; property x = (1, 2) ; }
    variable ill { type discrete [ 2 ] { very low, high }; }
    probability ( Age_(years) ) { table 0.2, 0.8; }
    probability ( "Body mass" ) { table 0.2, 0.2, 0.6; }
    probability ( ill | "Body mass", Age_(years) ) {
        default 0.5, 0.5; ( (0.0, 18.5], [40, inf) ) 0.1, 0.9; }"""
    net = parse_bif(text, file="n.bif")
    assert net.parents["ill"] == ("Body mass", "Age_(years)")
    assert net.levels["Body mass"] == ("(0.0, 18.5]", "(18.5, 25.0]", "(25.0,inf)")
    assert net.levels["ill"] == ("very low", "high")
    assert net.tables["ill"][0, 1].tolist() == [0.1, 0.9] and net.tables["ill"][1, 1, 0] == 0.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{A}variable Body mass {{ }}", "2:15: got 'mass' where '{' must stand"),
        (f"{A}probability ( a | b (years) ) {{ }}", r"2:21: got '\(' where a parent's name"),
        (f"{A}{A}", "2:10: variable a: a second block"),
        (f"{A}probability ( a | a ) {{ }}", "2:1: probability of a: a variable is named twice"),
        ("variable a { type continuous; }", "1:19: variable a: is not discrete"),
        ("variable a { kind discrete; }", "1:14: got 'kind' where one of type, property"),
        (f"{A}probability ( a ) {{ table 0.2, 0.8 }} {B};", "2:27: no ';' after this"),
        (f"{A}probability ( a ) {{", "2:19: a block that is never closed"),
        ("variable a { type discrete [ 2 ] { x, y", "1:40: got 'the end of the file'"),
        (f'{A}probability ( "a ) {{ }}', "2:15: a quotation mark that is never closed"),
        (f"{A}utility ( a ) {{ }}", "2:1: got 'utility' where a block must stand"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(GraphFileError, match=f"n.bif:{words}") as caught:
        structure(text)
    assert caught.value.hint


THREE = "variable {} {{ type discrete [ 3 ] {{ x, y, z }}; }}\n"


@pytest.mark.parametrize(
    ("numbers", "bar", "first", "words"),
    [
        ("0.1, 0.9, 0.6, 0.4", True, [0.1, 0.9], ""),
        ("0.1, 0.6, 0.9, 0.4", False, [0.1, 0.9], ""),
        ("0.1, 0.6, 0.9, 0.4", True, [], "here it seems to change slowest"),
        ("0.1, 0.9, 0.6, 0.4", False, [], "sum to 1 in every row"),
        ("0.1, 0.9, 0.9, 0.1", True, [0.1, 0.9], ""),
    ],
)
def test_a_table_has_the_order_of_its_dialect(
    numbers: str, bar: bool, first: list[float], words: str
) -> None:
    family = f"b {'|' if bar else ''} a"
    text = f"{A}{B}probability (a) {{ table 1, 0; }} probability ({family}) {{ table {numbers}; }}"
    if words:
        with pytest.raises(GraphFileError, match=words):
            parse_bif(text, file="n.bif")
    else:
        assert parse_bif(text, file="n.bif").tables["b"][0].tolist() == pytest.approx(first)


def test_a_table_that_fits_two_orders_is_refused() -> None:
    numbers = "0.2, 0.3, 0.5, 0.5, 0.2, 0.3, 0.3, 0.5, 0.2"
    text = (
        THREE.format("a") + THREE.format("b") + "probability (a) { table 1, 0, 0; }"
        f"probability (b | a) {{ table {numbers}; }}"
    )
    with pytest.raises(GraphFileError, match="sum to 1 in two orders") as caught:
        parse_bif(text, file="n.bif")
    assert "one row for each combination" in str(caught.value)
    assert parse_bif(text.replace("b | a", "b a"), file="n").tables["b"][0, 1] == pytest.approx(0.5)


def test_large_tables_are_refused_and_their_graph_is_read() -> None:
    names = [f"v{i}" for i in range(26)]
    text = "".join(A.replace(" a ", f" {n} ") for n in names)
    text += "".join(f"probability ( {n} ) {{ table 0.5, 0.5; }}\n" for n in names[1:])
    text += f"probability ( v0 | {', '.join(names[1:])} ) {{ default 0.5, 0.5; }}"
    with pytest.raises(GraphFileError, match="25 parents, and a table that is too large"):
        parse_bif(text, file="n.bif")
    assert len(structure(text)) == 25
