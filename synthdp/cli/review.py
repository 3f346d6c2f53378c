"""Commands on finished releases and on the machine; exit codes are those of `synthdp`.

The commands are `verify`, `diff`, `audit`, `doctor`, `track` and `ui`.

Only `audit` may read rows, on its own account: it spends nothing, and what it finds on them is for
the steward alone.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from synthdp.cli.help import shown
from synthdp.cli.options import Json, Out, show
from synthdp.spec.addresses import from_folder, home, shown_address
from synthdp.spec.wording import up

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
    from synthdp.cli.progress_bar import ProgressDisplay
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
    from synthdp.cli.progress_bar import ProgressDisplay
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
Runs = Annotated[
    int, typer.Option(help="Runs of each mechanism in the statistical audits.", min=100)
]


@review_app.command(**shown("audit"))
def audit(
    what: Audited,
    replay: Replay = False,
    simulated: Simulated = False,
    runs: Runs = 5000,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Try to refute what a spec's mechanisms, or a bundle, claim; spends no budget. On real rows
    the result is for the steward alone.
    """
    from synthdp.audit.bundle import NEEDS_ROWS, audit_bundle
    from synthdp.audit.plan import DO_NOT_RELEASE, DO_NOT_USE, check_unrefuted
    from synthdp.audit.plan import audit as audit_spec
    from synthdp.cli.progress_bar import ProgressDisplay
    from synthdp.cli.text import audit_text
    from synthdp.errors import OutputError
    from synthdp.progress import Reporter

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
            record, path = audit_bundle(
                what, replay_only=replay, out=out, runs=runs, reporter=reporter
            )
        else:
            record, path = audit_spec(what, rows=rows, out=out, runs=runs, reporter=reporter)
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

    from synthdp.cli.doctor import examine
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
    from synthdp.tracking.later import log_later

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
    from synthdp.tracking.guard import USER
    from synthdp.tracking.server import existing, latest_runs, serving, store_of

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
