"""The fuzzers, for a moment in the quick suite and for FUZZ_SECONDS each in the slow one; and that
they find what is planted.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.check

ROOT = Path(__file__).parent.parent.parent
SLOW = float(os.environ.get("FUZZ_SECONDS", "60"))  # `make fuzz` takes ten times as long


def run(*arguments: str, seconds: float, planted: str = "") -> subprocess.CompletedProcess[str]:
    """The fuzzer as a command; `planted` is code that runs before it."""
    program = (
        f"import sys; sys.argv = ['fuzz', *{list(arguments)!r}]\nimport tests.malicious.fuzz as"
        f" fuzz\n{planted}\nfuzz.main()"
    )
    environment = {**os.environ, "FUZZ_SECONDS": str(seconds)}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds * 3 + 300,
        check=False,
    )


FILES = ["bif", "dot", "dagitty", "gml", "graphml", "json", "tetrad", "bundle"]


TARGETS = ["spec", "csv", *FILES]


def test_no_input_of_a_moment_gets_through(figure: Callable[..., None]) -> None:
    """Of all targets in one process: each start takes longer than its inputs."""
    done = run(*TARGETS, seconds=1.0)
    assert done.returncode == 0, done.stdout + done.stderr
    told = list(map(json.loads, done.stdout.splitlines()))
    assert [one["target"] for one in told if one["inputs"] > 0] == TARGETS
    inputs = sum(one["inputs"] for one in told)
    figure("fuzzed inputs without a crash", inputs, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_gets_through(figure: Callable[..., None], target: str) -> None:
    done = run(target, seconds=SLOW)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    inputs = told["inputs"]
    many = SLOW / (3 if target in FILES else 1.2)  # on a busy machine, too
    assert inputs >= many and told["refused"] > 0.2 * inputs, told
    assert target in FILES or told["accepted"] > 0.02 * inputs, (
        told
    )  # of a file in a child of its own, what is good was accepted before
    figure("fuzzed inputs without a crash", inputs, inputs)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is optional")
@pytest.mark.parametrize("target", ["spec", "csv"])
def test_no_input_of_the_coverage_fuzzer_gets_through(
    figure: Callable[..., None], target: str
) -> None:
    done = run(target, "--coverage", seconds=SLOW)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    found = re.search(r"Done (\d+) runs", done.stderr)
    assert found is not None and int(found[1]) > 100
    figure("fuzzed inputs without a crash", int(found[1]), int(found[1]))


STUMBLES = """
real = fuzz.load_spec
def broken(path):
    if b"null" in path.read_bytes():
        raise KeyError("x")
    return real(path)
fuzz.load_spec = broken
"""
QUOTES = """
from synthdp.errors import DataError
real = fuzz.read_private
def broken(dataset, domain, *, folder, **rest):
    text = (folder / "t.csv").read_text(errors="replace")
    if fuzz.CANARY in text:
        raise DataError(text)
    return real(dataset, domain, folder=folder, **rest)
fuzz.read_private = broken
"""
HANGS = """
import re, synthdp.graph.formats.bif as bif
bif.BIF.pattern = re.compile(r"(?P<skip>(?:\\s+)+(?!\\S))|(?P<mark>[{}()\\[\\],;|])|(?P<word>[^\\s{}()\\[\\],;|]+)|(?P<text> )")
fuzz.fuzz_files.SECONDS = 2
fuzz.fuzz_files.SCRAPS = ["probability (", " "]
"""  # noqa: E501
ASKS = """
import numpy as np, tests.malicious.fuzz_files as files
files.WRITERS = {**files.WRITERS, "yaml": lambda graph: np.ones(1 << 40).sum()}
"""
STUMBLES_OVER_GRAPHS = """
import tests.malicious.fuzz_files as files
def broken(path):
    raise KeyError("x")
files.read_graph = broken
"""
LETS_IN = """
import synthdp.privacy.source as source
source.check_misfits = lambda encoded, domain, dataset: {name: {"x": column.misfits} for name, column in encoded.items()}
"""  # noqa: E501
PLANTED = {
    "a loader that stumbles over a null": ("spec", STUMBLES),
    "an error that quotes a cell": ("csv", QUOTES),
    "misfits that are let in": ("csv", LETS_IN),
    "a reader that goes back again and again": ("bif", HANGS),
    "a reader that asks for terabytes": ("dot", ASKS),
    "an error that nobody declared": ("dagitty", STUMBLES_OVER_GRAPHS),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n.startswith("a reader") else n for n in PLANTED],
)
def test_what_is_planted_is_found(name: str) -> None:
    target, code = PLANTED[name]
    done = run(
        target, seconds=120, planted=f"{code}\nfuzz.PHASES = [fuzz.Phase.generate]"
    )  # what is found need not be shrunk
    assert done.returncode != 0 and (
        "KeyError" in done.stderr or "AssertionError" in done.stderr
    ), done.stdout + done.stderr[-2000:]
