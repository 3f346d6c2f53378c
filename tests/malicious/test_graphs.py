"""Graph files of strangers: read in bounded time and memory, or refused with file, line and what is
allowed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.check

TWO = "variable a { type discrete [ 2 ] { x, y }; }\n"
MANY = "".join(f"variable v{i} {{ type discrete [ 2 ] {{ x, y }}; }}\n" for i in range(60))


def parents(count: int) -> str:
    return (
        f"{MANY}probability ( v0 | {', '.join(f'v{i}' for i in range(1, count + 1))} ) {{ default"
        " 0.5, 0.5; }\n"
    )


SLOW = {
    "spaces after a bracket": ("x.bif", f"{TWO}probability ({' ' * 20_000}"),
    "spaces before a bar": ("x.bif", f"{TWO}probability ( a{' ' * 20_000}, "),
    "spaces after a keyword": ("x.bif", f"{TWO}variable{' ' * 20_000}"),
    "blocks that are never closed": ("x.bif", "variable a { type discrete [ 2 ] { x\n" * 4000),
    "tables that are never closed": ("x.bif", f"{TWO}{'probability ( a ) { table 1,' * 4000}"),
    "brackets without end": ("x.bif", f"{TWO}probability ( a ) {{ {'(' * 50_000} }}"),
    "an unknown name of 50,000 letters": (
        "x.bif",
        f"{TWO}probability ( {'{' * 50_000} a ) {{ table 0.5, 0.5; }}",
    ),
    "a long name told twice": (
        "x.bif",
        f"{TWO}{f'probability ( {chr(98) * 50_000} ) {{ table 0.5, 0.5; }}' * 2}",
    ),
    "a long variable that is not discrete": ("x.bif", f"variable {'b' * 50_000} {{ }} }}"),
    "a comment that is never closed": ("x.dot", "digraph { " + "/* " * 50_000),
    "backslashes without end": ("x.dot", 'digraph { "' + "\\" * 100_001),
    "a name as long as the file": ("x.dot", "d" + "9" * 500_000),
    "a chain that is told backwards": (
        "x.dot",
        "digraph { "
        + " ".join(f"n{i} -> n{i + 1};" for i in reversed(range(20_000)))
        + " n20000 -> n19999 }",
    ),
    "lists in each other": ("x.gml", "graph [ " + "x [ " * 100_000),
    "a link of spaces": ("x.txt", f"Graph Nodes:\na\n\nGraph Edges:\n1. a{' ' * 100_000}--> b"),
    "a section of spaces": ("x.txt", f"Graph{' ' * 100_000}"),
    "elements in each other": ("x.graphml", "<graphml><graph>" + "<x>" * 100_000),
    "a text in a thousand pieces": (
        "x.graphml",
        f"<graphml><key id='k'/><graph><data key='k'>{'a&#38;' * 200_000}</data></graph>",
    ),
    "entities in entities": (
        "x.graphml",
        '<!DOCTYPE x [<!ENTITY a "ha">'
        + "".join(f'<!ENTITY a{i} "{f"&a{i - 1 or str()};" * 10}">' for i in range(1, 12))
        + "]><graphml>&a11;</graphml>",
    ),
}


def crossed(link: str) -> str:
    """Two thousand nodes, each linked to two thousand others."""
    left, right = (" ".join(f"{side}{i}" for i in range(2000)) for side in "ab")
    return f"{{ {{{left}}} {link} {{{right}}} }}"


LARGE = {
    "31 parents": ("x.bif", parents(31)),
    "25 parents": ("x.bif", parents(25)),
    "59 parents": ("x.bif", parents(59)),
    "many tables of 4 MB": (
        "x.bif",
        MANY
        + "".join(parents(18).removeprefix(MANY).replace("v0 |", f"v{i} |") for i in range(19, 60)),
    ),
    "too many arrows": ("x.dot", "digraph " + crossed("->")),
    "too many unseen causes": ("x.dot", "graph " + crossed("<->")),
}
BROKEN = {
    "nested DOT": ("x.dot", "digraph { " + "subgraph { " * 20_000),
    "nested DAGitty": ("x.dagitty", "dag { " + "{ " * 20_000),
    "names put together": ("x.dot", "digraph { " + '"a" + ' * 20_000 + '"b" }'),
    "70 parents of one value": (
        "x.bif",
        "".join(f"variable v{i} {{ type discrete [ 1 ] {{ x }}; }}\n" for i in range(71))
        + f"probability ( v0 | {', '.join(f'v{i}' for i in range(1, 71))} ) {{ default 1; }}",
    ),
    "a number of a thousand digits": (
        "x.bif",
        f"variable a {{ type discrete [ {'9' * 5000} ] {{ x, y }}; }}",
    ),
    "a name without letters": ("x.dagitty", 'dag { "a" "b" "a" -> "" -> "b" }'),
}


def shown(synthdp: Callable[..., Any], folder: Path, file: tuple[str, str]) -> Any:
    path = folder / file[0]
    path.write_text(file[1])
    return synthdp("graph", "show", path, megabytes=400, seconds=5)


@pytest.mark.parametrize("name", SLOW)
def test_no_file_keeps_the_reader_busy(
    synthdp: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    ended = shown(synthdp, tmp_path, SLOW[name])
    assert ended.code == 2 and ended.declared and len(ended.printed) < 10_000, (
        ended.code,
        ended.printed[-2000:],
    )


@pytest.mark.parametrize("name", LARGE)
def test_no_file_asks_for_more_memory_than_it_may(
    synthdp: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    ended = shown(synthdp, tmp_path, LARGE[name])
    assert ended.code == 2 and ended.declared and "hint:" in ended.printed.lower(), (
        ended.code,
        ended.printed[-2000:],
    )


@pytest.mark.parametrize("name", BROKEN)
def test_no_file_ends_in_an_internal_error(
    synthdp: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    ended = shown(synthdp, tmp_path, BROKEN[name])
    assert ended.code == (0 if name == "names put together" else 2) and ended.declared, (
        ended.code,
        ended.printed[-2000:],
    )
