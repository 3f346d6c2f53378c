"""The picture: well-formed, self-contained, escaped, and provenance told apart twice over."""

import re
from collections.abc import Callable
from itertools import combinations, pairwise
from xml.etree import ElementTree

import networkx as nx
import numpy as np
import pytest

from benchmarks.bif import BayesianNetwork
from synthdp.errors import SynthdpError
from synthdp.graph import (
    NOTES,
    PROVENANCES,
    SHAPES,
    STYLES,
    CausalGraph,
    GraphEdge,
    PagLink,
    PictureSettings,
    arrows,
)

SVG = "{http://www.w3.org/2000/svg}"


def chain(size: int) -> CausalGraph:
    names = tuple(f"column {i}" for i in range(size))
    edges = tuple(
        GraphEdge(
            names[i // 2], names[i], directed=True, provenance=PROVENANCES[i % len(PROVENANCES)]
        )
        for i in range(1, size)
    )
    return CausalGraph(names, edges, latent=(names[:2],) if size > 1 else ())


def as_arrows(graph: CausalGraph) -> str:
    """Boxes and arrows, however many there are."""
    return arrows(graph, graph.edges, title="A graph")


def as_rows(svg: str, kind: str) -> int:
    """Marks of a kind in a matrix; the legend has one of them."""
    return len(re.findall(rf'<path class="{kind}" transform', svg)) - 1


def test_every_node_and_link_is_drawn_once() -> None:
    graph = chain(50)
    root = ElementTree.fromstring(as_arrows(graph))
    labels = [t.text for t in root.iter(f"{SVG}text")]
    assert all(labels.count(n) == 1 for n in graph.nodes)
    drawn = [p for p in root.iter(f"{SVG}path") if p.get("class") in PROVENANCES]
    assert len(drawn) == len(graph.edges)
    assert all(p.get("marker-end") == f"url(#head-{p.get('class')})" for p in drawn)


def test_boxes_do_not_overlap() -> None:
    root = ElementTree.fromstring(as_arrows(chain(40)))
    boxes = [
        tuple(float(r.get(k, "0")) for k in ("x", "y", "width", "height"))
        for g in root.iter(f"{SVG}g")
        for r in g.iter(f"{SVG}rect")
    ]
    assert len(boxes) == 40
    for i, (x, y, w, h) in enumerate(boxes):
        assert not any(
            x < x2 + w2 and x2 < x + w and y < y2 + h2 and y2 < y + h
            for x2, y2, w2, h2 in boxes[i + 1 :]
        )


def test_styles_differ_in_colour_or_dashes_and_never_in_colour_alone() -> None:
    looks = [(s.dashes, s.width) for s in STYLES.values()]
    assert set(STYLES) == set(PROVENANCES) and len(set(looks)) == len(looks)


def test_names_cannot_break_out() -> None:
    evil = '</title><script>alert("x")</script>&\x07'
    graph = CausalGraph((evil, "b"), (GraphEdge(evil, "b", directed=True, provenance="given"),))
    text = graph.to_svg(title=evil)
    root = ElementTree.fromstring(text)
    assert "<script" not in text and not list(root.iter(f"{SVG}script"))
    assert evil[:-1] in [t.text for t in root.iter(f"{SVG}text")]
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "") and "href" not in text


def test_it_describes_itself() -> None:
    root = ElementTree.fromstring(chain(3).to_svg(title="My graph"))
    assert root.findtext(f"{SVG}title") == "My graph"
    assert "column 0 causes column 1" in (root.findtext(f"{SVG}desc") or "")
    assert "share an unseen cause" in (root.findtext(f"{SVG}desc") or "")


def test_many_open_pairs_are_counted_and_small_graphs_draw() -> None:
    names = tuple("abcdef")
    pairs = tuple(
        GraphEdge(a, b, directed=False, provenance="undecided")
        for a in names
        for b in names
        if a < b
    )
    assert "15 more pairs without enough evidence" in CausalGraph(names, pairs).to_svg()
    assert CausalGraph(names, pairs[:6]).to_svg().count('class="undecided"') == 6
    for graph in (CausalGraph(("a",)), CausalGraph(())):
        ElementTree.fromstring(graph.to_svg())


def test_unseen_causes_of_many_columns_are_told_and_not_drawn() -> None:
    names = tuple(f"c{i}" for i in range(400))
    svg = CausalGraph(names, latent=(names, names[:200], names[:3])).to_svg()
    assert svg.count('class="latent"') == 3
    assert "columns each, not drawn: 2" in svg
    assert len(svg) < 300_000
    assert CausalGraph(names[:16], latent=(names[:16],)).to_svg().count('class="latent"') == 120


def points(path: str) -> list[tuple[float, float]]:
    """Points along a path of cubic curves."""
    corners = [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", path)]
    found, at = [], corners[0]
    for one, two, end in zip(corners[1::3], corners[2::3], corners[3::3], strict=True):
        for t in np.linspace(0, 1, 40):
            weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
            found.append(
                tuple(
                    sum(w * p[k] for w, p in zip(weights, (at, one, two, end), strict=True))
                    for k in (0, 1)
                )
            )
        at = end
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["cancer", "asia", "child", "alarm"])
def test_no_line_runs_through_a_box(name: str, network: Callable[[str], BayesianNetwork]) -> None:
    """Of 5, 8, 20 and 37 columns, with unseen causes and pairs that got no answer."""
    graph = network(name).graph()
    free = [
        p
        for p in combinations(graph.nodes, 2)
        if not graph.dag.has_edge(*p) and not graph.dag.has_edge(*p[::-1])
    ]
    layer = {n: i for i, names in enumerate(nx.topological_generations(graph.dag)) for n in names}
    open_pairs = tuple(
        GraphEdge(a, b, directed=False, provenance="undecided")
        for a, b in free[:: len(free) // 4]
        if layer[a] != layer[b]
    )
    drawn = CausalGraph(
        graph.nodes, (*graph.edges, *open_pairs), latent=tuple(free[1 :: len(free) // 3])
    )
    root = ElementTree.fromstring(as_arrows(drawn))
    boxes = [
        tuple(float(r.get(k, "0")) for k in ("x", "y", "width", "height"))
        for g in root.iter(f"{SVG}g")
        for r in g.iter(f"{SVG}rect")
    ]
    lines = [points(p.get("d", "")) for p in root.iter(f"{SVG}path") if p.get("class")]
    assert len(lines) == len(drawn.edges) + len(drawn.confounded)
    hit = [
        (x, y)
        for line in lines
        for x, y in line
        for left, top, w, h in boxes
        if left + 1 < x < left + w - 1 and top + 1 < y < top + h - 1
    ]
    assert hit == []


def test_where_causes_may_be_unseen_links_have_their_marks() -> None:
    """Each end has its own mark, and no two ends at one side of a box lie on each other."""
    links = [("dose", "pain"), ("age", "dose"), ("age", "pain"), ("pain", "sleep")]
    graph = CausalGraph(
        ("age", "dose", "pain", "sleep"),
        tuple(GraphEdge(a, b, directed=True, provenance="learned") for a, b in links),
        pag=(
            PagLink("age", "dose", "circle", "arrow"),
            PagLink("age", "pain", "tail", "arrow"),
            PagLink("pain", "sleep", "arrow", "arrow"),
        ),
    )
    root = ElementTree.fromstring(as_arrows(graph))
    drawn = {}
    for path in root.iter(f"{SVG}path"):
        if path.get("class") == "learned":
            words = path.findtext(f"{SVG}title")
            drawn[words] = (path.get("marker-start"), path.get("marker-end"))
    assert drawn == {
        "dose to pain: learned": (None, "url(#head-learned)"),
        "age o-> dose: learned": ("url(#ring-learned)", "url(#head-learned)"),
        "age --> pain: learned": (None, "url(#head-learned)"),
        "pain <-> sleep: learned": ("url(#back-head-learned)", "url(#head-learned)"),
    }
    known = {marker.get("id") for marker in root.iter(f"{SVG}marker")}
    assert known == {"head-learned", "back-head-learned", "ring-learned"}
    starts = [p.get("d", "").split()[0] for p in root.iter(f"{SVG}path") if p.get("class")]
    assert len(set(starts)) == 4
    words = " ".join(root.itertext())
    assert all(note in words for note in NOTES) and "age o-> dose (learned)" in words


def test_a_matrix_says_where_the_marks_are() -> None:
    names = tuple(f"c{i}" for i in range(9))
    edges = [
        GraphEdge(a, b, directed=True, provenance="learned") for a, b in combinations(names, 2)
    ]
    graph = CausalGraph(names, tuple(edges), pag=(PagLink("c0", "c1", "circle", "arrow"),))
    assert len(edges) > PictureSettings().max_arrows and "pag in graph.json" in graph.to_svg()


def test_every_arrow_stays_inside_the_picture() -> None:
    """A chain with many arrows that skip layers, which are routed below and above the boxes."""
    names = tuple("abcdefgh")
    edges = tuple(
        GraphEdge(a, b, directed=True, provenance="given")
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    )
    svg = as_arrows(CausalGraph(names, edges))
    height = float(re.search(r'viewBox="0 0 \d+ (\d+)"', svg)[1])
    paths = re.findall(r' d="([^"]+)"', svg.split("</defs>")[1])
    ordinates = [
        float(y) for path in paths for _, y in re.findall(r"(-?[\d.]+)[ ,](-?[\d.]+)", path)
    ]
    assert len(ordinates) > 50
    legend = 20 + 28  # one line and the margin
    assert min(ordinates) >= 0
    assert max(ordinates) <= height - legend


def test_more_arrows_than_a_reader_can_follow_become_a_matrix() -> None:
    most = PictureSettings().max_arrows
    small, large = chain(most + 1), chain(most + 2)
    assert "<path class" in small.to_svg() and 'marker-end="url(#head-' in small.to_svg()
    svg = large.to_svg()
    root = ElementTree.fromstring(svg)
    labels = [t.text for t in root.iter(f"{SVG}text")]
    assert all(labels.count(name) == 2 for name in large.nodes)  # a row and a column
    for kind in PROVENANCES:
        assert as_rows(svg, kind) == sum(e.provenance == kind for e in large.edges)
    assert as_rows(svg, "latent") == 2  # both cells of the pair
    assert len(set(SHAPES.values())) == len(SHAPES)


def test_a_link_without_direction_is_in_both_cells() -> None:
    names = tuple(f"c{i}" for i in range(30))
    links = [
        GraphEdge(a, b, directed=i > 0, provenance="learned")
        for i, (a, b) in enumerate(pairwise(names))
    ]
    assert as_rows(CausalGraph(names, tuple(links)).to_svg(), "learned") == len(links) + 1


def test_a_wide_matrix_leaves_out_what_is_no_cause_or_no_effect() -> None:
    names = tuple(f"c{i}" for i in range(222))
    links = [
        GraphEdge(names[i % 20], names[i], directed=True, provenance="given")
        for i in range(20, 200)
    ]
    svg = CausalGraph(names, tuple(links)).to_svg()
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg)
    assert size and int(size[1]) < 2000 and int(size[2]) < 500
    assert "22 columns without a link are not shown" in svg


def test_around_a_column() -> None:
    graph = CausalGraph(
        ("a", "b", "c", "d", "e"),
        tuple(
            GraphEdge(x, y, directed=True, provenance="given")
            for x, y in (("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("d", "e"))
        ),
    )
    near = graph.around("b")
    assert near.nodes == ("a", "b", "c")
    assert {e.pair for e in near.edges} == {
        ("a", "b"),
        ("b", "c"),
    }
    assert {e.pair for e in graph.around("b", depth=2).edges} == {
        *near.directed,
        ("a", "c"),
        ("c", "d"),
    }
    with pytest.raises(SynthdpError, match="no column 'cc'") as error:
        graph.around("cc")
    assert "c" in str(error.value.hint)
