"""What follows the bundle: it is judged, the attack is run or put off, the steward gets a report.

An attack is as long as eighty small releases, and nothing that is published depends on it, unless a
gate is on its figures. So it may be put off (`later`), or left out (`never`): when a run is
resumed, or where nobody asked for it and it takes longer than the release.
What it needs is the run's folder, which stays until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from synthdp.bundle.audit_record import audits_for_steward
from synthdp.errors import BUDGET, GateError, OutputError, SynthdpError
from synthdp.progress import stage, tell
from synthdp.release.gates import GateVerdict
from synthdp.release.job import Job, how_to
from synthdp.release.judge import Judge, Judgement, NotJudged, internal_report
from synthdp.release.plan_view import attack_left_out
from synthdp.release.run_folder import FOLDER, STATE, how_to_continue, kept_spec
from synthdp.report.internal.content import ATTACK
from synthdp.spec.load.loader import parse_any
from synthdp.spec.model import ATTACK_METRICS, ReleaseSpec

AttackWhen = Literal["now", "later", "never"]


def _gated(spec: ReleaseSpec) -> list[str]:
    """Figures of the attack that a gate is on."""
    return [gate.metric for gate in spec.gates if gate.metric in ATTACK_METRICS]


def waiting(spec: ReleaseSpec, out: Path, attack: AttackWhen) -> list[str]:
    """The warning that a bundle will wait for its attack."""
    gated = _gated(spec)
    if attack == "now" or not gated:
        return []
    runs = how_to("attack", spec, out)
    return [f"a gate is on {gated[0]}: nothing is published before {runs} has run"]


def put_off(job: Job, attack: AttackWhen) -> list[str]:
    """Says that the attack is still to run, if it is."""
    if attack != "later" or not job.spec.attacks.membership.enabled:
        return []
    return [f"the attack is put off; {how_to('attack', job.spec, job.out)} runs it"]


def check_attacked(job: Job, attack: AttackWhen) -> None:
    """Check that no gate waits for an attack that is not run now.

    Raises:
        GateError: one does; what the run has measured is kept.
    """
    gated = _gated(job.spec)
    if attack == "now" or not gated or job.published:
        return
    raise GateError(
        f"there is no bundle yet: the gate on {gated[0]} waits for the attack",
        hint=f"{how_to('attack', job.spec, job.out)} runs it and decides the gate",
    )


def check_waits(out: Path) -> None:
    """Check that a release in `out` still has an attack to run.

    Raises:
        OutputError: none has.
    """
    if not (out / FOLDER / STATE).exists():
        raise OutputError(
            f"{out} holds no release whose attack is still to run",
            hint="an attack is put off with `synthdp release SPEC --attack later`",
        )
    path, text = kept_spec(out)
    if not parse_any(text, path=str(path)).attacks.membership.enabled:
        raise OutputError(
            f"the release in {out} declares no attack",
            hint=f"finish it with {how_to_continue(out)}",
        )


def judge_and_report(
    judge: Judge,
    found: Judgement,
    verdicts: Sequence[GateVerdict],
    bundle: Path | None,
    *,
    attack: AttackWhen,
) -> tuple[Judgement, Path]:
    """Judge the table beyond what its gates needed, and write the internal report."""
    job = judge.job
    with judging_noted(job, bundle):
        found, absent = judge.rest(found), dict[str, str]()
        if job.spec.attacks.membership.enabled and found.attack is None:
            if attack == "now":
                if bundle is not None:
                    tell(f"the bundle is there: {bundle}; the attack begins")
                found = judge.attacked(found)
            else:
                left_out = job.expected and attack_left_out(job.spec, job.expected)
                (absent[ATTACK],) = put_off(job, attack) or [
                    left_out or "left out when the run was resumed"
                ]
        return found, _report(judge, found, verdicts, absent)


@contextmanager
def judging_noted(job: Job, bundle: Path | None) -> Iterator[None]:
    """Note on whatever ends the judging that the bundle stands, and how to do what is left."""
    try:
        yield
    except BaseException as error:
        if bundle is not None:
            privacy = job.spec.privacy
            error.add_note(
                f"{BUDGET}epsilon {privacy.epsilon:g} at delta {privacy.delta:g} stays spent by run"
                f" {job.folder.run}, and its bundle is whole: {bundle};"
                f" {how_to('resume', job.spec, job.out)} judges it, and pays nothing again"
            )
        raise


def _report(
    judge: Judge, judgement: Judgement, verdicts: Sequence[GateVerdict], absent: dict[str, str]
) -> Path:
    """Write the internal report; without the figures on real rows where they break it."""
    job = judge.job
    with stage("report"):
        write = partial(
            internal_report,
            job.internal,
            job,
            judge.fitted,
            verdicts=verdicts,
            audits=audits_for_steward(job.out, job.plan),
        )
        try:
            return write(judgement, absent=absent)
        except (OSError, SynthdpError):
            raise
        except Exception as error:  # a table or a picture of what rows make odd
            why = {"figures on real rows": str(NotJudged(type(error).__name__))}
            return write(judgement.released, absent=absent | why)
