"""A finished release, and the two ways to one: a new run, and an interrupted one that goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from synthdp.api.bundle import Bundle
from synthdp.api.cards import cards_html
from synthdp.errors import extra_named

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.release.job import ReleaseOutcome


@dataclass(frozen=True)
class Release:
    """A release whose gates held; made by `Spec.release` and `resume`.

    Attributes:
        run: the run's id in the ledger.
        bundle: what was published.
        report: the steward's report (HTML). It is computed on real rows and is never to be shared.
        epsilon, delta: the guarantee of the bundle.
        gates: each gate's metric and its bound in words, all of which held.
        seconds: wall time of each stage.
        warnings: what the steward should know.

    >>> import synthdp
    >>> release = synthdp.Spec.load("clinic.yaml").release(out="releases/again")
    >>> release.bundle, release.epsilon <= 1, release.gates
    (Bundle('releases/again/bundle'), True, (('tv1_noisy', 'at most 1'),))
    """

    run: str
    bundle: Bundle
    report: Path
    epsilon: float
    delta: float
    gates: tuple[tuple[str, str], ...]
    seconds: Mapping[str, float]
    warnings: tuple[str, ...]

    @classmethod
    def of_outcome(cls, outcome: ReleaseOutcome) -> Release:
        """From what a run came to.

        Raises:
            GateError: a gate withheld the bundle.
        """
        outcome.check_passed()
        assert outcome.bundle is not None  # no gate failed
        plan = outcome.job.plan
        return cls(
            run=outcome.job.folder.run,
            bundle=Bundle(outcome.bundle),
            report=outcome.report,
            epsilon=plan.epsilon_spent,
            delta=plan.delta,
            gates=tuple((v.gate.metric, v.bound) for v in outcome.verdicts),
            seconds=outcome.seconds,
            warnings=outcome.warnings,
        )

    def _repr_html_(self) -> str:
        from synthdp.report.verdicts import Verdict

        cards = [
            Verdict("Guarantee", f"epsilon {self.epsilon:.4f}", f"at delta {self.delta:g}"),
            Verdict("Bundle", str(self.bundle.path), "public: give it to anyone"),
            Verdict("Report", str(self.report), "for the steward only: computed on real rows"),
            *(Verdict(f"Gate {metric}", "passed", bound, "good") for metric, bound in self.gates),
        ]
        return cards_html(f"Release, run {self.run}", cards, notes=self.warnings)


@extra_named()
def resume(
    out: str | Path,
    df: pd.DataFrame | None = None,
    *,
    spec: str | Path | None = None,
    attack: Literal["now", "never"] = "now",
) -> Release:
    """Continue the interrupted release in the folder `out`, without paying again.

    Args:
        out: the output folder of the run.
        df: the rows again, where the run began with a DataFrame: the same ones in the same order.
            Nothing of them was kept, so that nobody can check it.
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
    from synthdp.release.run import resume as resume_run

    spec_path, folder = None if spec is None else Path(spec), Path(out).absolute()
    return Release.of_outcome(resume_run(folder, spec_path=spec_path, attack=attack, **_sealed(df)))


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

    return Release.of_outcome(run_attack(Path(out).absolute(), **_sealed(df)))


def run_release(
    spec_path: Path,
    text: str,
    df: pd.DataFrame | None,
    *,
    out: Path,
    force: bool,
    attack: Literal["now", "later"] = "now",
) -> Release:
    """Run the spec `text`, whose relative paths start from the folder of `spec_path`.

    Both paths are absolute: the working folder may change while the run lasts.

    `Spec.release` is the way to call it.

    >>> path, out = Path("clinic.yaml").absolute(), Path("releases/third").absolute()
    >>> made = run_release(path, path.read_text(), None, out=out, force=False)
    >>> made.bundle.path == out / "bundle"
    True
    """
    from synthdp.release.run import release

    return Release.of_outcome(
        release(spec_path, text=text, out=out, force=force, attack=attack, **_sealed(df))
    )


def _sealed(df: pd.DataFrame | None) -> dict[str, Any]:
    """The rows behind the seal, as the argument `given`; nothing where there are none."""
    from synthdp.privacy.readers.dataframe import seal_dataframe

    return {} if df is None else {"given": seal_dataframe(df)}
