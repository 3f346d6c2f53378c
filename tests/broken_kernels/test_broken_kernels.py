"""Kernels that are broken on purpose are caught where they are broken, and the true one is not."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kernels import KERNELS, UNBROKEN, Broken
from run import ROOT, judge, try_kernel

pytestmark = pytest.mark.check

TRUE = {"tests.privacy.test_noise.test_noise[discrete]": "the discrete sampler is wrong"}
BROKEN = Broken(
    "noise.py", (("a", "b"),), caught=("test_noise[discrete]",), place="discrete", says="sampler"
)


@pytest.mark.parametrize("name", KERNELS)
def test_every_breakage_fits_the_kernel_as_it_is(name: str, tmp_path: Path) -> None:
    broken = KERNELS[name]
    path = tmp_path / broken.file
    path.parent.mkdir(parents=True)
    path.write_text((ROOT / broken.file).read_text())
    broken.apply(tmp_path)
    assert path.read_text() != (ROOT / broken.file).read_text()
    compile(path.read_text(), broken.file, "exec")
    path.write_text("")
    with pytest.raises(SystemExit, match="0 times, not once"):
        broken.apply(tmp_path)


@pytest.mark.parametrize(
    ("broken", "tests", "failures", "wrong"),
    [
        (None, 9, {}, ""),
        (None, 9, TRUE, "fails: "),
        (None, 0, {}, "no test ran"),
        (BROKEN, 9, TRUE, ""),
        (BROKEN, 0, {}, "no test ran"),
        (BROKEN, 9, {}, "NOT CAUGHT by test_noise[discrete]"),
        (BROKEN, 9, {"tests.privacy.test_ledger.test_discrete": "sampler"}, "NOT CAUGHT"),
        (
            BROKEN,
            9,
            {**TRUE, "tests.privacy.test_ledger.test_cap": "sampler"},
            "fails elsewhere: tests.privacy.test_ledger.test_cap",
        ),
        (BROKEN, 9, dict.fromkeys(TRUE, "something else"), "no failure says 'sampler'"),
    ],
)
def test_the_verdict(
    broken: Broken | None, tests: int, failures: dict[str, str], wrong: str
) -> None:
    found = judge(broken, tests, failures)
    assert found.startswith(wrong) and bool(found) == bool(wrong)


@pytest.mark.slow
def test_broken_kernels_are_caught_in_the_right_place_and_the_true_one_passes(
    tmp_path: Path, figure: Callable[..., None]
) -> None:
    outcomes = {}
    for number, name in enumerate((UNBROKEN, *KERNELS)):
        (tmp_path / str(number)).mkdir()
        outcomes[name] = try_kernel(name, KERNELS.get(name), (tmp_path / str(number)).resolve())
    surprises = {name: outcome.wrong for name, outcome in outcomes.items() if outcome.wrong}
    assert surprises == {}
    caught = sum(not outcome.wrong for name, outcome in outcomes.items() if name != UNBROKEN)
    figure("broken kernels caught in the right place", caught, len(KERNELS))
