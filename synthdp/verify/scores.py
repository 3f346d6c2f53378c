"""The check of published scores: they follow from spec and noisy counts, and pass the gates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from synthdp.bundle.certificate.facts import Certificate
from synthdp.bundle.noisy_tables import read_tables
from synthdp.data.domain import Domain
from synthdp.evaluate.dp_scores import DpScores, dp_scores_of, headline
from synthdp.privacy.events.kinds import event_to_json
from synthdp.privacy.mechanisms.count_noise import sampler_for
from synthdp.privacy.mechanisms.scores import ScoreBudget, Scored, compared
from synthdp.privacy.plan import SCORES
from synthdp.spec.model import Gate
from synthdp.verify.reader import Reader


def score_problems(stated: Certificate, reader: Reader) -> Iterator[str]:
    """How the certificate's scores differ from those of spec, charge and noisy counts."""
    spec = reader.spec
    if not spec.evaluation.dp_scores:
        if stated.scores:
            yield "are there, and the spec has none charged"
        return
    charge = next((e.body["event"] for e in reader.charges if e.body["purpose"] == SCORES), None)
    if charge is None or not stated.scores:
        yield "the spec has them charged, and they are missing, or their charge is"
        return
    sigma = stated.scores[0].sigma
    domain = Domain.from_spec(spec.columns)
    budget = ScoreBudget(
        domain,
        tuple(t for t in spec.evaluation.targets if not domain[t].ranged),
        sigma,
        sampler_for(spec.dataset.privacy_unit.max_rows),
    )
    if event_to_json(budget.event(spec.dataset.privacy_unit.max_rows)) != charge:
        yield "have not the noise, or the number, that the ledger's charge paid for"
    # A distance has one noisy count, the score of a target two.
    sizes = [len(score.counts) for score in stated.scores]
    if (sizes.count(1), sizes.count(2)) != (len(compared(domain)), len(budget.targets)):
        yield "are not as many as the spec has charged"
        return
    true = _again(stated, reader, domain)
    if [s.model_dump() for s in stated.scores] != [s.model_dump() for s in true]:
        yield "do not follow from their noisy counts and marginals.json"
    figures = headline(stated.scores)
    for gate in stated.charged_gates:
        value = figures.get(gate.metric)
        if value is None or not _holds(gate, value):
            yield (
                f"the gate on {gate.metric} does not hold, which the spec says withholds the bundle"
            )


def _holds(gate: Gate, value: float) -> bool:
    if gate.at_most is not None:
        return value <= gate.at_most
    return value >= (gate.at_least or 0.0)


def _again(stated: Certificate, reader: Reader, domain: Domain) -> DpScores:
    """The scores of the stated noisy counts, computed anew."""
    counts = [s.counts for s in stated.scores]
    misplaced = np.array([c[0] for c in counts if len(c) == 1], dtype=np.int64)
    answers = np.array([c for c in counts if len(c) == 2], dtype=np.int64).reshape(-1, 2)
    scored = Scored(
        np.zeros((0, len(domain)), dtype=np.uint16), misplaced, answers, stated.scores[0].sigma
    )
    return dp_scores_of(reader.spec, domain, scored, read_tables(reader.folder))
