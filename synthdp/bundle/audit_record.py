"""The result of an audit, as plain facts.

`synthdp audit` writes it. A bundle publishes it where no real row was used.

A record names the spends that it audited. It belongs to a release only if the release planned the
very same ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from synthdp.errors import OutputError, VerifyError
from synthdp.privacy.plan import TRAIN, ReleasePlan, Spend
from synthdp.spec.model import Model

# In the output folder of a release.
PUBLIC_FILE, CONFIDENTIAL_FILE = "audit.json", "internal/audit.json"
SANITY = "sanity, not proof: an audit can refute a privacy claim and never prove one"


class Replay(Model):
    """Record and replay: neighbouring tables, the same noisy outputs, and other differences.

    `findings` lists the differences; there must be none.

    `largest_share`: of what the event allows, the most that any pair used.
    """

    mechanisms: int = Field(ge=0)
    pairs: int = Field(ge=0)
    largest_share: float = Field(ge=0)
    findings: tuple[str, ...]


class Audit(Model):
    """One statistical audit of a mechanism, for a unit of `unit_rows` rows.

    It states the claim, the bound that was shown, and the bound that could have been shown.

    `epsilon_lower` holds with 95% confidence at `delta`; `epsilon_provable` is the largest bound
    that so many runs can show; `power` the chance of an alarm on a mechanism with the `fault` that
    the audit looks for. `epsilon` is None where nothing is claimed at this delta. `refuted` needs
    an alarm in each of three independent audits.
    """

    mechanism: str
    method: str
    unit_rows: int = Field(ge=1)
    runs: int = Field(ge=1)
    epsilon: float | None = Field(ge=0)
    delta: float = Field(ge=0, le=1)
    epsilon_lower: float = Field(ge=0)
    epsilon_provable: float = Field(ge=0)
    fault: str
    power: float = Field(ge=0, le=1)
    refuted: bool


class Advantage(Model):
    """An advantage over guessing with its 95% interval."""

    value: float
    lower: float
    upper: float


class DeclaredAttack(Model):
    """One attack of a membership game, on `models` test models in each world.

    Intervals are of 95%; bounds on epsilon are of 95% for all attacks together.

    `tpr_upper`: upper limit of the true-positive rate at 1% false positives; None where so few
    models cannot show that rate. `epsilon_provable`: the largest bound on epsilon that so many
    models could have shown. `control`: where neither world has the target, so that it must be at
    chance; None where the models are too few for one. What a record of an earlier version lacks is
    None, too.
    """

    attack: str
    models: int = Field(ge=1)
    advantage: float
    lower: float
    upper: float
    auc: float
    auc_upper: float | None = None
    tpr_upper: float | None = None
    epsilon_lower: float = Field(ge=0)
    epsilon_provable: float | None = Field(default=None, ge=0)
    control: Advantage | None = None
    refuted: bool


class Membership(Model):
    """A membership attack on the whole pipeline with shadow models.

    It states the advantage over guessing with its 95% interval, and the claim's ceiling.

    The figures are those of the black box; `attacks` has all that were declared, white boxes of the
    released model and tables among them. `pairs` were used; `pairs_dropped` were asked for too, but
    a training always killed its worker. `baseline`: the black box's classifier on histograms of
    columns, which never ask about the target; None in a record of an earlier version. `unit`: what
    the target is where units have several rows, all of which come and go with it; None: one row.
    `warnings`: what a reader must know before believing the black box and the shadow models, in the
    attack's words.
    """

    pairs: int = Field(ge=1)
    pairs_dropped: int = Field(default=0, ge=0)
    advantage: float
    lower: float
    upper: float
    baseline: Advantage | None = None
    ceiling: float
    epsilon_provable: float | None = Field(default=None, ge=0)
    refuted: bool
    attacks: tuple[DeclaredAttack, ...] = ()
    unit: str | None = None
    warnings: tuple[str, ...] = ()


class TableNoise(Model):
    """Published noisy tables of the same rows, compared with each other.

    `share` is the variance of their differences as a share of the variance that was claimed.

    `too_little`: they agree better than so much noise lets them; `too_much`: worse, so that they
    are not of the same rows or noise.
    """

    tables: int = Field(ge=1)
    comparisons: int = Field(ge=1)
    share: float = Field(ge=0)
    too_little: bool
    too_much: bool


class AuditRecord(Model):
    """All that one audit found. `rows`: `none` or `simulated` (public), or `real` (confidential).

    `replay_only` are mechanisms that only the replay audited.
    """

    program: str = Field(pattern=r"^synthdp [0-9A-Za-z.+_-]{1,40}$")
    day: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    rows: Literal["none", "simulated", "real"]
    spends: tuple[Spend, ...]
    replay: Replay | None = None
    audits: tuple[Audit, ...] = ()
    replay_only: tuple[str, ...] = ()
    membership: Membership | None = None
    tables: TableNoise | None = None

    @property
    def trains(self) -> bool:
        """Whether the audited plan trains a model, which canaries are for."""
        return any(spend.purpose == TRAIN for spend in self.spends)

    @property
    def refuted(self) -> tuple[str, ...]:
        """What speaks against the claim, in words; empty where nothing does."""
        found = list(self.replay.findings) if self.replay else []
        shown = (f"{a.mechanism}: {a.method}" for a in self.audits if a.refuted)
        found += [f"{what}: more is shown than is claimed" for what in shown]
        if self.membership and self.membership.refuted:
            found.append("membership attack: beats the ceiling of the claim beyond chance")
        if self.tables and self.tables.too_little:
            found.append(
                "published tables: they agree better than noise of the size that was claimed lets"
                " them"
            )
        if self.tables and self.tables.too_much:
            found.append(
                "published tables: they differ by more than the noise that was claimed, so they are"
                " not what they are said to be"
            )
        return tuple(found)

    def of_plan(self, plan: ReleasePlan) -> bool:
        """Whether exactly the spends of `plan` were audited."""
        return self.spends == spends_of(plan)

    def covers(self, charges: Iterable[tuple[str, dict[str, Any]]]) -> bool:
        """Whether every (purpose, event) that was charged is one that was audited."""
        audited = {s.purpose: s.event for s in self.spends}
        return all(audited.get(purpose) == event for purpose, event in charges)


def spends_of(plan: ReleasePlan) -> tuple[Spend, ...]:
    """The spends of a plan as an audit names them."""
    return tuple(s.model_copy(update={"mechanism": None}) for s in plan.stated_spends)


def public_audit(out: Path, plan: ReleasePlan) -> AuditRecord | None:
    """The record that a release into `out` publishes; None where no audit was made.

    Raises:
        OutputError: the record is damaged, or of another plan.
        VerifyError: it refutes the plan's claim.
    """
    path = out / PUBLIC_FILE
    record = _read(path)
    if record is None:
        return None
    if record.rows == "real" or not record.of_plan(plan):
        raise OutputError(
            f"{path} audits other spends than this spec plans",
            hint=f"run `synthdp audit` again, or delete {path}",
        )
    if record.refuted:
        raise VerifyError(
            f"the audit in {path} refutes the claim: {'; '.join(record.refuted)}",
            hint="do not release; report this as a defect",
        )
    return record


def audits_for_steward(out: Path, plan: ReleasePlan) -> tuple[AuditRecord, ...]:
    """All records in `out` of this plan."""
    return tuple(record for record in audits_in(out) if record.of_plan(plan))


def audits_in(out: Path) -> tuple[AuditRecord, ...]:
    """All records in `out`, whatever they are of; those on real rows are for the steward alone."""
    found = (_read(out / name) for name in (PUBLIC_FILE, CONFIDENTIAL_FILE))
    return tuple(record for record in found if record is not None)


def _read(path: Path) -> AuditRecord | None:
    """The record in the file `path`; None where there is no such file."""
    if not path.exists():
        return None
    try:
        return AuditRecord.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise OutputError(
            f"{path} is not an audit record ({type(error).__name__})",
            hint="run `synthdp audit` again, or delete the file",
        ) from None
