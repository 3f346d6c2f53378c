"""Try to refute what a spec's mechanisms, or a bundle, claim."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from synthdp.api.bundle import Bundle
from synthdp.api.spec import Spec
from synthdp.errors import extra_named

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.bundle.certificate.audit_record import AuditRecord


@extra_named()
def audit_release(
    what: Spec | Bundle,
    df: pd.DataFrame | None = None,
    *,
    rows: Literal["none", "simulated", "real"] = "simulated",
    runs: int = 5000,
    pairs: int = 100,
    out: str | Path | None = None,
) -> AuditRecord:
    """Audit a spec before its release, or a bundle; spends no budget.

    Args:
        what: a spec, whose planned mechanisms are audited, or a bundle.
        df: the real rows, for `rows="real"` of a spec whose rows are given from Python.
        rows: `none` replays the mechanisms alone, which takes seconds. `simulated` also runs the
            statistical audits on a simulated twin; the result is public. `real` takes the spec's
            own rows; the result is for the steward alone. A bundle has no real rows.
        runs: runs of each mechanism in the statistical audits.
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
    from synthdp.audit.bundle import audit_bundle
    from synthdp.audit.plan import DO_NOT_RELEASE, DO_NOT_USE, audit, check_unrefuted
    from synthdp.errors import OutputError
    from synthdp.privacy.readers.dataframe import seal_dataframe

    target = None if out is None else Path(out).absolute()
    if isinstance(what, Bundle):
        if rows == "real" or df is not None:
            raise OutputError(
                "a bundle holds no real rows to audit", hint="audit the spec that made it"
            )
        record, _ = audit_bundle(
            what.path, replay_only=rows == "none", out=target, runs=runs, pairs=pairs
        )
        check_unrefuted(record, hint=DO_NOT_USE)
        return record
    given = None if df is None else seal_dataframe(df)
    spec = what if df is None else what.of_dataframe()
    target = target or Path("releases").absolute() / spec.content.dataset.id
    record, _ = audit(
        spec.path, rows=rows, out=target, runs=runs, pairs=pairs, text=spec.text, given=given
    )
    check_unrefuted(record, hint=DO_NOT_RELEASE)
    return record
