"""What one released bit of the private HSIC test says: dependence or nothing, and never
independence.
"""

from __future__ import annotations

from synthdp.graph.ci_tests.answer import Verdict
from synthdp.privacy.mechanisms.hsic import IndependenceBit


def planned_bit(test: IndependenceBit, mu: float) -> IndependenceBit:
    """The test with the noise that costs `mu`."""
    return test.scaled(1 / (mu * test.noise_multiplier))


def verdict(dependent: bool) -> Verdict:
    """A test that does not reject has shown nothing: without p-value or effect there is no bound to
    claim independence by.
    """
    return "dependent" if dependent else "undecided"
