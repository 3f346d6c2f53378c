"""What every command prints: its help, and text and JSON of it on the tiny release, to the letter.

One golden file a command. Run with SYNTHDP_UPDATE_GOLDEN=1 to write the files anew, then read what
changed. Floating-point sums differ between processors: figures are compared on machines like the
one that a file names, elsewhere all but the figures.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from synthdp.cli.options import COMMANDS, GRAPH_COMMANDS
from synthdp.privacy import plan
from tests.differential.coins import CoinsInTurn, frozen
from tests.release.conftest import Tiny
from tests.release.test_golden_bundles import made_on

pytestmark = pytest.mark.check

FOLDER = Path(__file__).parents[1] / "golden" / "commands"
BUNDLE, LEDGER = "out/bundle", ".synthdp/ledger.db"
CASES: dict[str, tuple[str, ...]] = {
    "doctor": (),  # of this machine; see test_doctor_and_ui.py
    "ui": (),
    "desk": (),  # see tests/desk
    "track": (),
    "attack": ("attack out",),
    "audit": ("audit spec.yaml --replay --simulated",),
    "study": ("study spec.yaml --epsilons x",),
    "init": (
        "init table.csv --no-ask --out draft.yaml --force",
        "init --builtin pain1000 --out pain.yaml --force",
        "init --out pain.yaml --force",
        "init table.csv --cap 1 1e-4 --out draft.yaml --force",
        "init table.csv --private --no-ask --out draft.yaml --force",
        "init table.csv --private --no-ask --cap 3 1e-4 --out draft.yaml --force",
        "init table.csv --private --no-ask --cap 3 1e-4 --rows 400 --unit sex --meaning one"
        " --out draft.yaml --force",
    ),
    "validate": ("validate spec.yaml",),
    "inspect": ("inspect spec.yaml", "inspect misfit.yaml --examples"),
    "watch": ("watch misfit.yaml --once --what-if 2", "watch other.yaml --once"),
    "plan": ("plan other.yaml", "plan spec.yaml --what-if 0.5,2", "plan spec.yaml --what-if x"),
    "schema": (),  # JSON either way; see test_cli.py
    "release": ("release other.yaml --out other --force", "release spec.yaml --out out"),
    "resume": ("resume nowhere",),
    "budget": (
        f"budget --ledger {LEDGER}",
        f"budget tiny --ledger {LEDGER} --check {BUNDLE} --svg budget.svg --set-cap 2 1e-4",
        f"budget none --ledger {LEDGER}",
    ),
    "keygen": ("keygen keys",),
    "verify": (f"verify {BUNDLE}", f"verify {BUNDLE} --ledger {LEDGER}"),
    "decide": (
        "decide out",
        "decide out --yes --by A.Reviewer --why approved",
        "decide out --no",
        "decide nowhere",
    ),
    "sample": (
        f"sample {BUNDLE} --rows 3 --seed 1",
        f"sample {BUNDLE} --rows 3 --seed 1 --out rows.csv --given sex=male --do smoker=yes",
        f"sample {BUNDLE} --rows 3 --seed 1 --out rows.txt",
    ),
    "answer": (f"answer {BUNDLE} mean(visits)", f"answer {BUNDLE}"),
    "effect": (
        f"effect {BUNDLE} --treatment smoker --outcome visits",
        f"effect {BUNDLE} --treatment smoker --outcome visits --adjust none --adjust sex",
    ),
    "export": (f"export {BUNDLE} --to sqlite:///warehouse.db --table tiny --replace",),
    "copies": (
        f"copies {BUNDLE} --columns sex --m 2 --rows 20 --seed 1 --out copies",
        f"copies {BUNDLE} --columns sex,smoker --out pairs",
        f"copies {BUNDLE} --columns sex --out out",
    ),
    "show": (
        f"show {BUNDLE} --pair sex smoker --out pair.svg",
        f"show {BUNDLE} --pair sex smokes",
    ),
    "diff": (f"diff {BUNDLE} {BUNDLE}",),
    "index": (f"index out --ledger {LEDGER} --verify", "index nowhere"),
    "graph show": (
        "graph show spec.yaml",
        "graph show spec.yaml --format dot --around smoker",
        f"graph show {BUNDLE} --out graph.dot --format dot",
    ),
    "graph diff": (f"graph diff spec.yaml {BUNDLE}", f"graph diff other.yaml {BUNDLE}"),
    "graph learn": ("graph learn learn.yaml --out learnt",),
    "graph validate": ("graph validate validate.yaml --out validated",),
    "graph orient": ("graph orient validate.yaml visits weight --out oriented",),
}
MASKS = {
    r"[0-9]{8}-[0-9a-f]{12}": "RUN",
    r"[0-9a-f]{64}": "HASH",
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(\+00:00|Z)?": "TIME",
    r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2} +(?=[^ ]+@|not stated)": "DAY ",
    r"20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9:]{5} UTC": "TIME",
    r"(?m)(: |working: )[0-9.]+ s( so far)?$": r"\1SECONDS",
    r'("[a-z -]+"): [0-9.e-]+(?=[,\n}][^{]*\n *\}, *\n *"warnings")': r"\1: SECONDS",
    r"about [0-9.]+ CPU seconds and [0-9]+ MB": "about COST",
    r'"(cpu_seconds|memory_mb)": [0-9.]+': r'"\1": COST',
}
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?")


@pytest.fixture(scope="session")
def drawn_alike(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A folder with a release whose coins follow from nothing but their turn."""
    made = Tiny(tmp_path_factory.mktemp("golden")).write()
    with pytest.MonkeyPatch.context() as patch, frozen(CoinsInTurn("golden")):
        patch.setattr(plan, "GROUP_SIZES", (1, 2))
        made.release()
    return made


def write_specs(tiny: Tiny) -> None:
    """Specs beside that of the release: another, one with misfits, and two of a graph's own run."""
    tiny.write(
        graph={"mode": "given", "edges": ["smoker -> sex"]},
        gates=[{"metric": "tv1_noisy", "at_most": 1.0}],
        privacy={"epsilon": 2.2},  # of which the cap has room for one
    )
    (tiny.folder / "other.yaml").write_text(tiny.spec.read_text())
    tiny.write(columns={"visits": {"upper": 4, "edges": [1, 3]}})
    (tiny.folder / "misfit.yaml").write_text(tiny.spec.read_text())
    share = {"shares": {"measure": 0.2, "graph": 0.2, "train": 0.6}, "cap": {"epsilon": 9.0}}
    for mode, edges in (("learn", []), ("validate", ["sex -> smoker"])):
        tiny.write(
            graph={"mode": mode, "edges": edges}, privacy=share, dataset={"id": f"tiny-{mode}"}
        )
        (tiny.folder / f"{mode}.yaml").write_text(tiny.spec.read_text())
    tiny.write()


def masked(text: str, folder: Path) -> str:
    """`text` without what differs from run to run."""
    text = text.replace(str(folder), "FOLDER")
    for pattern, name in MASKS.items():
        text = re.sub(pattern, name, text)
    return re.sub(r"(?m)^working: SECONDS\n", "", text)


def printed(name: str, folder: Path, synthdp: Any) -> Iterator[str]:
    """Help of a command, and of each case: its words, exit code, stdout and stderr."""
    yield f"made on {made_on()}"
    yield synthdp(*name.split(), "--help").out
    for line in CASES[name]:
        for words in (line.split(), [*line.split(), "--json"]):
            if words[0] == "copies" and words[-1] == "--json":
                words[words.index("--out") + 1] += "-json"
            if words[0] in ("release", "keygen", "graph") and words[-1] == "--json":
                words = [w if w not in ("other", "keys") else f"{w}-json" for w in words]
            done = synthdp(*words)
            yield f"$ synthdp {' '.join(words)}  ({done.code})"
            yield masked(done.out, folder)
            yield f"--- stderr\n{masked(done.err, folder)}"


@pytest.mark.parametrize("name", CASES)
def test_a_command_prints_what_it_did(
    name: str,
    tiny: Tiny,
    drawn_alike: Tiny,
    synthdp: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(drawn_alike.folder, tiny.folder, dirs_exist_ok=True)
    write_specs(tiny)
    monkeypatch.chdir(tiny.folder)
    # of which click takes the program's name, where `python -m` runs the tests
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None, raising=False)
    with frozen(CoinsInTurn(name)):
        now = "\n".join(printed(name, tiny.folder, synthdp))
    path = FOLDER / f"{name.replace(' ', '-')}.txt"
    if os.environ.get("SYNTHDP_UPDATE_GOLDEN") == "1":
        FOLDER.mkdir(exist_ok=True)
        path.write_text(now, encoding="utf-8")
    then = path.read_text(encoding="utf-8")
    if now.partition("\n")[0] != then.partition("\n")[0]:  # another processor
        told = (t.partition("\n")[2] for t in (now, then))
        now, then = (" ".join(NUMBER.sub("#", t).split()) for t in told)
    assert now == then


def test_every_command_has_a_golden_file(synthdp: Any) -> None:
    names = {n for panel in COMMANDS.values() for n in panel} - {"graph"}
    assert {*CASES} == names | {f"graph {name}" for name in GRAPH_COMMANDS}
    assert {p.stem for p in FOLDER.glob("*.txt")} == {n.replace(" ", "-") for n in CASES}
