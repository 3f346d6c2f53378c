"""Graph formats: what is written is read back, whatever the names; what cannot be read says file,
line and what is allowed.
"""

import os
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given, settings

from benchmarks.bif import BayesianNetwork
from synthdp.errors import SpecError, SynthdpError
from synthdp.graph import (
    PROVENANCES,
    READERS,
    WRITERS,
    CausalGraph,
    GraphEdge,
    GraphFileError,
    quoted,
    read_graph,
)
from synthdp.spec.model import Graph

HOSTILE = (
    "node",
    "graph",
    "a b",
    " lead and trail ",
    'say "hi"',
    "it's",
    "a->b",
    "x, y",
    "a -- b",
    "größe",
    "収入",
    "😀",
    "back\\slash",
    "n\\N",
    "two\\\\",
    "#1",
    "// no",
    "a:b",
    "{x}",
    "[y]",
    "yes",
    "1e-5",
    "<b>&amp;</b>",
    'label="x"',
    "-1",
    "~",
    "null",
    "U1",
    "marital-status",
    "Unobserved Confounders",
    "-x-",
    "o'clock \"",
    "%",
)
NUMBERS = ("0", "1", "n2", "3", "-4")
KEEPS_ALL = ("dot", "json")


def dag(names: tuple[str, ...]) -> CausalGraph:
    """A chain with all provenances that an arrow may have, one column without links, and two latent
    causes.
    """
    edges = tuple(
        GraphEdge(a, b, directed=True, provenance=PROVENANCES[i % len(PROVENANCES)])
        for i, (a, b) in enumerate(pairwise(names[:-1]))
    )
    return CausalGraph(names, edges, latent=((names[0], names[-1]), names[1:4]))


def same(found: CausalGraph, wanted: CausalGraph, *, provenance: bool) -> bool:
    def links(graph: CausalGraph) -> set[tuple[object, ...]]:
        return {(*e.pair, e.directed, e.provenance if provenance else "") for e in graph.edges}

    return (
        found.nodes == wanted.nodes
        and links(found) == links(wanted)
        and {frozenset(n) for n in found.latent} == {frozenset(n) for n in wanted.latent}
        and dict(found.groups) == dict(wanted.groups)
    )


def through(name: str, graph: CausalGraph) -> CausalGraph:
    return READERS[name](WRITERS[name](graph), file=f"graph.{name}")


@pytest.mark.parametrize("names", [HOSTILE, NUMBERS])
@pytest.mark.parametrize("name", ["yaml", "dot", "dagitty", "json"])
def test_a_dag_with_hostile_names_and_latent_causes_comes_back(
    name: str, names: tuple[str, ...]
) -> None:
    graph = dag(names)
    assert same(through(name, graph), graph, provenance=name in KEEPS_ALL)


@pytest.mark.parametrize("name", ["yaml", "dot", "dagitty", "json"])
def test_a_cpdag_comes_back(name: str, network: Callable[[str], BayesianNetwork]) -> None:
    graph = network("asia").graph().cpdag()
    assert graph.undirected and graph.directed
    assert same(through(name, graph), graph, provenance=name in KEEPS_ALL)


@pytest.mark.parametrize("name", ["yaml", "dot", "json"])
def test_groups_come_back(name: str) -> None:
    spec = Graph(edges=("g -> d", "e -> g, d"), groups={"g": ("c", "a", "b")}, latent=(("g", "f"),))
    graph = CausalGraph.from_spec(spec, "abcdef")
    assert same(through(name, graph), graph, provenance=name in KEEPS_ALL)


def test_pairs_without_an_answer_are_no_links_where_a_format_cannot_say_so() -> None:
    graph = CausalGraph(("a", "b"), (GraphEdge("a", "b", directed=False, provenance="undecided"),))
    for name in KEEPS_ALL:
        assert through(name, graph) == graph
    for name in ("yaml", "dagitty"):
        assert through(name, graph) == CausalGraph(("a", "b"))
    assert '# no answer: ["a", "b"]' in WRITERS["yaml"](graph)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12),
        min_size=4,
        max_size=6,
        unique=True,
    ),
    st.sampled_from(["yaml", "dot", "dagitty", "json"]),
)
def test_any_names_come_back_or_are_refused(names: list[str], name: str) -> None:
    graph = dag(tuple(names))
    text = ""
    try:
        text = WRITERS[name](graph)
    except GraphFileError as refusal:
        refused = str(refusal)
    else:
        refused = ""
    if refused:
        assert name in ("dot", "dagitty") and "cannot write the name" in refused
        return
    assert same(READERS[name](text, file="x"), graph, provenance=name in KEEPS_ALL)


@given(st.text(st.sampled_from('\\"ab \n'), min_size=1, max_size=8))
def test_quoting_reads_back_or_is_refused(text: str) -> None:
    try:
        written = quoted(text, language="DOT")
    except GraphFileError:
        assert "\n" in text or "\\" in text
        return
    assert READERS["dot"](f"graph {{ {written} }}", file="x").nodes == (text,)


# --- YAML as in a spec ---


def test_the_graph_part_can_be_pasted_into_a_spec() -> None:
    spec = Graph(edges=("g -> d", "e -> d"), groups={"g": ("c", "a")}, latent=(("d", "f"),))
    graph = CausalGraph.from_spec(spec, "acdef")
    pasted = Graph.model_validate(yaml.safe_load(WRITERS["yaml"](graph))["graph"])
    assert set(CausalGraph.from_spec(pasted, "acdef").edges) == set(graph.edges)
    assert pasted.groups == spec.groups and pasted.latent == spec.latent


def test_a_group_that_a_spec_cannot_say_is_written_as_columns() -> None:
    inner = GraphEdge("a", "b", directed=True, provenance="given")
    torn = CausalGraph(
        tuple("abc"),
        (inner, GraphEdge("a", "c", directed=True, provenance="learned")),
        {"g": ("a", "b")},
    )
    found = through("yaml", torn)
    assert set(found.directed) == {("a", "b"), ("a", "c")} and not found.groups
    turned = CausalGraph(
        tuple("ab"), (inner,), {"g": ("b", "a")}
    )  # a spec would read the group as b -> a
    assert through("yaml", turned).directed == (("a", "b"),) and not through("yaml", turned).groups


def test_a_whole_spec_is_read_with_its_groups() -> None:
    path = Path(__file__).parents[2] / "specs" / "adult.yaml"
    assert len(read_graph(path).directed) > 10


# --- what others write ---

MISTAKES = {
    "g.dot": {
        "digraph {\n a -> }": "g.dot:2:7: got '}' where a name",
        "tree { a }": "g.dot:1:1: got 'tree' where the kind of graph",
        'digraph {\n\n "a -> b }': "g.dot:3:2: a quotation mark that is never closed",
        "digraph { a -> b\n b -> c\n c -> a }": (
            "g.dot:3:4: the arrows form a cycle: a -> b -> c -> a"
        ),
        "digraph { a -> b\n b -> a }": "g.dot:2:4: a second link between",
        "digraph {\n a -> a }": "g.dot:2:4: 'a' is linked to itself",
        "digraph {\n a -> b [dir=both]; a -> a [dir=both] }": "g.dot:2:23: 'a' is linked to",
        "pag {\n a @-> b }": "g.dot:2:4: a link @-> with a circle",
        "dag { U [latent]\n a -> U U -> b }": "g.dot:2:4: unseen node 'U' is not only a cause",
        "dag { U [latent]\n a <-> U }": "g.dot:2:4: unseen node 'U' is not only a cause",
        "digraph {\n a:n -> b }": "g.dot:2:3: a port",
        "digraph { a -> b": "got 'the end of the file'",
        "digraph {\n <b>x</b> }": "g.dot:2:2: got '<b>' where a name",
        "digraph { a [label=<<b>] }": "g.dot:1:20: unexpected '<'",
        "digraph { } x": "g.dot:1:13: 'x' after the graph's end",
    },
    "g.json": {"{\n": "g.json:2:1: this is not JSON", "{}": "expected keys nodes, edges"},
    "g.bif": {
        "\nvariable a { type discrete [ 2 ] { x, y }; }\nprobability ( a | b ) { table 1; }": (
            "g.bif:3:1: probability of a: unknown variable 'b'"
        ),
        "\nvariable a { type discrete [ 3 ] { x, y }; }": (
            "g.bif:2:30: variable a: 3 different values announced, got x, y"
        ),
    },
    "g.csv": {"a -> b": "g.csv: the format is told by the file's name"},
}


@pytest.mark.parametrize(
    ("file", "text"), [(file, text) for file, cases in MISTAKES.items() for text in cases]
)
def test_mistakes_name_the_file_the_line_and_what_is_allowed(
    file: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.write_text(text)
    with pytest.raises(SynthdpError) as caught:
        read_graph(path)
    assert MISTAKES[file][text] in str(caught.value) and file in str(caught.value)


YAML_MISTAKES = {
    "graph:\n  edges:\n  - a -> b\n  - b -> a": "g.yaml:4:5: graph.edges.#2: the graph has a cycle",
    "graph:\n  edges: [a -> b]\n  latnt: [[a, b]]": "g.yaml:3:10: graph.latnt: unknown key",
    "nodes: [a, b]\ngraph:\n  edges: [a -> c]": "unknown column 'c'",
    "graph: {edges: [a -> b], undirected: [[b, a]]}": (
        "g.yaml:1:39: graph.undirected.#1: b and a are joined already"
    ),
    "graph:\n  edges:\n  - a": "g.yaml:3:5",
    "- a": "this is no graph",
    "graph: [": "g.yaml:",
    "synthdp: 1\n": "g.yaml:1:1",
}


@pytest.mark.parametrize("text", YAML_MISTAKES)
def test_mistakes_in_yaml_are_told_as_in_specs(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        READERS["yaml"](text, file="g.yaml")
    assert YAML_MISTAKES[text] in str(caught.value)


PYTHONS = re.compile(r"[A-Z][a-z]+Error|Traceback|Exception")


@pytest.mark.parametrize(
    "text",
    [
        "dag { blood-type -> x }",
        "dag { a -> income-2010 }",
        "digraph { a.b-c -> x }",
        "digraph { x -> 2-hour }",
        'digraph { a"b" -> x }',
        'digraph { "a"b -> x }',
        "digraph { x -> -y }",
        "dag { a --> b }",
    ],
)
def test_no_name_falls_apart(text: str) -> None:
    with pytest.raises(GraphFileError, match=r"x:1:[0-9]+: (unexpected|.* side by side)") as caught:
        READERS["dot"](text, file="x")
    assert "quotes" in str(caught.value)


def test_a_minus_belongs_to_a_number() -> None:
    found = READERS["dot"]("digraph { -3 -> -.5; -.5 -> 2.5 }", file="x")
    assert found.directed == (("-3", "-.5"), ("-.5", "2.5"))


MEANINGS = {
    "chain, comment, subgraph": (
        (
            "digraph G { /* c */ rankdir=LR; edge [color=red]\n a -> b -> {c d} [penwidth=2] //"
            " x\n# y\n}"
        ),
        "a>b b>c b>d",
        "",
    ),
    "directions": (
        "digraph { a -> b [dir=back]; c -> d [dir=none]; edge [dir=both] a -> d }",
        "b>a c-d",
        "ad",
    ),
    "undirected": ("strict graph { a -- b; b -- c; }", "a-b b-c", ""),
    "dagitty": (
        (
            'dag {\nbb="0,0,1,1"\nA [exposure,pos="-2.2,-1.5"]\nB [outcome]\nL [latent]\nA -> B\nL'
            " -> {A B}\n}"
        ),
        "A>B",
        "AB",
    ),
    "dagitty arrows": ("pdag { a <- b; b <-> c; c -- d }", "b>a c-d", "bc"),
    "joined text": ('digraph { "a" + "" -> "b" }', "a>b", ""),
    "a latent with one effect says nothing": ("dag { U [latent] U -> a a -> b }", "a>b", ""),
    "a list of nodes": ("digraph { a, b -> c, d }", "a>c a>d b>c b>d", ""),
    "the same link twice": ("digraph { a -> b; a -> b; c -- d; d -- c }", "a>b c-d", ""),
    "a text in HTML": ("digraph { a [label=<<b>x</b> <i>y</i>>]; a -> b }", "a>b", ""),
    "a link that is not drawn": (
        "digraph { a -> b; c; b -> c [style=invis]; a -> c }",
        "a>b a>c",
        "",
    ),
    "ends without arrows": ("digraph { a -> b [arrowhead=none] }", "a-b", ""),
    "an end of an undirected link": ("graph { a -- b [dir=forward]; b -- c }", "a>b b-c", ""),
    "both ends": ("digraph { edge [dir=both]; a -> b [arrowtail=none]; c -> b }", "a>b", "bc"),
    "a line break of pydot": ('digraph { a -> b; "\\n"; "\\r\\n" }', "a>b", ""),
    "links without a graph": ("a -> b <- c", "a>b c>b", ""),
    "defaults of nodes": ("digraph { node [latent]; u; node [latent=0]; u -> {a b} }", "", "ab"),
    **{
        f"unseen: {mark}": (f"digraph {{ u [{mark}]; u -> a; u -> b; a -> b }}", "a>b", "ab")
        for mark in ("latent", "l", "unobserved", "u", "Latent=true", 'observed="no"', "latents")
    },
    **{
        f"seen: {mark}": (f"digraph {{ a [{mark}]; a -> b }}", "a>b", "")
        for mark in ("latent=false", "observed=yes", "e", "outcome", "adjusted", "selected")
    },
    "unseen: DoWhy's label": (
        'digraph { u [label="Unobserved Confounders"]; u -> a; u -> b }',
        "",
        "ab",
    ),
    "ends of causaliq": (
        "digraph { a -> b [sourceEndpoint=arrow, targetEndpoint=line];"
        " b -> c [sourceEndpoint=arrow] }",
        "b>a",
        "bc",
    ),
    "labels of numbers": ("digraph { 0 [label=x]; 1 [label=y]; 0 -> 1 }", "x>y", ""),
    "labels by Graphviz": ('strict digraph "" { node [label="\\N"]; 0 -> 1 }', "0>1", ""),
    "numbers without labels": ("digraph { 0 -> 1 }", "0>1", ""),
    "labels of names": ('digraph { a [label="A long name"]; a -> b }', "a>b", ""),
}


@pytest.mark.parametrize("case", MEANINGS)
def test_attributes_that_decide_are_read(case: str) -> None:
    text, links, latent = MEANINGS[case]
    found = READERS["dot"](text, file="x.dot")
    read = {f"{e.cause}{'>' if e.directed else '-'}{e.effect}" for e in found.edges}
    assert read == set(links.split())
    assert [set(names) for names in found.latent] == ([set(latent)] if latent else [])
    assert set("".join(found.nodes)) <= set("".join(links) + latent)


REFUSED = {
    "dag { a, b -> c }": "1:8: a comma between nodes",
    "dag { a -> b [dir=back] }": "1:9: dir belongs to DOT",
    "dag { u [latent=no] u -> a }": "1:10: latent='no': to DAGitty the node is unseen",
    "dag { a -> heart rate\n}": "1:18: 'rate' stands beside a link",
    "digraph { a [observed=maybe] a -> b }": "1:11: node 'a' has observed='maybe'",
    "digraph { a [style=invis]; a -> b }": "1:11: node 'a' is not drawn",
    "digraph { a -> b [arrowhead=tee] }": "1:13: arrowhead='tee'",
    "digraph { a -> b [dir=up] }": "1:13: dir='up'",
    "digraph { a -> b [arrowtail=normal] }": "1:13: an arrowtail, which is drawn with",
    "digraph { a -> b [lhead=cluster_0] }": "1:13: lhead='cluster_0'",
    "digraph { a -> b [edgetype=odd] }": "1:13: edgetype='odd'",
    "digraph { 0 [label=x]; 1 [label=x]; 0 -> 1 }": "1:11: two nodes are named 'x'",
    "digraph { a [label=<<b>x</b>] }": "1:20: unexpected '<'",
}


@pytest.mark.parametrize("text", REFUSED)
def test_attributes_that_are_not_understood_are_refused(text: str) -> None:
    with pytest.raises(GraphFileError) as caught:
        READERS["dot"](text, file="x")
    assert f"x:{REFUSED[text]}" in caught.value.message and caught.value.hint


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.json", '{"nodes": []}'),
        ("a.json", '{"nodes": 1, "edges": [], "groups": {}, "latent": []}'),
        ("a.json", '{"nodes": ["a"], "edges": [[]], "groups": {}, "latent": []}'),
        ("a.json", '{"nodes": [], "edges": [], "groups": {}, "latent": [], "no_answer": [[1]]}'),
        ("a.json", "[1]"),
        ("a.json", '{"directed": true, "nodes": [{"id": "a"}], "links": [{"source": "a"}]}'),
        ("a.json", '{"directed": true, "nodes": [{"id": []}], "links": []}'),
        ("a.json", '{"directed": true, "nodes": ["a"], "links": []}'),
        ("a.json", '{"nodes": [], "links": []}'),
        ("a.json", '{"directed": true, "nodes": [{"id": 1}, {"id": "1"}], "links": []}'),
        ("a.gml", "graph [ node [ id 0 ] node [ id 0 ] ]"),
        ("a.gml", "graph [ edge [ source 0 ] ]"),
        ("a.gml", "graph [ node [ id 0 ] edge [ source 0 target 7 ] ]"),
        ("a.gml", "graph [ node 5 ]"),
        ("a.gml", "nothing"),
        ("a.txt", "a --> b"),
        ("a.txt", "Graph Nodes:\na;b\n\nGraph Edges:\n1. a -> b\n"),
        ("a.txt", "Graph Nodes:\na;b\n\nGraph Edges:\n1. a --> c\n"),
        ("a.txt", "Graph Nodes:\na;b\n\nGraph Edges:\n1. a <-- b and more\n"),
    ],
)
def test_no_message_is_a_python_error(file: str, text: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(SynthdpError) as caught:
        read_graph(tmp_path / file)
    assert not PYTHONS.search(str(caught.value)) and caught.value.hint
    assert file.endswith(".json") or re.search(rf"{file}:[0-9]+:[0-9]+: ", str(caught.value))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("<graphml><graph><node/></graph></graphml>", "1:17: a node has no name"),
        ("<graphml><graph><node id='a'/><edge source='a'/></graph></graphml>", "1:31: a link"),
        ("<graphml><graph/><graph/></graphml>", "1:18: a second graph"),
        ("<graphml><graph><hyperedge/></graph></graphml>", "1:17: a hyperedge"),
        ("<graphml>", "this is not XML"),
        ("<a/>", "holds no graph"),
        ("<!DOCTYPE x [<!ENTITY e 'f'>]><graphml/>", "declares types or entities"),
    ],
)
def test_mistakes_in_graphml(file: str, text: str) -> None:
    pytest.importorskip("defusedxml", reason="the extra [codebook] is not installed")
    with pytest.raises(GraphFileError) as caught:
        READERS["graphml"](file, file="x")
    assert text in str(caught.value) and caught.value.hint
    assert not PYTHONS.search(str(caught.value))


def test_defaults_of_graphml() -> None:
    pytest.importorskip("defusedxml", reason="the extra [codebook] is not installed")
    text = """<graphml><key id="o" for="node" attr.name="observed"><default>no</default></key>
    <graph edgedefault="directed"><node id="u"/><node id="a"><data key="o">yes</data></node>
    <node id="b"><data key="o">yes</data></node><edge source="u" target="a"/>
    <edge source="u" target="b"/><edge source="a" target="b" directed="false"/></graph></graphml>"""
    found = READERS["graphml"](text, file="x")
    assert found.latent == (("a", "b"),) and found.undirected == (("a", "b"),)


def test_arrows_of_yed() -> None:
    pytest.importorskip("defusedxml", reason="the extra [codebook] is not installed")
    arrows = (
        '<data key="e"><y:PolyLineEdge><y:Arrows source="{}" target="{}"/></y:PolyLineEdge></data>'
    )
    node = '<node id="n{}"><data key="d"><y:NodeLabel>{}</y:NodeLabel></data></node>'
    links = (("n0", "n1", "none", "standard"), ("n1", "n2", "none", "none"))
    edges = (
        f'<edge source="{a}" target="{b}">{arrows.format(*ends)}</edge>' for a, b, *ends in links
    )
    nodes = "".join(node.format(i, name) for i, name in enumerate(("age", "dose", "heart rate")))
    graph = f'<graphml><graph edgedefault="directed">{nodes}{"".join(edges)}</graph></graphml>'
    found = READERS["graphml"](graph, file="x")
    assert found.directed == (("age", "dose"),) and found.undirected == (("dose", "heart rate"),)
    gml = """Creator "yFiles" graph [ directed 1 node [ id 0 label "a" ] node [ id 1 label "b" ]
    node [ id 2 label "c" ] edge [ source 0 target 1 graphics [ targetArrow "standard" ] ]
    edge [ source 1 target 2 graphics [ fill "#000000" ] ] ]"""
    found = READERS["gml"](gml, file="x")
    assert found.directed == (("a", "b"),) and found.undirected == (("b", "c"),)


@pytest.mark.parametrize(
    ("nodes", "links", "names", "latent"),
    [
        ("Dose (mg);Pulse (1/min)", "Dose (mg) --> Pulse (1/min)", "Dose (mg);Pulse (1/min)", 0),
        ("Born, place;(U);[kept]", "U --> Born, place\n2. U --> kept", "Born, place;kept", 1),
        ("b,(L),c (%)", "L --> b\n2. L --> c (%)", "b;c (%)", 1),
    ],
)
def test_names_of_tetrad_keep_their_signs(nodes: str, links: str, names: str, latent: int) -> None:
    text = f"Graph Nodes:\n{nodes}\n\nGraph Edges:\n1. {links}\n"
    found = READERS["tetrad"](text, file="x")
    pair = tuple(names.split(";"))
    assert found.nodes == pair
    assert (found.latent if latent else found.directed) == (pair,)


@pytest.mark.parametrize("name", ["yaml", "dot", "dagitty", "json", "bif", "gml", "txt", "graphml"])
def test_the_mark_of_a_windows_editor_is_no_letter(name: str, tmp_path: Path) -> None:
    two = "variable {} {{ type discrete [ 2 ] {{ x, y }}; }}\n"
    texts = {
        "bif": two.format("a") + two.format("b") + "probability (a) {} probability (b|a) {}",
        "gml": "graph [ directed 1 node [ id a ] node [ id b ] edge [ source a target b ] ]",
        "txt": "Graph Nodes:\na;b\n\nGraph Edges:\n1. a --> b\n",
        "graphml": '<?xml version="1.0"?><graphml><graph edgedefault="directed"><node id="a"/>'
        '<node id="b"/><edge source="a" target="b"/></graph></graphml>',
    }
    given = CausalGraph(("a", "b"), (GraphEdge("a", "b", directed=True, provenance="given"),))
    text = texts[name] if name in texts else WRITERS[name](given)
    (tmp_path / f"g.{name}").write_text(f"\ufeff{text}", encoding="utf-8")
    assert read_graph(tmp_path / f"g.{name}").directed == (("a", "b"),)


def test_no_message_is_as_long_as_a_name() -> None:
    name = "a" * 200_000
    text = f"Graph Nodes:\n{name}\n\nGraph Edges:\n1. {name} --> b\n"
    with pytest.raises(GraphFileError) as caught:
        READERS["tetrad"](text, file="x")
    assert "nodes are aaa" in str(caught.value) and len(str(caught.value)) < 10_000


def test_a_file_of_too_many_words_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synthdp.graph.formats.draft.Cursor.max_tokens", 9)
    assert READERS["dot"]("digraph { a b c d e f }", file="x").nodes == tuple("abcdef")
    with pytest.raises(GraphFileError, match=r"x:1:25: a file that is too long"):
        READERS["dot"]("digraph { a b c d e f g }", file="x")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(GraphFileError, match="cannot be read"):
        read_graph(tmp_path / "nowhere.dot")
    os.mkfifo(tmp_path / "pipe.dot")  # would wait for a writer
    with pytest.raises(GraphFileError, match="not a plain file"):
        read_graph(tmp_path / "pipe.dot")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(GraphFileError, match="nested too deeply"):
        read_graph(tmp_path / "deep.json")
    (tmp_path / "latin.dot").write_bytes(b"digraph {\n \xe4 }")
    with pytest.raises(GraphFileError, match=r"latin\.dot:2:2: is not UTF-8"):
        read_graph(tmp_path / "latin.dot")
