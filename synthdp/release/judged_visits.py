"""Judging persons with visits on the real ones, for the steward: after the bundle, once.

What is found is `Confidential`, and of an error its kind alone is told, as in `release.judge`. This
module opens confidential values.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from synthdp.bundle.linked import LinkedBundle
from synthdp.data.visits import OUTER, PERSONS, STEPS, Views
from synthdp.errors import one_thread
from synthdp.evaluate.visits import RealFigures, real_figures
from synthdp.privacy.linked import LinkedTable
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.session import Session
from synthdp.privacy.table import Table
from synthdp.release.judge import NotJudged, guarded
from synthdp.report.internal.page import VisitJudgement, write_internal_visits


def judge_visits(
    session: Session, bundle: LinkedBundle, internal: Path
) -> tuple[Path, dict[str, float]]:
    """Write the internal report; its page, and the figures for the steward's MLflow."""
    frame, targets = bundle.frame, bundle.linked.evaluation.targets
    number = frame.views[PERSONS].index(frame.now("number"))

    def look(table: Table) -> RealFigures:
        assert isinstance(table, LinkedTable)
        steps = table.views[STEPS].units
        assert steps is not None
        codes = {name: table.views[name].codes for name in (PERSONS, OUTER, STEPS)}
        visited = np.flatnonzero(codes[PERSONS][:, number] > 0)
        owners = {PERSONS: np.arange(len(codes[PERSONS])), OUTER: visited, STEPS: steps}
        with one_thread():
            return real_figures(
                *(frame, bundle.groups, Views(codes, owners), bundle.views, targets),
                rng=fresh_generator(),
                held_out=table.held_out,
            )

    reason = "evaluation on real persons"
    found = session.inspect(lambda table: guarded(look, table), reason=reason).for_steward()
    judged = None if isinstance(found, NotJudged) else found
    content = VisitJudgement(
        facts=bundle.certificate.model_dump(mode="json"),
        day=bundle.day,
        scores=bundle.scores,
        found=judged,
        absent=str(found) if judged is None else "",
        held_out=bundle.linked.evaluation.held_out,
    )
    page = write_internal_visits(internal, content)
    return page, {} if judged is None else judged.metrics()
