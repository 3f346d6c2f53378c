"""Models of strangers, and runs whose files were damaged: `sample` and `resume` end in the declared
error.
"""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from synthdp.ledger import INTERNAL, Ledger

pytestmark = pytest.mark.check

Spoil = Callable[[Path], object]
WEIGHTS, MODEL = "model.safetensors", "model.json"


def header(content: Any, *, length: int | None = None, data: bytes = b"") -> Spoil:
    """A safetensors file with this header."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda bundle: (bundle / WEIGHTS).write_bytes(
        struct.pack("<Q", len(text) if length is None else length) + text + data
    )


def model(change: Callable[[dict[str, Any]], object]) -> Spoil:
    def spoil(bundle: Path) -> None:
        content = json.loads((bundle / MODEL).read_text())
        change(content)
        (bundle / MODEL).write_text(json.dumps(content))

    return spoil


def both(
    tensors: Callable[[dict[str, Any]], dict[str, Any]],
    change: Callable[[dict[str, Any]], object] = lambda c: None,
) -> Spoil:
    """Change weights and model.json so that they agree on names and shapes."""

    def spoil(bundle: Path) -> None:
        weights = tensors(load_file(bundle / WEIGHTS))
        save_file(weights, bundle / WEIGHTS)
        content = json.loads((bundle / MODEL).read_text())
        content["shapes"] = {k: list(v.shape) for k, v in weights.items()}
        change(content)
        (bundle / MODEL).write_text(json.dumps(content))

    return spoil


def wide_decoder(weights: dict[str, Any]) -> dict[str, Any]:
    """Weights that are small, for an architecture whose decoder would take 100 GB."""
    return {**weights, "encode_columns.weight": np.zeros((6 * 1 + 400_000, 4), np.float32)}


def cast(kind: Any) -> Spoil:
    return both(lambda weights: {k: v.astype(kind) for k, v in weights.items()})


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
MODELS: dict[str, Spoil] = {
    "header of 2^63 bytes": header(b"{}", length=2**63),
    "header of 2^64 - 1 bytes": header(b"{}", length=2**64 - 1),
    "header of 99 MB that is not there": header(b"{}", length=99_000_000),
    "header of no JSON": header(b"\xff" * 100),
    "header nested deeply": header(b"[" * 1_000_000),
    "header of a list": header([]),
    "shape beyond memory": header({"w": {**F32, "shape": [2**40, 2**40]}}, data=b"\0" * 8),
    "shape that overflows": header({"w": {**F32, "shape": [2**63, 2]}}, data=b"\0" * 8),
    "shape with a zero": header({"w": {**F32, "shape": [0, 2**60], "data_offsets": [0, 0]}}),
    "negative offsets": header({"w": {**F32, "data_offsets": [-8, 0]}}, data=b"\0" * 8),
    "offsets that overlap": header({"v": F32, "w": F32}, data=b"\0" * 8),
    "offsets beyond the end": header({"w": {**F32, "data_offsets": [0, 2**50], "shape": [2**48]}}),
    "unknown type of number": header({"w": {**F32, "dtype": "PICKLE"}}, data=b"\0" * 8),
    "8-bit numbers": header({"w": {**F32, "dtype": "F8_E4M3", "shape": [8]}}, data=b"\0" * 8),
    "16-bit brain numbers": header({"w": {**F32, "dtype": "BF16", "shape": [4]}}, data=b"\0" * 8),
    "64-bit numbers": cast(np.float64),
    "whole numbers": cast(np.int32),
    "NaN in the weights": both(lambda w: {k: np.full_like(v, np.nan) for k, v in w.items()}),
    "infinity in the weights": both(lambda w: {k: np.full_like(v, np.inf) for k, v in w.items()}),
    "a tensor too many": both(lambda w: {**w, "extra": np.zeros(3, np.float32)}),
    "a tensor too few": both(lambda w: dict(list(w.items())[1:])),
    "truncated": lambda bundle: os.truncate(bundle / WEIGHTS, 300),
    "a pickle": (
        lambda bundle: (bundle / WEIGHTS).write_bytes(
            b"\x80\x04cos\nsystem\n(S'touch /tmp/it-ran'\ntR."
        )
    ),
    "a torch archive": lambda bundle: (bundle / WEIGHTS).write_bytes(b"PK\x03\x04" + bytes(1000)),
    "architecture: a cycle": model(
        lambda c: c["architecture"].update(parents=[[1], [0], [], [], [], [], []])
    ),
    "architecture: its own parent": model(lambda c: c["architecture"]["parents"][0].append(0)),
    "architecture: a parent twice": model(lambda c: c["architecture"]["parents"][0].extend([1, 1])),
    "architecture: parents out of range": model(
        lambda c: c["architecture"]["parents"][0].append(10**9)
    ),
    "architecture: negative parents": model(lambda c: c["architecture"]["parents"][0].append(-1)),
    "architecture: gigantic": model(lambda c: c["architecture"].update(hidden=10**12)),
    "architecture: hidden beyond floats": model(lambda c: c["architecture"].update(hidden=1e308)),
    "architecture: nothing hidden": model(lambda c: c["architecture"].update(hidden=0)),
    "architecture: negative sizes": model(lambda c: c["architecture"].update(sizes=[-1] * 7)),
    "architecture: sizes of text": model(lambda c: c["architecture"].update(sizes=["x"] * 7)),
    "architecture: no sizes": model(lambda c: c["architecture"].update(sizes=[])),
    "architecture: a wide decoder": both(
        wide_decoder, lambda c: c["architecture"].update(sizes=[400_000, *[1] * 6])
    ),
    "architecture: no latent": model(lambda c: c["architecture"].update(latent_of=[])),
    "architecture: a list": model(lambda c: c.update(architecture=[1, 2])),
    "columns of lists": model(lambda c: c.update(columns=[[]] * 7)),
    "columns twice": model(lambda c: c.update(columns=["sex"] * 7)),
    "columns of another table": model(lambda c: c.update(columns=[f"x{i}" for i in range(7)])),
    "no shapes": model(lambda c: c.pop("shapes")),
    "a list": lambda bundle: (bundle / MODEL).write_text("[]"),
    "nested deeply": lambda bundle: (bundle / MODEL).write_text("[" * 10_000_000),
    "duplicate keys": (
        lambda bundle: (bundle / MODEL).write_text(
            (bundle / MODEL).read_text().replace('"kind"', '"kind": 1, "kind"', 1)
        )
    ),
    "not there": lambda bundle: (bundle / MODEL).unlink(),
    "a folder": lambda bundle: ((bundle / WEIGHTS).unlink(), (bundle / WEIGHTS).mkdir()),
    "a pipe": lambda bundle: ((bundle / WEIGHTS).unlink(), os.mkfifo(bundle / WEIGHTS)),
    "a pipe for its description": lambda bundle: (
        (bundle / MODEL).unlink(),
        os.mkfifo(bundle / MODEL),
    ),
    "a device for its description": lambda bundle: (
        (bundle / MODEL).unlink(),
        (bundle / MODEL).symlink_to("/dev/zero"),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_bad_model_is_not_sampled(
    synthdp: Callable[..., Any], figure: Callable[..., None], mend: Spoil, bundle: Path, name: str
) -> None:
    """Though its sums fit."""
    before = json.loads((bundle / MODEL).read_text()), load_file(bundle / WEIGHTS)
    MODELS[name](bundle)
    assert "its own parent" not in name or before[0] != json.loads((bundle / MODEL).read_text())
    mend(bundle)
    ended = synthdp("sample", bundle, "--rows", 5, megabytes=1500, seconds=30)
    assert ended.code == 6 and ended.declared, ended.printed[-3000:]
    assert not Path("/tmp/it-ran").exists()
    figure("bad inputs refused with the declared error", 1, 1)


@pytest.mark.parametrize("name", [n for n in MODELS if n not in ("a folder", "a pipe")])
def test_a_bad_model_is_not_verified(
    synthdp: Callable[..., Any], mend: Spoil, bundle: Path, name: str
) -> None:
    """What `verify` lets pass, `sample` can use."""
    MODELS[name](bundle)
    if (bundle / MODEL).is_file() and not (bundle / MODEL).is_symlink():
        mend(bundle)
    ended = synthdp("verify", bundle, megabytes=1500, seconds=60)
    assert ended.code == 6 and ended.declared and "model." in ended.printed, ended.printed[-3000:]


def test_the_model_that_is_spoilt_was_good(synthdp: Callable[..., Any], bundle: Path) -> None:
    ended = synthdp("sample", bundle, "--rows", 5, "--seed", 1)
    assert ended.code == 0 and ended.printed.splitlines()[-6].startswith("sex,"), ended.printed


@pytest.mark.parametrize("name", ["spec.yaml", MODEL, WEIGHTS, "marginals.json"])
def test_a_file_that_was_changed_is_not_sampled(
    synthdp: Callable[..., Any], bundle: Path, name: str
) -> None:
    with (bundle / name).open("ab") as file:
        file.write(b"\n")
    ended = synthdp("sample", bundle, "--rows", 5)
    assert (
        ended.code == 6
        and f"{name} in {bundle} was changed" in ended.printed
        and "synthdp verify" in ended.printed
    ), ended.printed
    assert "sex,grade" not in ended.printed


@pytest.mark.parametrize("name", ["spec.yaml", "SHA256SUMS"])
def test_a_link_in_a_bundle_is_not_followed(
    synthdp: Callable[..., Any], bundle: Path, name: str
) -> None:
    shutil.move(bundle / name, bundle.parent / "elsewhere")
    (bundle / name).symlink_to(bundle.parent / "elsewhere")
    ended = synthdp("sample", bundle, "--rows", 5)
    assert ended.code == 6 and f"cannot read {name}" in ended.printed, ended.printed


def test_a_count_beyond_all_numbers_is_told(
    synthdp: Callable[..., Any], mend: Spoil, bundle: Path
) -> None:
    (bundle / "spec.yaml").write_text(
        (bundle / "spec.yaml").read_text().replace("rake: false", "rake: true")
    )
    content = json.loads((bundle / "marginals.json").read_text())
    content["tables"][0]["counts"][0] = 10**399
    (bundle / "marginals.json").write_text(json.dumps(content))
    mend(bundle)
    ended = synthdp("sample", bundle, "--rows", 5)
    assert ended.code == 6 and ended.declared and "marginals.json" in ended.printed, ended.printed


@pytest.mark.parametrize("spec", ["gone", "another table", "pipe"])
def test_a_model_without_its_spec_is_not_sampled(
    synthdp: Callable[..., Any], mend: Spoil, bundle: Path, spec: str
) -> None:
    path = bundle / "spec.yaml"
    if spec == "another table":
        path.write_text(path.read_text().replace("- female\n", "- female\n    - other\n"))
    else:
        path.unlink()
    if spec == "pipe":
        os.mkfifo(path)
    mend(bundle)
    ended = synthdp("sample", bundle, "--rows", 5)
    assert ended.code in (2, 6) and ended.declared, ended.printed


# --- runs ---

STATE, CHECKPOINT, JOURNAL = "state.json", "train", "measure"


def file(run: Path, name: str) -> Path:
    """The state, or the file that the run's journal holds for a purpose."""
    (found,) = [run / STATE] if name == STATE else run.glob(f"*/{name}.*.safetensors")
    return found


def state(change: Callable[[dict[str, Any]], object]) -> Spoil:
    def spoil(run: Path) -> None:
        content = json.loads((run / STATE).read_text())
        change(content)
        (run / STATE).write_text(json.dumps(content))

    return spoil


def tensors(name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Spoil:
    return lambda run: save_file(change(load_file(file(run, name))), file(run, name))


def content(name: str, data: bytes) -> Spoil:
    return lambda run: file(run, name).write_bytes(data)


def step(number: int) -> Spoil:
    return tensors(CHECKPOINT, lambda t: {**t, "step": np.array(number)})


def piped(name: str) -> Spoil:
    def spoil(run: Path) -> None:
        path = file(run, name)
        path.unlink()
        os.mkfifo(path)

    return spoil


RUNS: dict[str, Spoil] = {
    **{
        f"{name} of no sense": content(name, b"\xff" * 100) for name in (STATE, CHECKPOINT, JOURNAL)
    },
    **{f"{name} empty": content(name, b"") for name in (STATE, CHECKPOINT, JOURNAL)},
    **{
        f"{name} a pickle": content(name, b"\x80\x04cos\nsystem\n(S'touch /tmp/it-ran'\ntR.")
        for name in (STATE, CHECKPOINT, JOURNAL)
    },
    **{f"{name} a pipe": piped(name) for name in (STATE, CHECKPOINT, JOURNAL)},
    **{
        f"{name} cut": lambda run, n=name: os.truncate(file(run, n), 100)
        for name in (STATE, CHECKPOINT, JOURNAL)
    },
    "checkpoint for journal": lambda run: shutil.copy(file(run, CHECKPOINT), file(run, JOURNAL)),
    "journal for checkpoint": lambda run: shutil.copy(file(run, JOURNAL), file(run, CHECKPOINT)),
    "journal of other counts": tensors(JOURNAL, lambda t: {k: v[:-1].copy() for k, v in t.items()}),
    "journal without a table": tensors(JOURNAL, lambda t: dict(list(t.items())[1:])),
    "journal with a table more": tensors(JOURNAL, lambda t: {**t, "x": np.zeros(3)}),
    "journal of NaN": tensors(JOURNAL, lambda t: {k: v * np.nan for k, v in t.items()}),
    "journal of other numbers": tensors(
        JOURNAL, lambda t: {k: v.astype(np.int16) for k, v in t.items()}
    ),
    "journal gone": lambda run: file(run, JOURNAL).unlink(),
    "checkpoint gone": lambda run: file(run, CHECKPOINT).unlink(),
    "checkpoint without a tensor": tensors(CHECKPOINT, lambda t: dict(list(t.items())[1:])),
    "checkpoint of another network": tensors(
        CHECKPOINT, lambda t: {k: v[:1].copy() if v.ndim else v for k, v in t.items()}
    ),
    "checkpoint of NaN": tensors(
        CHECKPOINT, lambda t: {k: v * np.nan if v.ndim else v for k, v in t.items()}
    ),
    "checkpoint before the start": step(-1000),
    "checkpoint of step zero": step(0),
    "checkpoint after the end": step(10**9),
    "checkpoint between checkpoints": step(7),
    "state: a list": content(STATE, b"[]"),
    "state: nested": content(STATE, b"[" * 1_000_000),
    "state: other types": state(lambda s: s.update(run=5, spec_path=[1])),
    "state: a key that is none": state(lambda s: s.update(holdout_key="zz")),
    "state: a huge key": state(lambda s: s.update(holdout_key="f" * 5000)),
    "state: a run that climbs": state(lambda s: s.update(run="../../x")),
    "state: SQL": state(lambda s: s.update(run="'; DROP TABLE synthdp_ledger; --")),
    "state: a nul in the path": state(lambda s: s.update(spec_path="/a\0b")),
    "state: a spec with mistakes": state(lambda s: s.update(spec_text="a: 1")),
    "state: a spec that is a bomb": state(lambda s: s.update(spec_text="[" * 100_000)),
    "state: of a run that nobody knows": state(
        lambda s: s.update(run="20200101-000000000000", spec_path="/nowhere/spec.yaml")
    ),
}


def spends(ledger: Ledger) -> list[str]:
    """Kinds of the entries that tell what was spent."""
    return [e.kind for e in ledger.entries() if e.kind not in INTERNAL]


@pytest.mark.parametrize("name", RUNS)
def test_a_damaged_run_is_told_as_such(
    synthdp: Callable[..., Any], figure: Callable[..., None], stopped: Path, name: str
) -> None:
    """It is never passed over: what was released may have been seen, and a second look would go
    unpaid.
    """
    ledger = Ledger(f"sqlite:///{stopped.parent / '.synthdp' / 'ledger.db'}")
    before = spends(ledger)
    RUNS[name](stopped / ".run")
    ended = synthdp("resume", stopped, megabytes=3000, seconds=60)
    assert ended.code in (2, 3, 5) and ended.declared, (ended.code, ended.printed[-3000:])
    assert (
        spends(ledger) == before
        and (stopped / ".run").is_dir()
        and not Path("/tmp/it-ran").exists()
    )
    figure("bad inputs refused with the declared error", 1, 1)


def test_the_run_that_is_damaged_was_good(synthdp: Callable[..., Any], stopped: Path) -> None:
    ended = synthdp("resume", stopped, megabytes=4000, seconds=120)
    assert ended.code == 0, ended.printed
