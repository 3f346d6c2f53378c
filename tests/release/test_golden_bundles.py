"""A tiny release of every mode, whole: each published and confidential file, to the byte.

What a release makes follows from its spec, its rows and its coins alone, so work on the code's form
changes none of these files. Where a change is meant, write the digests anew with
`python -m tests.release.test_golden_bundles`, and say in the commit which files changed and why.

Floating-point sums differ between processors: the digests hold on machines like the one that
`MADE_ON` names in each file; elsewhere only the names of the files are compared.
"""

import hashlib
import json
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.differential.cases import MODES, case_of
from tests.differential.coins import CoinsInTurn
from tests.differential.harness import Tape, run

pytestmark = pytest.mark.check

GOLDEN = Path(__file__).parents[1] / "golden" / "bundles.json"
ROWS = 120
SECONDS = re.compile(rb'"seconds": \{[^}]*\}')  # by the clock
ASKED: dict[str, tuple[str, str, tuple[str, ...]]] = {
    **{mode: (mode, "csv", ()) for mode in MODES},
    "estimands": ("given", "csv", ("estimands", "derived")),
    "judged": ("given", "parquet", ("dp scores", "gates")),
    "attacked": ("given", "csv", ("evaluation", "attack")),
    "persons": ("predict", "csv", ("ids", "constraints")),
    "replaced": ("validate", "csv", ("replace one",)),
    "targets": ("given, with pairs", "csv", ("targets",)),
    "sampled": ("given", "csv", ("secret sample",)),
    "database": ("given", "sqlite", ("evaluation",)),
}
"""By name: a mode, a source, and what else the spec asks for."""


@pytest.fixture(autouse=True)
def attacks_here() -> None:
    """Where the spec says."""


def made_on() -> str:
    """What floating-point sums depend on: libraries choose their loops by the processor's model."""
    told = (
        Path("/proc/cpuinfo").read_text().split("\n\n")[0] if Path("/proc/cpuinfo").exists() else ""
    )
    stated = dict(line.partition(":")[::2] for line in told.splitlines())
    parts = {name.strip(): value.strip() for name, value in stated.items()}
    model = " ".join(parts.get(n, "?") for n in ("vendor_id", "cpu family", "model"))
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {model}"


def made(name: str, folder: Path) -> dict[str, str]:
    """By file of the release called `name`, and by what it printed: the start of its SHA-256."""
    mode, source, options = ASKED[name]
    found = case_of(mode, source, list(options), np.random.default_rng(0), rows=ROWS)
    assert found is not None, "the spec is refused"
    outcome = run(*found, folder, Tape(), seed=name, coins=CoinsInTurn)
    assert "raised" not in outcome.shown or mode == "validate, fail", outcome.shown["raised"]
    files = {
        f"{p.relative_to(folder / 'out')}": p.read_bytes()
        for p in (folder / "out").rglob("*")
        if p.is_file() and {"bundle", "internal"} & set(p.parts)
    }
    shown = {"printed": outcome.shown["printed"], **files}
    plain = {n: SECONDS.sub(b"", t).replace(str(folder).encode(), b"") for n, t in shown.items()}
    return {n: hashlib.sha256(plain[n]).hexdigest()[:16] for n in sorted(plain)}


@pytest.mark.parametrize("name", ASKED)
def test_a_release_is_as_it_was(name: str, tmp_path: Path) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    now, then = made(name, tmp_path), golden["releases"][name]
    assert list(now) == list(then)
    if golden["made on"] == made_on():
        assert [n for n in now if now[n] != then[n]] == []


def main() -> None:
    """Write the digests anew."""
    releases = {}
    for name in ASKED:
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            releases[name] = made(name, Path(folder))
    golden = {"made on": made_on(), "releases": releases}
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
