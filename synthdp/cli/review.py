"""Commands on finished releases and on the machine; exit codes are those of `synthdp`.

The commands are `verify`, `diff`, `audit`, `doctor`, `track` and `ui`.

Only `audit` may read rows, on its own account: it spends nothing, and what it finds on them is for
the steward alone.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.error import URLError
from urllib.request import urlopen

import typer

from synthdp import __version__
from synthdp.cli.options import Json, Out, show, shown
from synthdp.errors import INSTALL_RELEASE, SynthdpError
from synthdp.spec.addresses import (
    check_uri,
    from_folder,
    home,
    ledger_address,
    reason,
    shown_address,
    sqlite_file,
    store_address,
)
from synthdp.spec.load.wording import up
from synthdp.spec.model import ReleaseSpec

if TYPE_CHECKING:
    from packaging.requirements import Requirement


review_app = typer.Typer(rich_markup_mode="markdown")


@review_app.command(**shown("verify"))
def verify(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder.")],
    key: Annotated[
        Path | None,
        typer.Option("--key", help="The publisher's public key (PEM): accept only what it signed."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check offline that a bundle agrees with itself: files, ledger, epsilon, noise, data, model,
    certificate; and who signed it.
    """
    from synthdp.cli.options import ProgressDisplay
    from synthdp.progress import Reporter
    from synthdp.verify.checks import verify_bundle

    with ProgressDisplay() as display, Reporter(display).stage("verify") as progress:
        report = verify_bundle(bundle, key=key, progress=progress)
    facts = {
        "bundle": str(bundle),
        "valid": True,
        "epsilon": report.epsilon,
        "delta": report.delta,
        "checks": list(report.checks),
    }
    facts |= {"signed_by": report.signer, "origin_checked": report.origin_checked}
    show(
        facts,
        as_json=as_json,
        text=lambda: (
            f"{bundle}: {report.established}\n"
            f"{bundle}: claims epsilon {up(report.epsilon or 0.0)} at delta {report.delta:g}\n"
            f"{_parts(report.checks)}"
        ),
    )


def _parts(checks: Sequence[str]) -> str:
    """What was looked at, in lines of the terminal's width."""
    return textwrap.fill(
        f"looked at {len(checks)} parts: {', '.join(checks)}",
        width=shutil.get_terminal_size().columns,
        initial_indent="  ",
        subsequent_indent="    ",
    )


@review_app.command(**shown("diff"))
def diff(
    bundle_a: Annotated[Path, typer.Argument(help="A bundle folder.")],
    bundle_b: Annotated[Path, typer.Argument(help="Another, to compare with the first.")],
    as_json: Json = False,
) -> None:
    """Compare two bundles: budget, graph, table and public quality of the second are better, worse,
    same; verifies both, reads no rows.
    """
    from synthdp.cli.options import ProgressDisplay
    from synthdp.cli.text import difference_text
    from synthdp.progress import Reporter
    from synthdp.verify.diff import compare

    with ProgressDisplay() as display:
        found = compare(bundle_a, bundle_b, reporter=Reporter(display))
    show(found.to_json(), as_json=as_json, text=lambda: difference_text(found))


Audited = Annotated[
    Path,
    typer.Argument(
        metavar="SPEC|BUNDLE",
        help="A release's spec, or the folder of a bundle, which needs no rows.",
    ),
]
Replay = Annotated[
    bool,
    typer.Option(
        "--replay",
        help=(
            "Only record and replay: deterministic, reads no rows. Of a bundle also verify, and"
            " its tables."
        ),
    ),
]
Simulated = Annotated[
    bool,
    typer.Option(
        "--simulated",
        help=(
            "Use the simulated twin instead of the real rows, as a bundle always does: the"
            " result is public."
        ),
    ),
]
Runs = Annotated[int | None, typer.Option(hidden=True)]


@review_app.command(**shown("audit"))
def audit(
    what: Audited,
    replay: Replay = False,
    simulated: Simulated = False,
    runs: Runs = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Try to refute what a spec's mechanisms, or a bundle, claim; spends no budget. On real rows
    the result is for the steward alone.
    """
    from synthdp.audit.plan import (
        DO_NOT_RELEASE,
        DO_NOT_USE,
        NEEDS_ROWS,
        audit_bundle,
        check_unrefuted,
    )
    from synthdp.audit.plan import audit as audit_spec
    from synthdp.cli.options import ProgressDisplay
    from synthdp.cli.text import audit_text
    from synthdp.errors import OutputError
    from synthdp.progress import Reporter

    if runs is not None:
        raise OutputError(
            "--runs: games of many runs are tests now, not a part of `synthdp audit`",
            hint=(
                "leave it out; in synthdp's source `pytest tests/audit/test_worst_case.py` plays"
                " them, and the pytest fixture `replay` tests a mechanism of your own"
            ),
        )
    if replay and simulated:
        raise OutputError(
            "--replay needs no rows, real or simulated", hint="give one of --replay and --simulated"
        )
    rows: Literal["none", "simulated", "real"] = "simulated" if simulated else "real"
    if replay:
        rows = "none"
    of_bundle = what.is_dir()
    with ProgressDisplay() as display:
        reporter = Reporter(display)
        if of_bundle:
            record, path = audit_bundle(what, replay_only=replay, out=out, reporter=reporter)
        else:
            record, path = audit_spec(what, rows=rows, out=out, reporter=reporter)
    facts = record.model_dump() | {"record": str(path)}
    not_audited = [NEEDS_ROWS] if of_bundle else []
    if of_bundle:
        facts["not_audited"] = NEEDS_ROWS
    show(facts, as_json=as_json, text=lambda: "\n".join([audit_text(record, path), *not_audited]))
    check_unrefuted(record, hint=DO_NOT_USE if of_bundle else DO_NOT_RELEASE)


@review_app.command(**shown("doctor"))
def doctor(
    spec: Annotated[
        Path | None,
        typer.Argument(help="A spec, whose ledger, store, device and key are looked at too."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Look at what a release needs of this machine: libraries, ledger, MLflow, cores, memory, GPU,
    telemetry. Exit code 2 if something is wrong.
    """
    from dataclasses import asdict

    from synthdp.cli.text import doctor_text
    from synthdp.errors import OutputError
    from synthdp.spec.load.loader import load_spec

    found = examine(
        load_spec(spec, lists=True) if spec else None, home(spec) if spec else Path.cwd()
    )
    wrong = [f.what for f in found if f.state == "wrong"]
    show(
        {"ok": not wrong, "findings": [asdict(f) for f in found]},
        as_json=as_json,
        text=lambda: doctor_text(found),
    )
    if wrong:
        raise OutputError(
            f"a release would not run here: {', '.join(wrong)}", hint="see above what to do"
        )


@review_app.command(**shown("track"))
def track(
    out: Annotated[Path, typer.Argument(help="Output folder of a release.")],
    store: Annotated[
        str | None,
        typer.Option(
            "--store", help="An MLflow tracking URI [default: that of the release's spec]."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Log a release that MLflow did not get, or not wholly, since its server did not answer; reads
    no rows, spends nothing.
    """
    from synthdp.errors import OutputError
    from synthdp.tracking.mlflow_run import log_later

    warnings = log_later(out, store=from_folder(store, Path.cwd()) if store else None)
    if warnings:
        raise OutputError(
            "; ".join(warnings),
            hint=f"give the command again: `synthdp track {out}` adds what is missing",
        )
    show({"logged": str(out)}, as_json=as_json, text=lambda: f"{out}: logged")


@review_app.command(**shown("ui"))
def ui(
    spec: Annotated[
        Path | None,
        typer.Argument(
            help="A spec whose releases are looked at [default: mlflow.db in this folder]."
        ),
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", help="An MLflow tracking URI instead.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port on loopback [default: a free one].", min=1, max=65535)
    ] = None,
    browser: Annotated[
        bool, typer.Option(help="Open the page in a browser, where this is a terminal.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Show releases in MLflow, at the view for reviewers: starts its server on this machine alone,
    until Ctrl-C. It asks for the password that is printed.
    """
    from importlib.util import find_spec

    from synthdp.spec.load.loader import load_spec
    from synthdp.tracking.server import USER, existing, latest_runs, serving, store_of

    if find_spec("mlflow") is None:  # its server would be a process of its own
        raise ModuleNotFoundError(name="mlflow")
    loaded = load_spec(spec, lists=True) if spec else None
    if store is not None:
        uri, experiment = (
            existing(from_folder(store, Path.cwd())),
            loaded.tracking.experiment if loaded else "synthdp",
        )
    else:
        uri, experiment = store_of(loaded, home(spec) if spec else Path.cwd())
    with serving(uri, port=port, experiment=experiment) as pages:
        page = _shown_page(pages.address, uri)
        runs = latest_runs(pages, experiment) if page == pages.address else []
        listed = [f"{name}: {link}" for name, link in runs]
        login = {} if pages.password is None else {"user": USER, "password": pages.password}
        if login:
            listed.append(f"log in as {USER} with the password {pages.password}")
        show(
            {"url": page, **login, "runs": [{"name": name, "url": link} for name, link in runs]},
            as_json=as_json,
            text=lambda: "\n".join(
                [
                    page,
                    *listed,
                    "(confidential: for the steward's reviewers only; Ctrl-C ends it)",
                ]
            ),
        )
        sys.stdout.flush()
        if browser and sys.stdout.isatty():
            typer.launch(pages.address)  # without the password: other accounts see arguments
        _until_interrupted(uri)


def _shown_page(address: str, uri: str) -> str:
    """The page's address, without what may be a password or a token in that of a server."""
    shown = shown_address(uri)
    plain = not uri.startswith("http") or uri.rstrip("/") == shown
    return (
        address
        if plain
        else (
            f"{shown}/...  (its path, and what else its address holds, are not shown; they are in"
            " tracking.uri)"
        )
    )


def _until_interrupted(uri: str) -> None:
    """Wait for Ctrl-C or an end from outside; a server of others needs nobody to wait for it."""
    import signal
    import threading

    if uri.startswith("http"):
        return
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()


# --- doctor ---
#
# `synthdp doctor`: what a release needs of this machine, examined before it is needed.
#
# It reads no rows, spends nothing and creates nothing.


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
    from synthdp.bundle.signing import load_signer
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
