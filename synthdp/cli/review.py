"""Commands on finished releases and on the machine; exit codes are those of `synthdp`.

The commands are `verify`, `decide`, `diff`, `audit`, `doctor`, `track` and `ui`. Only `audit` may
read rows, on its own account: it spends nothing, and what it finds on them is for the steward
alone.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from http.client import HTTPException
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.error import URLError
from urllib.request import urlopen

import typer

from synthdp import __version__
from synthdp.cli.options import (
    Browser,
    BundleArgument,
    Json,
    LedgerOfRun,
    Out,
    Port,
    say,
    show,
    shown,
    working,
)
from synthdp.errors import INSTALL_RELEASE, OutputError, SynthdpError
from synthdp.ledger.entries import ANSWERS
from synthdp.spec import addresses
from synthdp.spec.load.wording import up
from synthdp.spec.model import LinkedSpec, ReleaseSpec, Signing

if TYPE_CHECKING:
    from packaging.requirements import Requirement


review_app = typer.Typer(rich_markup_mode="markdown")


@review_app.command(**shown("keygen"))
def keygen(
    folder: Annotated[Path, typer.Argument(help="Where to put the two files.")],
    as_json: Json = False,
) -> None:
    """Make a key pair to sign bundles with; existing keys are never replaced."""
    from synthdp.bundle.signing import make_keys

    private, public = make_keys(folder)
    text = (
        f"{private}: keep it secret; to sign releases, export SYNTHDP_SIGNING_KEY={private}\n"
        f"{public}: publish it; others check with `synthdp verify BUNDLE --key {public.name}`"
    )
    show({"private": str(private), "public": str(public)}, as_json=as_json, text=lambda: text)


@review_app.command(**shown("verify"))
def verify(
    bundle: BundleArgument,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="The publisher's public key (PEM): accept only what it signed."),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            help="Ledger file or SQLAlchemy URL: it must have the bundle's entries, and says what"
            " was decided.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check offline that a bundle agrees with itself: files, ledger, epsilon, noise, data, model,
    certificate; and who signed it.
    """
    from synthdp.verify.at_hand import book_of, decided
    from synthdp.verify.checks import verify_bundle

    with working("verify") as progress:
        report = verify_bundle(bundle, key=key, progress=progress)
        said = None if ledger is None else decided(bundle, book_of(bundle, ledger, None).entries())
    facts = {"bundle": str(bundle), "valid": True, "epsilon": report.epsilon, "delta": report.delta}
    facts |= {"checks": list(report.checks), "signed_by": report.signer}
    facts |= {"origin_checked": report.origin_checked}
    parts = textwrap.fill(
        f"looked at {len(report.checks)} parts: {', '.join(report.checks)}",
        width=shutil.get_terminal_size().columns,
        initial_indent="  ",
        subsequent_indent="    ",
    )
    claims = f"epsilon {up(report.epsilon or 0.0)} at delta {report.delta or 0.0:g}"
    lines = [f"{bundle}: {report.established}", f"{bundle}: claims {claims}", parts]
    if said is not None:
        facts["decision"] = said
        lines.append(f"{bundle}: its entries are in the ledger; {said}")
    show(facts, as_json=as_json, text=lambda: "\n".join(lines))


@review_app.command(**shown("decide"))
def decide(
    out: Annotated[Path, typer.Argument(help="Output folder of a release, or a bundle folder.")],
    yes: Annotated[bool, typer.Option("--yes", help="It may be published.")] = False,
    no: Annotated[bool, typer.Option("--no", help="It may not.")] = False,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="It was published, and is taken back.")
    ] = False,
    by: Annotated[str | None, typer.Option("--by", help="Who decides.")] = None,
    why: Annotated[str | None, typer.Option("--why", help="The reasons, in one line.")] = None,
    ledger: LedgerOfRun = None,
    as_json: Json = False,
) -> None:
    """Record in the ledger whether a bundle may be published, by whom and why; the last decision
    holds. Without an answer, show it and the red lines. Reads no rows, spends nothing.
    """
    from synthdp.api.bundle import Bundle, book_of_run
    from synthdp.ledger.connect import budget_noted
    from synthdp.release.gates import red_lines
    from synthdp.verify.at_hand import LEDGER, decided

    bundle = (out if (out / LEDGER).exists() else out / "bundle").absolute()
    asked = {"yes": yes, "no": no, "withdrawn": withdraw}
    answers = [answer for answer in ANSWERS if asked[answer]]
    said = [text for text in (by, why) if text is not None]
    with budget_noted(), working():
        if not (bundle / LEDGER).exists():
            raise OutputError(
                f"{out} holds no bundle: there is nothing to decide on",
                hint="give the output folder of a release whose gates held, or a bundle folder",
            )
        if (len(answers), len(said)) not in ((0, 0), (1, 2)):
            raise OutputError(
                "a decision is one answer, who gives it and why; nothing was recorded",
                hint="give one of --yes, --no and --withdraw, with --by NAME and --why TEXT;"
                " without any of these, what was decided is shown",
            )
        if answers:
            made = Bundle(bundle).decide(answers[0], by=said[0], why=said[1], ledger=ledger)
            facts, lines = {"bundle": str(out)} | asdict(made), [f"{out}: recorded: {made}"]
        else:
            entries = book_of_run(bundle, ledger).entries()
            ticks, holds = red_lines(bundle, entries), decided(bundle, entries)
            facts = {"bundle": str(out), "decision": holds, "red_lines": [*map(asdict, ticks)]}
            head = "red lines: [x] not crossed, [!] crossed, [ ] for a person to tell"
            lines = [f"{out}: {holds}", head, *map(str, ticks)]
    for warning in facts.get("warnings", ()):
        say(f"warning: {warning}", err=True)
    show(facts, as_json=as_json, text=lambda: "\n".join(lines))


@review_app.command(**shown("diff"))
def diff(
    bundle_a: Annotated[
        Path, typer.Argument(help="A bundle folder, or plan.json of a release's output folder.")
    ],
    bundle_b: Annotated[Path, typer.Argument(help="Another bundle, or the one that came of it.")],
    as_json: Json = False,
) -> None:
    """Compare two bundles: budget, graph, table and public quality of the second are better, worse,
    same; or what a plan expected and what came. Verifies bundles, reads no rows.
    """
    from synthdp.api.text import difference_text
    from synthdp.verify.diff import compare

    with working():
        found = compare(bundle_a, bundle_b)
    show(found, as_json=as_json, text=lambda: difference_text(found))


@review_app.command(**shown("audit"))
def audit(
    what: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC|BUNDLE",
            help="A release's spec, or the folder of a bundle, which needs no rows.",
        ),
    ],
    replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="Only record and replay: deterministic, reads no rows. Of a bundle also verify,"
            " and its tables.",
        ),
    ] = False,
    simulated: Annotated[
        bool,
        typer.Option(
            "--simulated",
            help="Use the simulated twin instead of the real rows, as a bundle always does: the"
            " result is public.",
        ),
    ] = False,
    runs: Annotated[int | None, typer.Option(hidden=True)] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Try to refute what a spec's mechanisms, or a bundle, claim; spends no budget. On real rows
    the result is for the steward alone.
    """
    from synthdp.api.text import audit_text
    from synthdp.audit import plan
    from synthdp.bundle.content import is_linked
    from synthdp.spec.load.loader import linked_in, own_text

    if runs is not None:
        raise OutputError(
            "--runs: games of many runs are tests now, not a part of `synthdp audit`",
            hint=(
                "leave it out; in synthdp's source `pytest tests/audit/test_worst_case.py` plays"
                " them, and the pytest fixture `replay` tests a mechanism of your own"
            ),
        )
    if replay and simulated:
        hint = "give one of --replay and --simulated"
        raise OutputError("--replay needs no rows, real or simulated", hint=hint)
    rows: Literal["none", "simulated", "real"] = "simulated" if simulated else "real"
    of_bundle = what.is_dir()
    with working():
        two = is_linked(what) if of_bundle else bool(linked_in(own_text(what), path=str(what)))
        if of_bundle:
            record, path = plan.audit_bundle(what, replay_only=replay, out=out)
        else:
            record, path = plan.audit(what, rows="none" if replay else rows, out=out)
    not_audited = {"not_audited": plan.NEEDS_ROWS} if of_bundle else {}
    facts = record.model_dump() | {"record": str(path)} | not_audited
    text = audit_text(record, path, published=not two)
    show(facts, as_json=as_json, text=lambda: "\n".join([text, *not_audited.values()]))
    plan.check_unrefuted(record, hint=plan.DO_NOT_USE if of_bundle else plan.DO_NOT_RELEASE)


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
    from synthdp.api.text import Rows, render
    from synthdp.spec.load.loader import own_spec

    content = own_spec(spec) if spec else None
    found = list(examine(content, addresses.home(spec) if spec else Path.cwd()))
    wrong = [f.what for f in found if f.state == "wrong"]
    words = {"wrong": "WRONG"}
    rows = [
        (words.get(f.state, f.state), f.what, "\n".join(filter(None, (f.found, f.hint))))
        for f in found
    ]
    facts = {"ok": not wrong, "findings": list(map(asdict, found))}
    show(facts, as_json=as_json, text=lambda: render(Rows(["", "", ""], rows, numbers=[])))
    if wrong:
        message = f"a release would not run here: {', '.join(wrong)}"
        raise OutputError(message, hint="see above what to do")


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
    from synthdp.tracking.mlflow_run import log_later

    warnings = log_later(out, store=addresses.from_folder(store, Path.cwd()) if store else None)
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
    port: Port = None,
    browser: Browser = True,
    as_json: Json = False,
) -> None:
    """Show releases in MLflow, at the view for reviewers: starts its server on this machine alone,
    until Ctrl-C. It asks for the password that is printed.
    """
    from synthdp.bundle.linked import own_as_one
    from synthdp.tracking.server import USER, existing, latest_runs, serving, store_of

    if find_spec("mlflow") is None:  # its server would be a process of its own
        raise ModuleNotFoundError(name="mlflow")
    loaded = own_as_one(spec) if spec else None
    if store is not None:
        uri = existing(addresses.from_folder(store, Path.cwd()))
        experiment = loaded.tracking.experiment if loaded else "synthdp"
    else:
        uri, experiment = store_of(loaded, addresses.home(spec) if spec else Path.cwd())
    with serving(uri, port=port, experiment=experiment) as pages:
        page = _shown_page(pages.address, uri)
        runs = latest_runs(pages, experiment) if page == pages.address else []
        login = {} if pages.password is None else {"user": USER, "password": pages.password}
        lines = [page, *(f"{name}: {link}" for name, link in runs)]
        if login:
            lines.append(f"log in as {USER} with the password {pages.password}")
        lines.append("(confidential: for the steward's reviewers only; Ctrl-C ends it)")
        listed = [{"name": name, "url": link} for name, link in runs]
        facts = {"url": page, **login, "runs": listed}
        show(facts, as_json=as_json, text=lambda: "\n".join(lines))
        sys.stdout.flush()
        if browser and sys.stdout.isatty():
            typer.launch(pages.address)  # without the password: other accounts see arguments
        _until_interrupted(uri)


def _shown_page(address: str, uri: str) -> str:
    """The page's address, without what may be a password or a token in that of a server."""
    shown = addresses.shown_address(uri)
    if not uri.startswith("http") or uri.rstrip("/") == shown:
        return address
    hidden = "its path, and what else its address holds, are not shown; they are in tracking.uri"
    return f"{shown}/...  ({hidden})"


def _until_interrupted(uri: str) -> None:
    """Wait for Ctrl-C or an end from outside; a server of others needs nobody to wait for it."""
    if uri.startswith("http"):
        return
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()


# --- doctor ---
#
# What a release needs of this machine, examined before it is needed: reads no rows, spends nothing
# and creates nothing. A check yields its findings, or raises what is wrong.

MIN_MEMORY, MIN_DISK = 2.0, 2.0  # GB: what Adult takes with some to spare


@dataclass(frozen=True)
class Diagnosis:
    """One examined thing.

    `wrong` keeps a release from running; `note` is good to know. `hint` says what to do.
    """

    what: str
    state: Literal["ok", "note", "wrong"]
    found: str
    hint: str | None = None


def examine(spec: ReleaseSpec | LinkedSpec | None, folder: Path) -> Iterator[Diagnosis]:
    """Examine everything, and what a spec names where one is given.

    `folder` is the spec's (`addresses.home`), or the working folder.
    """
    from synthdp.bundle.linked import as_one
    from synthdp.spec.checks.linked import one_table

    one = as_one(spec) if isinstance(spec, LinkedSpec) else spec
    tables = [one] if one else []
    if isinstance(spec, LinkedSpec):
        tables = [one_table(spec, name) for name in spec.dataset.tables]
    checks: dict[str, Callable[[ReleaseSpec | None, Path], Iterator[Diagnosis]]] = {
        "libraries": _programs,
        "machine": _machine,
        "ledger": _ledger,
        "mlflow": _store,
        "gpu": _gpu,
        "engine": lambda one, folder: _engine(one, tables, folder),
        "signing": _signing,
    }
    for what, check in checks.items():
        try:
            yield from check(one, folder)
        except SynthdpError as error:
            yield Diagnosis(what, "wrong", error.message, error.hint)


def _programs(spec: ReleaseSpec | None, folder: Path) -> Iterator[Diagnosis]:
    system = f"{platform.system()} {platform.machine()}"
    on = f"{__version__} on Python {platform.python_version()}, {system}"
    yield Diagnosis("synthdp", "ok", on)
    stated = _stated()
    if wrong := list(_unmet(r for r in stated if _wanted(r, extra=""))):
        hint = "install them with `pip install` and constraints.txt, or run `make install`"
        raise OutputError("; ".join(wrong), hint=hint)
    if wrong := list(_unmet(r for r in stated if not _wanted(r, extra=""))):
        found = f"enough to verify, sample and answer; for releases {'; '.join(wrong)}"
        raise OutputError(found, hint=INSTALL_RELEASE)
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
    for requirement in stated:
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield f"{requirement.name} is missing"
            continue
        if version not in requirement.specifier:
            yield f"{requirement.name} is {version}, and {requirement.specifier} is wanted"


def _machine(spec: ReleaseSpec | None, folder: Path) -> Iterator[Diagnosis]:
    counted = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if counted else os.cpu_count() or 1
    yield Diagnosis("cores", "ok", f"{cores}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    hint = "a release of a table like Adult takes .7 GB; see `synthdp plan` for yours"
    yield _enough("memory", memory, MIN_MEMORY, hint)
    if not os.access(folder, os.W_OK | os.X_OK):
        hint = "work in a folder of your own: ledger, MLflow and releases are written there"
        yield Diagnosis("folder", "wrong", f"{folder} cannot be written", hint)
    hint = "a full disk stops a release after its budget was reserved; make room"
    yield _enough("disk", shutil.disk_usage(folder).free / 1e9, MIN_DISK, hint)
    # Every command of ours that imports MLflow switches its telemetry off first.
    if os.environ.get("MLFLOW_DISABLE_TELEMETRY", "").lower() in ("true", "1"):
        yield Diagnosis("telemetry", "ok", "MLflow's is off")
    else:
        hint = "export MLFLOW_DISABLE_TELEMETRY=true, for MLflow that you start yourself"
        found = "synthdp switches MLflow's off; your shell does not"
        yield Diagnosis("telemetry", "note", found, hint)


def _enough(what: str, gigabytes: float, least: float, hint: str) -> Diagnosis:
    if gigabytes < least:
        return Diagnosis(what, "note", f"{gigabytes:.1f} GB, less than {least:g}", hint)
    return Diagnosis(what, "ok", f"{gigabytes:.1f} GB")


def _ledger(spec: ReleaseSpec | None, folder: Path) -> Iterator[Diagnosis]:
    """The ledger opens, and its chain is whole. One that does not exist yet is not made."""
    from synthdp.ledger.ledger import Ledger

    address = addresses.ledger_address(spec.privacy.ledger if spec is not None else None, folder)
    file = addresses.sqlite_file(address)
    if file is not None and not file.exists():
        yield Diagnosis("ledger", "ok", f"{file}: none yet; the first release makes it")
        return
    try:
        book = Ledger(address)
        book.verify_chain()
        datasets = sorted({e.dataset for e in book.entries()})
    except SynthdpError as error:
        hint = "what it says is left is not to be trusted: bring it back from a backup"
        raise OutputError(error.message, hint=error.hint or hint) from None
    yield Diagnosis("ledger", "ok", f"whole; datasets: {', '.join(datasets) or 'none'}")


def _store(spec: ReleaseSpec | None, folder: Path) -> Iterator[Diagnosis]:
    """MLflow's store can be reached; one beside the spec is made by the first release."""
    if spec is not None and not spec.tracking.enabled:
        yield Diagnosis("mlflow", "ok", "tracking is off in this spec")
        return
    uri = addresses.store_address(spec.tracking.uri if spec is not None else None, folder)
    addresses.check_uri(uri)
    file = addresses.sqlite_file(uri)
    if uri.startswith(("http://", "https://")):
        yield Diagnosis("mlflow", "ok", f"{_server(uri)} answers")
    elif file is None:
        hint = "a release tries it before anything is spent"
        yield Diagnosis("mlflow", "note", "a database that is not looked into here", hint)
    elif file.exists():
        found = f"{file}: {_tracked_runs(file)} runs; look at them with `synthdp ui`"
        yield Diagnosis("mlflow", "ok", found)
    else:
        yield Diagnosis("mlflow", "ok", f"{file}: none yet; the first release makes it")


def _tracked_runs(path: Path) -> int:
    import sqlite3

    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            (runs,) = database.execute("SELECT count(*) FROM runs").fetchone()
    except sqlite3.Error as error:
        hint = "move it away, or name another with tracking.uri"
        raise OutputError(f"{path}: is no MLflow store ({error})", hint=hint) from None
    return int(runs)


def _server(uri: str) -> str:
    """The address of an MLflow server that answers, as it may be shown."""
    shown = addresses.shown_address(uri)
    try:
        with urlopen(f"{uri.rstrip('/')}/health", timeout=5) as answer:
            healthy = answer.status == 200
    except (URLError, OSError, ValueError, HTTPException) as error:
        hint = "start the server, or set tracking.enabled: false"
        raise OutputError(
            f"{shown} does not answer: {addresses.reason(error)}", hint=hint
        ) from None
    if not healthy:
        raise OutputError(f"{shown} answers", hint="it is no MLflow server")
    return shown


def _gpu(spec: ReleaseSpec | None, folder: Path) -> Iterator[Diagnosis]:
    try:
        import torch
    except ModuleNotFoundError:
        yield Diagnosis("gpu", "note", "not looked for: that takes torch", INSTALL_RELEASE)
        return
    if torch.cuda.is_available():
        found = f"{torch.cuda.get_device_name(0)}; compute.device: cuda would use it"
        yield Diagnosis("gpu", "ok", found)
    elif spec is not None and spec.compute.device == "cuda":
        raise OutputError(
            "compute.device is cuda, and this machine has no CUDA device",
            hint="say compute.device: cpu; it is the same code",
        )
    else:
        yield Diagnosis("gpu", "ok", "none, and none is needed")


def _engine(
    spec: ReleaseSpec | None, tables: list[ReleaseSpec], folder: Path
) -> Iterator[Diagnosis]:
    """The engine that counts the table answers, and knows the columns. No row is read."""
    from synthdp.spec.model.rules import engine_of

    if spec is None or (name := engine_of(spec.dataset.source, spec.compute)) == "memory":
        return
    from synthdp.data.domain import Domain
    from synthdp.privacy.source import reach_engine

    try:
        for own in tables:
            reach_engine(own.dataset, spec.compute, Domain.from_spec(own.columns), folder=folder)
    except SynthdpError as error:
        raise OutputError(f"{name}: {error.message}", hint=error.hint) from None
    yield Diagnosis("engine", "ok", f"{name} answers, and has the declared columns")


def _signing(spec: ReleaseSpec | None, folder: Path) -> Iterator[Diagnosis]:
    from synthdp.bundle.signing import load_signer

    settings = spec.signing if spec is not None else Signing()
    signer = load_signer(settings)
    if signer is None:
        unset = f"{settings.key_env} is not set: bundles will be unsigned"
        yield Diagnosis("signing", "note", unset, "make a key with `synthdp keygen`")
    else:
        yield Diagnosis("signing", "ok", signer.identity)
