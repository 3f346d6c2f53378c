"""What `fuzz` does with files of strangers, graphs and bundles: each is read in a child with little
processor time and memory.

An input that takes more of either than it may, or that ends in anything but a value or a declared
error, is a find.
"""

import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from hypothesis import strategies as st

from synthdp.bundle import DEPLOYMENT, FILES, sha256, write_bundle
from synthdp.errors import SynthdpError, printable
from synthdp.files import SUMS
from synthdp.graph import WRITERS, CausalGraph, GraphEdge, read_graph
from synthdp.verify import inspect_bundle

SECONDS, MEGABYTES = (
    10,
    600,
)  # of one input: processor time, and memory beyond what is there already
FOLDER = Path(tempfile.mkdtemp(prefix="synthdp-fuzz-"))
Target = Callable[[bytes], str]

EDGES = tuple(GraphEdge(a, b, directed=True, provenance="given") for a, b in ("ab", "ac", "bd"))
GRAPH = CausalGraph(tuple("abcd"), EDGES, {}, (("c", "d"),))
NETWORK = """network unknown {
}
variable a {
  type discrete [ 2 ] { x, y };
}
variable b {
  type discrete [ 2 ] { x, y };
}
probability ( a ) {
  table 0.5, 0.5;
}
probability ( b | a ) {
  (x) 0.5, 0.5;
  (y) 0.25, 0.75;
}
"""
GML = """graph [
  directed 1
  node [ id 0 label "a" ]
  node [ id 1 label "b" graphics [ x 1.5 ] ]
  node [ id 2 label "u" observed "no" ]
  edge [ source 0 target 1 ]
  edge [ source 2 target 0 graphics [ targetArrow "standard" ] ]
  edge [ source 2 target 1 ]
]
"""
GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml><key id="d0" for="node" attr.name="label"><default>x</default></key>
<graph edgedefault="directed"><node id="a"/><node id="b"><data key="d0">y</data></node>
<edge source="a" target="b"/></graph></graphml>
"""
TETRAD = """Graph Nodes:
a;b;(u)

Graph Edges:
1. a --> b
2. u --> a [edge]:0.9;
3. u --> b dd nl
"""
NODE_LINK = """{"directed": true, "multigraph": false, "graph": {},
"nodes": [{"id": "a"}, {"id": "b", "observed": true}, {"id": "u", "latent": true}],
"links": [{"source": "a", "target": "b"}, {"source": "u", "target": "b", "weight": 1.5}]}
"""
SEEDS = {"bif": NETWORK, "gml": GML, "graphml": GRAPHML, "tetrad": TETRAD, "json": NODE_LINK}
SUFFIXES = {f: f".{f}" for f in ("bif", "dot", "dagitty", "gml", "graphml", "json")}
SUFFIXES["tetrad"] = ".txt"
SCRAPS = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    "|",
    "->",
    "--",
    "<->",
    '"',
    "\\",
    "/*",
    "#",
    " ",
    "\n",
    "+",
    "=",
    "\0",
    "\u202e",
    "9" * 400,
]
SCRAPS += [
    "variable ",
    "probability (",
    "type discrete [",
    "node [",
    "<node>",
    "<!DOCTYPE x [",
    "&quot;",
    "1. a --> ",
    "default ",
    "subgraph {",
    "1e999",
    "-1",
    "nan",
]
TIMES = [1, 1, 2, 50, 3000]
PLACES = st.integers(0, 10**6)


# --- limits ---


def limited(act: Target, data: bytes, *, seconds: int = SECONDS, megabytes: int = MEGABYTES) -> str:
    """What `act` says of `data`, from a child that may take so much; anything else is an
    `AssertionError`.
    """
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        _in_child(act, data, tell, seconds, megabytes << 20)
    os.close(tell)
    with os.fdopen(told, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code != -signal.SIGXCPU, f"an input that takes more than {seconds} s"
    assert code == 0, f"an input that ends with {code}: {said[-2000:]}"
    return said


def _in_child(act: Target, data: bytes, tell: int, seconds: int, memory: int) -> None:
    code = 1
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory,) * 2)
        spent = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
        resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, spent + seconds + 5))
        signal.alarm(20 * seconds)  # for what waits
        said = act(data)
        code = 0
    except BaseException as found:
        said = f"{type(found).__name__}: {found!r}"
    finally:
        os.write(tell, said.encode(errors="replace")[-4000:])
        os._exit(code)


# --- graphs ---


def _read(data: bytes, suffix: str) -> str:
    path = FOLDER / f"graph{suffix}"
    path.write_bytes(data)
    try:
        WRITERS["yaml"](read_graph(path))
        return "accepted"
    except SynthdpError as mistake:
        told, code = printable(str(mistake)), mistake.exit_code
    assert code == 2, f"exit code {code}"
    assert len(told) < 100_000, "an error of a hundred thousand letters"
    return "refused"


def graph_target(name: str) -> Target:
    """Read a graph file, or tell the mistake."""
    return lambda data: limited(lambda content: _read(content, SUFFIXES[name]), data)


def _seed(name: str) -> str:
    return SEEDS[name] if name in SEEDS else WRITERS[name](GRAPH)


@st.composite
def texts(draw: st.DrawFn, seed: str) -> bytes:
    """A text of which pieces were left out, put elsewhere or repeated, and into which scraps were
    put.
    """
    text = seed
    for _ in range(draw(st.sampled_from([1, 1, 2, 4]))):
        at, end = sorted((draw(PLACES) % (len(text) + 1), draw(PLACES) % (len(text) + 1)))
        piece = (
            draw(st.sampled_from(SCRAPS)) if draw(st.booleans()) else text[at : min(end, at + 200)]
        )
        kept = text[end:] if draw(st.integers(0, 3)) == 0 else text[at:]
        text = (text[:at] + piece * draw(st.sampled_from(TIMES)) + kept)[:1_000_000]
    data = text.encode("utf-8", errors="replace")
    return data[: draw(PLACES) % (len(data) + 1)] if draw(st.integers(0, 9)) == 0 else data


# --- bundles ---


@lru_cache(maxsize=1)
def made() -> Path:
    """A good bundle, verified once, so that children need not compose its events again."""
    path = Path(__file__).parent.parent / "bundle" / "conftest.py"
    found = importlib.util.spec_from_file_location("bundle_for_fuzz", path)
    assert found is not None and found.loader is not None
    module: ModuleType = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    module.GROUPS = (1,)
    release = module.make_release(FOLDER)
    folder = write_bundle(FOLDER / "made", release.content, ledger=release.ledger, force=False)
    assert inspect_bundle(folder).ok
    return folder


def _verify(data: bytes) -> str:
    name, _, content = data.partition(b"\n")
    folder = FOLDER / "spoilt"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made(), folder)
    (folder / name.decode()).write_bytes(content)
    (folder / SUMS).write_text(
        "".join(f"{sha256(folder / n)}  {n}\n" for n in sorted((*FILES, DEPLOYMENT)))
    )
    report = inspect_bundle(folder)
    assert all(len(p) < 100_000 for p in report.problems), "a problem of a hundred thousand letters"
    return "accepted" if report.ok else "refused"


def bundle_target(data: bytes) -> str:
    """Verify a bundle with one other file (its name, a line break, its content), its sums mended:
    problems are found, and none is raised.
    """
    made()
    return limited(_verify, data)


@st.composite
def bundles(draw: st.DrawFn) -> bytes:
    """A file of a good bundle that was changed, as text or as a tree."""
    name = draw(
        st.sampled_from(
            [
                *FILES,
                "spec.yaml",
                "marginals.json",
                "privacy/ledger.json",
                "privacy/certificate.json",
                "graph.json",
            ]
        )
    )
    content = (made() / name).read_bytes()
    if name.endswith(".json") and draw(st.booleans()):
        tree = json.loads(content)
        _change(draw, tree)
        changed = json.dumps(tree).encode()
    else:
        changed = (
            draw(texts(content.decode("latin-1")))
            .decode("utf-8", errors="replace")
            .encode("latin-1", errors="replace")
        )
    return name.encode() + b"\n" + changed


def _change(draw: st.DrawFn, tree: object) -> None:
    """One value, somewhere below, becomes another."""
    holder = tree
    while True:
        keys = (
            list(holder)
            if isinstance(holder, dict)
            else range(len(holder))
            if isinstance(holder, list)
            else []
        )
        if not keys:
            return
        key = keys[draw(PLACES) % len(keys)]
        below = holder[key]  # type: ignore[index]
        if not isinstance(below, dict | list) or not below or draw(st.integers(0, 4)) == 0:
            other = draw(
                st.sampled_from(
                    [
                        None,
                        True,
                        -1,
                        0,
                        1,
                        2.5,
                        1e-300,
                        1e300,
                        10**18,
                        10**399,
                        "",
                        "x",
                        "9" * 500,
                        [],
                        {},
                        [below] * 300,
                    ]
                )
            )
            holder[key] = other  # type: ignore[index]
            return
        holder = below


def good(name: str) -> bytes:
    """An input of target `name` that is accepted."""
    return (
        b"spec.yaml\n" + (made() / "spec.yaml").read_bytes()
        if name == "bundle"
        else _seed(name).encode()
    )


TARGETS: dict[str, Target] = {
    **{name: graph_target(name) for name in SUFFIXES},
    "bundle": bundle_target,
}
STRATEGIES: dict[str, st.SearchStrategy[bytes]] = {
    **{
        name: texts(_seed(name)) | texts(_seed(name)) | texts(_seed(name)) | st.binary(max_size=300)
        for name in SUFFIXES
    },
    "bundle": bundles(),
}
