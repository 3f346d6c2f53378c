"""A release from Python: what a run came to, going on with it, its attack, and an audit."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from synthdp.api.bundle import Bundle
from synthdp.errors import DataError, OutputError, extra_named

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.api.spec import Spec
    from synthdp.bundle.audit_record import AuditRecord
    from synthdp.release.job import ReleaseOutcome
    from synthdp.release.linked import LinkedOutcome
    from synthdp.spec.model import LinkedSpec

    Rows: TypeAlias = pd.DataFrame | Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Release:
    """A release whose gates held; made by `Spec.release` and `resume`.

    Attributes:
        run: the run's id in the ledger.
        bundle: what was published.
        report: the steward's report (HTML). It is computed on real rows and is never to be shared.
            None where nothing was to be judged.
        epsilon, delta: the guarantee of the bundle.
        gates: each gate's metric and its bound in words, all of which held.
        seconds: wall time of each stage.
        warnings: what the steward should know.

    >>> import synthdp
    >>> release = synthdp.Spec.load("clinic.yaml").release(out="releases/again")
    >>> release.bundle, release.epsilon <= 1, release.gates
    (Bundle('releases/again/bundle'...), True, (('tv1_noisy', 'at most 1'),))
    """

    run: str
    bundle: Bundle
    report: Path | None
    epsilon: float
    delta: float
    gates: tuple[tuple[str, str], ...]
    seconds: Mapping[str, float]
    warnings: tuple[str, ...]
    outcome: ReleaseOutcome | LinkedOutcome = field(repr=False, compare=False)

    @classmethod
    def of_outcome(cls, outcome: ReleaseOutcome | LinkedOutcome) -> Release:
        """From what a run came to.

        Raises:
            GateError: a gate withheld the bundle.
        """
        from synthdp.release.linked import LinkedOutcome

        plan, gates = outcome.job.plan, list[tuple[str, str]]()
        if not isinstance(outcome, LinkedOutcome):
            outcome.check_passed()
            gates = [(v.gate.metric, v.gate.bound) for v in outcome.verdicts]
        assert outcome.bundle is not None  # no gate failed
        return cls(
            run=outcome.job.folder.run,
            bundle=Bundle(outcome.bundle),
            report=outcome.report,
            epsilon=plan.epsilon_spent,
            delta=plan.delta,
            gates=tuple(gates),
            seconds=outcome.seconds,
            warnings=outcome.warnings,
            outcome=outcome,
        )

    def to_json(self) -> dict[str, Any]:
        """The object that `synthdp release --json` prints.

        >>> import synthdp
        >>> made = synthdp.Spec.load("clinic.yaml").release(out="releases/as-json")
        >>> made.to_json()["gates"]
        [{'metric': 'tv1_noisy', 'bound': 'at most 1', 'passed': True}]
        """
        return self.outcome.to_json()

    def __str__(self) -> str:
        return str(self.outcome)

    def _repr_html_(self) -> str:
        from synthdp.api.text import outcome_cards
        from synthdp.release.linked import LinkedOutcome

        done = self.outcome
        return preformatted(done) if isinstance(done, LinkedOutcome) else outcome_cards(done)


def preformatted(told: object) -> str:
    """A text for a notebook."""
    return f"<pre>{html.escape(str(told))}</pre>"


@extra_named()
def resume(
    out: str | Path,
    df: Rows | None = None,
    *,
    spec: str | Path | None = None,
    attack: Literal["now", "never"] = "now",
) -> Release:
    """Continue the interrupted release in the folder `out`, without paying again.

    Args:
        out: the output folder of the run.
        df: the rows again, where the run began with a DataFrame, or with one by table: the same
            ones in the same order. Nothing of them was kept, so that nobody can check it.
        spec: a file with a spec to go on by. It may differ in constraints, sampling and what else
            is done with released values.
        attack: "never" to finish without the declared attack.

    Raises:
        OutputError: there is no interrupted release in `out`.
        SpecError: the new spec changes what the run was paid for.
        DataError: the run needs a DataFrame, or needs none.
        BudgetError, GateError: as for a new release.

    >>> import synthdp
    >>> synthdp.resume("releases/clinic")
    Traceback (most recent call last):
    synthdp.errors.OutputError: ...releases/clinic holds no interrupted run
      hint: start one with `synthdp release SPEC`
    budget: nothing more was spent
    """
    from synthdp.ledger.connect import budget_noted
    from synthdp.release.linked import resume_linked
    from synthdp.release.run import resume as resume_run
    from synthdp.release.run_folder import kept_spec
    from synthdp.spec.load.loader import linked_in

    spec_path, folder = None if spec is None else Path(spec), Path(out).absolute()
    with budget_noted("nothing more was spent"):
        path, text = kept_spec(folder)
        linked = linked_in(text, path=str(path))
        check_tables(df, linked)
    if linked is not None:
        check_plain({"spec": spec, "attack": attack == "never"})
        return Release.of_outcome(resume_linked(linked, folder, **sealed(df)))
    return Release.of_outcome(resume_run(folder, spec_path=spec_path, attack=attack, **sealed(df)))


@extra_named()
def attack(out: str | Path, df: pd.DataFrame | None = None) -> Release:
    """Run the attack that the release in the folder `out` has put off, without paying.

    The internal report and MLflow get its figures. It is on the rows as they are now: nothing was
    kept that could tell whether they changed.

    Args:
        out: the output folder of the release.
        df: the rows again, where the run began with a DataFrame.

    Raises:
        OutputError: no release in `out` has an attack to run.
        DataError, GateError: as for a new release.

    >>> import synthdp
    >>> synthdp.attack("releases/clinic")
    Traceback (most recent call last):
    synthdp.errors.OutputError: .../releases/clinic holds no release whose attack is still to run
      hint: an attack is put off with `synthdp release SPEC --attack later`
    """
    from synthdp.release.run import run_attack

    return Release.of_outcome(run_attack(Path(out).absolute(), **sealed(df)))


def sealed(df: Rows | None) -> dict[str, Any]:
    """The rows behind the seal, as the argument `given`; nothing where there are none."""
    from synthdp.privacy.readers.files import seal_dataframe

    if isinstance(df, Mapping):
        return {"given": {name: seal_dataframe(frame) for name, frame in df.items()}}
    return {} if df is None else {"given": seal_dataframe(df)}


@extra_named()
def audit_release(
    what: Spec | Bundle,
    df: pd.DataFrame | None = None,
    *,
    rows: Literal["none", "simulated", "real"] = "simulated",
    pairs: int = 100,
    out: str | Path | None = None,
) -> AuditRecord:
    """Audit a spec before its release, or a bundle; spends no budget.

    Args:
        what: a spec, whose planned mechanisms are audited, or a bundle.
        df: the real rows, for `rows="real"` of a spec whose rows are given from Python.
        rows: `none` replays the mechanisms alone, which takes seconds. `simulated` also plants
            canaries in a simulated twin and attacks it; the result is public. `real` takes the
            spec's own rows; the result is for the steward alone. A bundle has no real rows.
        pairs: random pairs of neighbours in the replay, beside the corner cases.
        out: where the record is kept [default: `releases/<dataset id>`, for a bundle
            `audits/<dataset id>`]. The next release into the same folder publishes a simulated one.

    Raises:
        VerifyError: a claim is refuted, or the bundle is not what it claims to be.
        OutputError: real rows are asked for of a bundle.
        DataError: the rows do not fit the spec.

    >>> import synthdp
    >>> record = synthdp.audit_release(synthdp.Bundle("releases/clinic/bundle"), rows="none")
    >>> record.rows, record.refuted
    ('none', ())
    """
    from synthdp.audit.plan import DO_NOT_RELEASE, DO_NOT_USE, audit, audit_bundle, check_unrefuted
    from synthdp.privacy.readers.files import seal_dataframe

    target = None if out is None else Path(out).absolute()
    if isinstance(what, Bundle):
        if rows == "real" or df is not None:
            raise OutputError(
                "a bundle holds no real rows to audit", hint="audit the spec that made it"
            )
        record, _ = audit_bundle(what.path, replay_only=rows == "none", out=target, pairs=pairs)
        check_unrefuted(record, hint=DO_NOT_USE)
        return record
    given = None if df is None else seal_dataframe(df)
    spec = what if df is None else what.of_dataframe(df)
    target = target or Path("releases").absolute() / spec.content.dataset.id
    record, _ = audit(spec.path, rows=rows, out=target, pairs=pairs, text=spec.text, given=given)
    check_unrefuted(record, hint=DO_NOT_RELEASE)
    return record


def check_tables(df: Rows | None, linked: LinkedSpec | None) -> None:
    """Raise `DataError` unless rows are given of one table, or of tables that are linked."""
    tables = [] if linked is None else [*linked.dataset.tables]
    if df is not None and (
        isinstance(df, Mapping) is not bool(tables) or not {*df} <= {*(tables or df)}
    ):
        shape = f"{{{', '.join(f'{name!r}: df' for name in tables)}}}"
        message = f"linked tables, {' and '.join(tables)}" if tables else "one table"
        hint = f"give a dict, {shape}" if tables else "give its DataFrame alone"
        raise DataError(f"the spec is of {message}, and other rows were given", hint=hint)


def check_plain(given: Mapping[str, object]) -> None:
    """Raise `OutputError` where an argument or option is given that is of one table."""
    if of_one := [name for name, value in given.items() if value]:
        message = f"{of_one[0]} is not there yet for a spec of linked tables"
        raise OutputError(message, hint="leave it out")
