"""Whatever is read of a bundle is compared with its sums: what was edited is never answered."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from synthdp import Bundle
from synthdp.bundle import sha256
from synthdp.cli.main import main
from synthdp.data import Domain
from synthdp.errors import SynthdpError, VerifyError
from synthdp.files import SUMS
from synthdp.inference.estimands import estimands_json
from synthdp.model import sums_of
from synthdp.privacy.noise import Streams
from synthdp.spec import load_spec
from tests.privacy.conftest import make_table

ASKED = "share(visits > 3)"
READERS: dict[str, tuple[Callable[[Bundle], Any], set[str]]] = {
    "spec": (lambda b: b.spec, {"spec.yaml"}),
    "certificate": (lambda b: b.certificate, {"privacy/certificate.json"}),
    "graph": (lambda b: b.graph, {"graph.json"}),
    "table": (lambda b: b.table(), {"spec.yaml", "synthetic.csv"}),
    "marginals": (lambda b: b.marginals, {"spec.yaml", "marginals.json"}),
    "sample": (
        lambda b: b.sample(5, seed=1),
        {"spec.yaml", "model.json", "model.safetensors", "marginals.json", "graph.json"},
    ),
    "estimands": (lambda b: b.estimands, {"spec.yaml", "estimands.json"}),
    "answer, measured": (lambda b: b.answer("share(smoker)"), {"spec.yaml", "marginals.json"}),
    "answer, paid for": (
        lambda b: b.answer(ASKED),
        {"spec.yaml", "marginals.json", "estimands.json"},
    ),
    "answer of the model": (
        lambda b: b.answer("share(smoker) by sex"),
        {"spec.yaml", "marginals.json", "synthetic.csv"},
    ),
    "effect of the model": (
        lambda b: b.effect("sex", "smoker"),
        {"spec.yaml", "marginals.json", "graph.json", "synthetic.csv"},
    ),
    "copies": (
        lambda b: b.copies(2, columns=["grade", "smoker"], rows=9, seed=1),
        {"spec.yaml", "marginals.json"},
    ),
}
"""What reads a bundle, and the files that it cannot do without."""


@pytest.fixture(scope="module")
def asked(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle with an estimand, and sums that fit."""
    folder = Path(shutil.copytree(made, tmp_path_factory.mktemp("asked") / "bundle"))
    content = yaml.safe_load((folder / "spec.yaml").read_text())
    content["estimands"] = [{"kind": "question", "ask": ASKED}]
    content["privacy"]["shares"] = {"measure": 0.2, "train": 0.6, "estimands": 0.2}
    (folder / "spec.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    spec = load_spec(folder / "spec.yaml")
    domain, (estimand,) = Domain.from_spec(spec.columns), spec.estimands
    codes = [[level % size for size in domain.sizes] for level in range(90)]
    sums = sums_of(spec, domain, estimand).run(make_table(domain, codes), Streams.fresh())  # type: ignore[arg-type]
    figures = json.dumps(estimands_json(spec, domain, {"1": sums}))
    (folder / "estimands.json").write_text(figures)
    listed = [f for f in folder.rglob("*") if f.is_file() and f.name != SUMS]
    lines = [f"{sha256(f)}  {f.relative_to(folder).as_posix()}\n" for f in sorted(listed)]
    (folder / SUMS).write_text("".join(lines))
    return folder


def spoilt(bundle: Path, folder: Path, name: str, spoil: Callable[[Path], object]) -> Bundle:
    """A copy in which one file is otherwise, and its sum as it was."""
    copy = Path(shutil.copytree(bundle, folder / "copy", dirs_exist_ok=True))
    spoil(copy / name)
    return Bundle(copy)


def edit(path: Path) -> None:
    """One more line, which changes no content of a text."""
    with path.open("ab") as file:
        file.write(b"\n")


@pytest.mark.parametrize("reader", READERS)
def test_what_is_read_of_a_bundle_is_compared_with_its_sums(
    asked: Path, tmp_path: Path, reader: str
) -> None:
    read, needed = READERS[reader]
    read(Bundle(asked))
    for name in needed:
        with pytest.raises(VerifyError, match=f"{name} in .* was changed: its hash is not"):
            read(spoilt(asked, tmp_path / name, name, edit))


@pytest.mark.check
@pytest.mark.parametrize("reader", READERS)
def test_no_other_file_is_read(asked: Path, tmp_path: Path, reader: str) -> None:
    """Without any of them a reader says what it says."""
    read, needed = READERS[reader]
    found = set()
    for file in (f for f in asked.rglob("*") if f.is_file() and f.name != SUMS):
        name = file.relative_to(asked).as_posix()
        try:
            read(spoilt(asked, tmp_path, name, Path.unlink))
        except (SynthdpError, OSError):
            found.add(name)
    assert found == needed


def test_other_sums_of_an_estimand_are_not_answered_by(
    asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures are computed anew from the sums, so that edited sums give figures that fit them."""

    def more(path: Path) -> None:
        stated = json.loads(path.read_text())
        stated["sums"]["1"]["counts"][0] *= 2
        path.write_text(json.dumps(stated))

    bundle = spoilt(asked, tmp_path, "estimands.json", more)
    for arguments in ((), (ASKED,)):
        monkeypatch.setattr("sys.argv", ["synthdp", "answer", str(bundle.path), *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == VerifyError.exit_code
