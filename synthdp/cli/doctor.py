"""`synthdp doctor`: what a release needs of this machine, examined before it is needed.

It reads no rows, spends nothing and creates nothing.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.error import URLError
from urllib.request import urlopen

from synthdp import __version__
from synthdp.errors import INSTALL_RELEASE, SynthdpError
from synthdp.spec.addresses import (
    check_uri,
    ledger_address,
    reason,
    shown_address,
    sqlite_file,
    store_address,
)
from synthdp.spec.model import ReleaseSpec

if TYPE_CHECKING:
    from packaging.requirements import Requirement

State = Literal["ok", "note", "wrong"]
MIN_MEMORY, MIN_DISK = 2.0, 2.0  # GB: what Adult takes with some to spare
SECONDS = 5  # that a server may take to answer


@dataclass(frozen=True)
class Diagnosis:
    """One examined thing.

    `wrong` keeps a release from running; `note` is good to know. `hint` says what to do.
    """

    what: str
    state: State
    found: str
    hint: str | None = None


def examine(spec: ReleaseSpec | None, folder: Path) -> tuple[Diagnosis, ...]:
    """Examine everything, and what a spec names where one is given.

    `folder` is the spec's (`addresses.home`), or the working folder.
    """
    found = [
        *_programs(),
        *_machine(folder),
        _telemetry(),
        _ledger(spec, folder),
        _store(spec, folder),
        _gpu(spec),
        *_engine(spec, folder),
    ]
    return (*found, _signing(spec))


def _programs() -> Iterator[Diagnosis]:
    yield Diagnosis(
        "synthdp",
        "ok",
        f"{__version__} on Python {platform.python_version()}, {platform.system()}"
        f" {platform.machine()}",
    )
    stated = _stated()
    wrong = list(_unmet(r for r in stated if _wanted(r, extra="")))
    if wrong:
        hint = "install them with `pip install` and constraints.txt, or run `make install`"
        yield Diagnosis("libraries", "wrong", "; ".join(wrong), hint)
        return
    wrong = list(_unmet(r for r in stated if not _wanted(r, extra="")))
    if wrong:
        found = f"enough to verify, sample and answer; for releases {'; '.join(wrong)}"
        yield Diagnosis("libraries", "wrong", found, INSTALL_RELEASE)
    else:
        names = ("torch", "opacus", "opendp", "dp-accounting", "mlflow")
        yield Diagnosis("libraries", "ok", ", ".join(f"{n} {metadata.version(n)}" for n in names))


def _stated() -> list[Requirement]:
    """Requirements of the installed synthdp, and of releases; none where it runs from its folder,
    and there is nothing to hold the libraries against.
    """
    from packaging.requirements import Requirement

    try:
        stated = map(Requirement, metadata.requires("synthdp") or [])
    except metadata.PackageNotFoundError:
        return []
    return [r for r in stated if _wanted(r, extra="release")]


def _wanted(requirement: Requirement, *, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _unmet(stated: Iterable[Requirement]) -> Iterator[str]:
    """Those that are missing or of another version."""
    for requirement in stated:
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield f"{requirement.name} is missing"
            continue
        if version not in requirement.specifier:
            yield f"{requirement.name} is {version}, and {requirement.specifier} is wanted"


def _machine(folder: Path) -> Iterator[Diagnosis]:
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    yield Diagnosis("cores", "ok", f"{cores}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    yield _enough(
        "memory",
        memory,
        MIN_MEMORY,
        "a release of a table like Adult takes .7 GB; see `synthdp plan` for yours",
    )
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Diagnosis(
            "folder",
            "wrong",
            f"{folder} cannot be written",
            "work in a folder of your own: ledger, MLflow and releases are written there",
        )
    yield _enough(
        "disk",
        shutil.disk_usage(folder).free / 1e9,
        MIN_DISK,
        "a full disk stops a release after its budget was reserved; make room",
    )


def _enough(what: str, gigabytes: float, least: float, hint: str) -> Diagnosis:
    few = gigabytes < least
    return Diagnosis(
        what,
        "note" if few else "ok",
        f"{gigabytes:.1f} GB{f', less than {least:g}' if few else ''}",
        hint if few else None,
    )


def _telemetry() -> Diagnosis:
    """Whether MLflow's telemetry is switched off for the steward's other programs.

    Every command of ours that imports MLflow switches it off first.
    """
    if os.environ.get("MLFLOW_DISABLE_TELEMETRY", "").lower() in ("true", "1"):
        return Diagnosis("telemetry", "ok", "MLflow's is off")
    hint = "export MLFLOW_DISABLE_TELEMETRY=true, for MLflow that you start yourself"
    return Diagnosis(
        "telemetry", "note", "synthdp switches MLflow's off; your shell does not", hint
    )


def _ledger(spec: ReleaseSpec | None, folder: Path) -> Diagnosis:
    """The ledger opens, and its chain is whole. One that does not exist yet is not made."""
    from synthdp.ledger.ledger import Ledger

    address = ledger_address(spec.privacy.ledger if spec is not None else None, folder)
    file = sqlite_file(address)
    if file is not None and not file.exists():
        return Diagnosis("ledger", "ok", f"{file}: none yet; the first release makes it")
    try:
        book = Ledger(address)
        book.verify_chain()
        datasets = sorted({e.dataset for e in book.entries()})
    except SynthdpError as error:
        return Diagnosis(
            "ledger",
            "wrong",
            error.message,
            error.hint or "what it says is left is not to be trusted: bring it back from a backup",
        )
    return Diagnosis("ledger", "ok", f"whole; datasets: {', '.join(datasets) or 'none'}")


def _store(spec: ReleaseSpec | None, folder: Path) -> Diagnosis:
    """MLflow's store can be reached; one beside the spec is made by the first release."""
    if spec is not None and not spec.tracking.enabled:
        return Diagnosis("mlflow", "ok", "tracking is off in this spec")
    uri = store_address(spec.tracking.uri if spec is not None else None, folder)
    try:
        check_uri(uri)
    except SynthdpError as error:
        return Diagnosis("mlflow", "wrong", error.message, error.hint)
    if uri.startswith(("http://", "https://")):
        return _server(uri)
    file = sqlite_file(uri)
    if file is not None:
        return (
            _sqlite(file)
            if file.exists()
            else Diagnosis("mlflow", "ok", f"{file}: none yet; the first release makes it")
        )
    return Diagnosis(
        "mlflow",
        "note",
        "a database that is not looked into here",
        "a release tries it before anything is spent",
    )


def _sqlite(path: Path) -> Diagnosis:
    import sqlite3

    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            (runs,) = database.execute("SELECT count(*) FROM runs").fetchone()
    except sqlite3.Error as error:
        return Diagnosis(
            "mlflow",
            "wrong",
            f"{path}: is no MLflow store ({error})",
            "move it away, or name another with tracking.uri",
        )
    return Diagnosis("mlflow", "ok", f"{path}: {runs} runs; look at them with `synthdp ui`")


def _server(uri: str) -> Diagnosis:
    shown = shown_address(uri)
    try:
        with urlopen(f"{uri.rstrip('/')}/health", timeout=SECONDS) as answer:
            healthy = answer.status == 200
    except (URLError, OSError, ValueError, HTTPException) as error:
        return Diagnosis(
            "mlflow",
            "wrong",
            f"{shown} does not answer: {reason(error)}",
            "start the server, or set tracking.enabled: false",
        )
    return Diagnosis(
        "mlflow",
        "ok" if healthy else "wrong",
        f"{shown} answers",
        None if healthy else "it is no MLflow server",
    )


def _gpu(spec: ReleaseSpec | None) -> Diagnosis:
    try:
        import torch
    except ModuleNotFoundError:
        return Diagnosis("gpu", "note", "not looked for: that takes torch", INSTALL_RELEASE)
    if torch.cuda.is_available():
        return Diagnosis(
            "gpu", "ok", f"{torch.cuda.get_device_name(0)}; compute.device: cuda would use it"
        )
    if spec is not None and spec.compute.device == "cuda":
        return Diagnosis(
            "gpu",
            "wrong",
            "compute.device is cuda, and this machine has no CUDA device",
            "say compute.device: cpu; it is the same code",
        )
    return Diagnosis("gpu", "ok", "none, and none is needed")


def _engine(spec: ReleaseSpec | None, folder: Path) -> Iterator[Diagnosis]:
    """The engine that counts the table answers, and knows the columns. No row is read."""
    from synthdp.spec.model.rules import engine_of

    if spec is None or (name := engine_of(spec.dataset.source, spec.compute)) == "memory":
        return
    from synthdp.data.domain import Domain
    from synthdp.privacy.source import reach_engine

    try:
        reach_engine(spec.dataset, spec.compute, Domain.from_spec(spec.columns), folder=folder)
    except SynthdpError as error:
        yield Diagnosis("engine", "wrong", f"{name}: {error.message}", error.hint)
    else:
        yield Diagnosis("engine", "ok", f"{name} answers, and has the declared columns")


def _signing(spec: ReleaseSpec | None) -> Diagnosis:
    from synthdp.bundle.signing.keys import load_signer
    from synthdp.spec.model import Signing

    settings = spec.signing if spec is not None else Signing()
    try:
        signer = load_signer(settings)
    except SynthdpError as error:
        return Diagnosis("signing", "wrong", error.message, error.hint)
    if signer is None:
        return Diagnosis(
            "signing",
            "note",
            f"{settings.key_env} is not set: bundles will be unsigned",
            "make a key with `synthdp keygen`",
        )
    return Diagnosis("signing", "ok", signer.identity)
