"""`python -m tests.malicious.fuzz TARGET ... [--coverage]`: made-up input for FUZZ_SECONDS (600)
each, counted as lines of JSON. Targets: spec, csv, bundle, and each format of graph files.

Hypothesis changes a valid spec or table as a tree or a grid, then as text, then as bytes. With
`--coverage` atheris (optional: `pip install atheris`) lets libFuzzer change bytes towards branches
of synthdp that were not taken yet. Whatever comes in, the only way out is a value that keeps its
promises, or a declared error that shows no cell.
"""

# ruff: noqa: E402
import contextlib
import copy
import json
import math
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

ROOT = Path(__file__).parent.parent.parent
SEEDS = [ROOT / "tests" / "spec" / "complete_spec.yaml", *sorted((ROOT / "specs").glob("*.yaml"))]
CANARY = "zq-canary-9182"
SLOWEST = 20.0  # seconds that one input may take
BATCH = 125  # inputs between two looks at the clock
PHASES = tuple(Phase)  # of Hypothesis
Target = Callable[[bytes], str]

with contextlib.suppress(ImportError):
    if "--coverage" in sys.argv:
        import atheris

        with atheris.instrument_imports(
            include=[
                "synthdp.spec",
                "synthdp.data.domain",
                "synthdp.privacy.readers.files",
                "synthdp.privacy.source",
            ]
        ):
            import synthdp.privacy.source
            import synthdp.spec.load.loader  # noqa: F401

from synthdp.bundle import (
    public_spec,
    spec_yaml,
)
from synthdp.data import (
    Domain,
    decode_column,
    encode_column,
)
from synthdp.errors import (
    DataError,
    SpecError,
    printable,
)
from synthdp.graph import CausalGraph
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY
from synthdp.privacy.source import read_private
from synthdp.spec import (
    load_spec,
    parse_spec,
    read,
)
from synthdp.spec.model import (
    Boolean,
    Categorical,
    Column,
    CsvSource,
    Dataset,
    Datetime,
    DeclaredRows,
    IdUnit,
    Integer,
    Number,
    ReleaseSpec,
)
from tests.malicious import fuzz_files

FOLDER = Path(tempfile.mkdtemp(prefix="synthdp-fuzz-"))


# --- what must hold ---


def spec_target(data: bytes) -> str:
    """Load `data` as a spec: a spec that can be used, or mistakes with places."""
    path = FOLDER / "spec.yaml"
    path.write_bytes(data)
    try:
        spec = load_spec(path)
    except SpecError as error:
        problems, shown = error.problems, printable(str(error))
    else:
        _check_usable(spec)
        return "accepted"
    assert problems and all(p.line >= 1 and p.column >= 1 for p in problems), (
        "a mistake without a place"
    )
    shown.encode()
    return "refused"


def _check_usable(spec: ReleaseSpec) -> None:
    domain = Domain.from_spec(spec.columns)
    for column in domain.columns:
        assert column.levels >= 1 and all(
            map(math.isfinite, (*column.edges, *column.spikes, column.stop))
        ), "a domain that is not finite"
        assert list(column.edges) == sorted(set(column.edges)), "bins that do not follow each other"
        codes = np.arange(column.levels)
        again = encode_column(column, decode_column(column, codes, rng=np.random.default_rng(0)))
        assert again.misfits == 0, "a level whose values are not in the domain"
    CausalGraph.from_spec(spec.graph, domain.names)
    public = public_spec(spec)
    assert parse_spec(spec_yaml(public), path="public") == public, (
        "the published spec is another one"
    )


DATASET = Dataset(
    id="d",
    source=CsvSource(kind="csv", path="t.csv", missing_values=("", "NA")),
    privacy_unit=IdUnit(kind="id", column="person", max_rows=2, meaning="one person"),
    rows=DeclaredRows(kind="approximate", value=100),
)
COLUMNS: dict[str, Column] = {
    "sex": Categorical(type="categorical", categories=("f", "m")),
    "ill": Boolean(type="boolean", missing=True),
    "age": Integer(type="integer", lower=0, upper=99, bins=10, spikes=(0,)),
    "pay": Number(type="number", lower=-5.0, upper=5.0, bins=4, missing=True),
    "day": Datetime(type="datetime", lower="2020-01-01", upper="2020-12-31", bins=4, missing=True),  # type: ignore[arg-type]
}
DOMAIN = Domain.from_spec(COLUMNS)


def csv_target(data: bytes) -> str:
    """Read `data` as a table: levels of the domain, or an error that shows none of its cells."""
    (FOLDER / "t.csv").write_bytes(data)
    try:
        for handling in ("refuse", "clamp"):
            dataset = DATASET.model_copy(update={"out_of_domain": handling})
            table = read_private(
                dataset, DOMAIN, folder=FOLDER, holdout=0.2, streams=Streams.fresh()
            ).unseal(key=_KERNEL_KEY)
            assert (
                table.codes.shape == (len(table.frame), len(DOMAIN))
                and (table.codes < np.array(DOMAIN.sizes)).all()
            ), "levels outside the domain"
            assert handling == "clamp" or not any(
                sum(kinds.values()) for kinds in table.misfits.values()
            ), "misfits were let in"
            assert len(table.codes) <= data.count(b"\n") + data.count(b"\r") + 1, (
                "more rows than lines"
            )
    except DataError as error:
        shown = "".join(map(printable, _chain(error)))
    else:
        return "accepted"
    assert CANARY not in shown, "a cell is shown"
    return "refused"


def _chain(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{error} {error!r}"
        error = error.__cause__ or error.__context__


TARGETS: dict[str, Target] = {"spec": spec_target, "csv": csv_target, **fuzz_files.TARGETS}


# --- what comes in ---

ATOMS: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    10**18,
    10**30,
    0.5,
    1e-5,
    1e-300,
    1e308,
    -1e308,
    "",
    " ",
    "x",
    "no",
    "~",
]
ATOMS += [
    "a -> b",
    "->",
    "a,b -> c, d",
    "a\0b",
    "\ufeffa",
    "=cmd()",
    "\uff1dcmd",
    "a;=1",
    "-5",
    "+1.5",
    "@x",
    "\t",
    "\r\n",
    "\x1b[31m",
    "[bold]x",
]
ATOMS += [
    "<script>",
    "'; DROP TABLE x; --",
    "\u202eabc",
    "\u0661",
    "2020-01-01",
    "0001-01-01",
    "9999-12-31T23:59:59",
    "2020-13-45",
    "x" * 300,
]
ATOMS += [
    "../../etc/passwd",
    "http://x/y.csv",
    "~/x",
    "file:///etc/passwd",
    "\u00e9" * 50,
    [],
    {},
    [[]],
    {"a": 1},
    ["a", "a"],
    [None],
    [1, 2, 3],
]
ATOMS += [{"kind": "row"}, {"type": "number", "lower": 0, "upper": 1}]
SCRAPS = [
    "&a ",
    "*a",
    "!!python/object:os.system ",
    "!t ",
    "<<: *a\n",
    "? ",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "'",
    '"',
    "|\n",
    ">-\n",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
]
SCRAPS += [
    "#",
    "\t",
    "\r",
    "\\x",
    "1e999999",
    ".nan",
    "-.inf",
    "0x1F",
    "9" * 400,
    "1_000",
    "\u2028",
    "\x85",
    "!fill_in x",
    "\\ud800",
    "a: " * 40,
    "[" * 40,
]
CELLS = [
    "",
    "NA",
    "f",
    "m",
    "true",
    "false",
    "0",
    "3",
    "99",
    "100",
    "-1",
    "1e400",
    "nan",
    "inf",
    "-0",
    "1.5",
    "2020-02-01",
    "2020-02-01T10:00:00Z",
]
CELLS += [
    "99999-01-01",
    "\u0661",
    "1_000",
    "0x10",
    " 2 ",
    '"',
    '""',
    '"a\nb"',
    "=cmd|' /C calc'!A0",
    "\0",
    "\ufeff",
    "\u202e",
    "9" * 400,
    "x" * 5000,
]
CELLS += [CANARY, f'"{CANARY}', f"{CANARY}\0"]
BYTES = [
    b"\0",
    b"\xff",
    b"\xfe\xff",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b"\r\n",
    b'"',
    b",",
    b";",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\x80\x04.",
    b"PK\x03\x04",
    b"\x1f\x8b",
]
PLACES = st.integers(0, 10**6)


@st.composite
def specs(draw: st.DrawFn) -> bytes:
    """A seed whose tree, text and bytes were changed."""
    text = draw(st.sampled_from(SEEDS)).read_text(encoding="utf-8", errors="replace")
    if draw(st.integers(0, 3)):
        tree = json.loads(
            json.dumps(parsed.value() if (parsed := read(text)[0]) else None, default=str)
        )
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3]))):
            tree = _changed(draw, tree)
        text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=draw(st.booleans()))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(PLACES) % (len(text) + 1)
        text = text[:at] + draw(st.sampled_from(SCRAPS)) + text[at + draw(st.integers(0, 4)) :]
    return _spoilt(draw, text.encode("utf-8", errors="replace"))


def _atom(draw: st.DrawFn) -> Any:
    """A copy of its own: what is changed later must not change what other inputs are made of."""
    return copy.deepcopy(draw(st.sampled_from(ATOMS)))


def _changed(draw: st.DrawFn, tree: Any) -> Any:
    """One node replaced, dropped, wrapped, repeated or exchanged for another one of the tree."""
    places = list(_places(tree, ()))
    if not places:
        return _atom(draw)
    *way, last = places[draw(PLACES) % len(places)]
    holder = tree
    for step in way:
        holder = holder[step]
    how = draw(
        st.sampled_from(["replace", "replace", "drop", "wrap", "repeat", "exchange", "rename"])
    )
    if how == "replace":
        holder[last] = _atom(draw)
    elif how == "drop":
        del holder[last]
    elif how == "wrap":
        holder[last] = draw(st.sampled_from([[holder[last]], {"x": holder[last]}]))
    elif how == "repeat" and isinstance(holder, list):
        holder.extend([holder[last]] * draw(st.sampled_from([1, 2, 300])))
    elif how == "rename" and isinstance(holder, dict):
        holder[str(draw(st.sampled_from(ATOMS)))] = holder.pop(last)
    elif how == "exchange":
        *other, end = places[draw(PLACES) % len(places)]
        source = tree
        for step in other:
            source = source[step]
        holder[last] = json.loads(json.dumps(source[end], default=str))
    return tree


def _places(tree: Any, way: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if len(way) > DEEPEST_CHANGE:
        return
    for key, below in (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    ):
        yield (*way, key)
        yield from _places(below, (*way, key))


DEEPEST_CHANGE = 50  # the fuzzer's own walk ends here; what is deeper stays as it is


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """A table whose cells, rows and bytes were changed. The header holds no canary."""
    names = list(draw(st.permutations(["person", *DOMAIN.names])))
    rows = draw(st.lists(st.lists(st.sampled_from(CELLS), min_size=4, max_size=8), max_size=6))
    good = {"person": "p", "sex": "f", "ill": "true", "age": "3", "pay": "1.5", "day": "2020-02-01"}
    wild = draw(st.integers(0, 3)) == 0
    rows = [row if wild and draw(st.booleans()) else [good[n] for n in names] for row in rows]
    for row in rows:
        if draw(st.integers(0, 3)) == 0:
            row[draw(PLACES) % len(row)] = draw(st.sampled_from(CELLS))
    end, comma = (
        draw(st.sampled_from(["\n", "\r\n", "\r"])),
        draw(st.sampled_from([*",,,,,,,,", ";", "\t"])),
    )
    text = end.join(comma.join(row) for row in [names, *rows]) + draw(st.sampled_from([end, ""]))
    return _spoilt(
        draw, text.encode(draw(st.sampled_from([*["utf-8"] * 9, "utf-8-sig", "utf-16", "utf-32"])))
    )


def _spoilt(draw: st.DrawFn, data: bytes) -> bytes:
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, 3]))):
        at = draw(PLACES) % (len(data) + 1)
        data = (
            data[:at]
            + draw(st.sampled_from(BYTES) | st.binary(max_size=4))
            + data[at + draw(st.integers(0, 3)) :]
        )
    return data[: draw(PLACES) % (len(data) + 1)] if draw(st.integers(0, 9)) == 0 else data


STRATEGIES: dict[str, st.SearchStrategy[bytes]] = {
    "spec": specs() | specs() | specs() | st.binary(max_size=300),
    "csv": tables() | tables() | tables() | st.binary(max_size=300),
    **fuzz_files.STRATEGIES,
}


# --- running ---


def fuzz(name: str, seconds: float) -> dict[str, Any]:
    """Run target `name` on Hypothesis' inputs; raises what it finds, shrunk."""
    done: Counter[str] = Counter()
    slowest, start = 0.0, time.monotonic()
    batch_size = BATCH if name in ("spec", "csv") else BATCH // 5  # a child for each

    # A short run is the same each time, so that no test fails by chance; in a long one every batch
    # differs, where the variable CI is set too.
    @settings(
        max_examples=batch_size,
        phases=PHASES,
        deadline=None,
        database=None,
        derandomize=seconds < 10,
        suppress_health_check=list(HealthCheck),
    )
    @given(STRATEGIES[name])
    def batch(data: bytes) -> None:
        nonlocal slowest
        before = time.monotonic()
        done[TARGETS[name](data)] += 1
        slowest = max(slowest, time.monotonic() - before)
        assert slowest < SLOWEST or name in fuzz_files.TARGETS, (
            "an input that takes too long"
        )  # children have limits of their own

    if name in fuzz_files.TARGETS:
        assert TARGETS[name](fuzz_files.good(name)) == "accepted", "what was not damaged is refused"
    batch()  # on a busy machine all seconds may be over by now
    while time.monotonic() - start < seconds:
        batch()
    return {
        "target": name,
        "inputs": done.total(),
        **done,
        "slowest_seconds": round(slowest, 2),
        "seconds": round(time.monotonic() - start),
    }


def main() -> None:
    """Entry point; the exit status says whether something was found."""
    names = [word for word in sys.argv[1:] if word != "--coverage"]
    name, seconds = names[0], float(os.environ.get("FUZZ_SECONDS", "600"))
    warnings.simplefilter("error")
    warnings.simplefilter(
        "ignore", HypothesisWarning
    )  # of the length of an example that it is about to tell
    if "--coverage" in sys.argv:
        corpus = FOLDER / "corpus"
        corpus.mkdir()
        for i, seed in enumerate(SEEDS if name == "spec" else []):
            (corpus / str(i)).write_bytes(seed.read_bytes())
        if name == "csv":
            (corpus / "0").write_bytes(
                b"person,sex,ill,age,pay,day\np,f,true,3,1.5,2020-02-01\nq,m,NA,99,,\n"
            )
        bounds = [
            f"-max_total_time={int(seconds)}",
            "-max_len=4096",
            f"-timeout={int(SLOWEST)}",
            "-rss_limit_mb=4096",
        ]
        atheris.Setup(
            [sys.argv[0], *bounds, str(corpus)], lambda data: TARGETS[name](data) and None
        )
        atheris.Fuzz()
    for name in names:
        print(json.dumps(fuzz(name, seconds)), flush=True)


if __name__ == "__main__":
    main()
