"""The Python face: what the command line does, as objects. Names are public at `synthdp` itself."""

from synthdp.api.bundle import Bundle
from synthdp.api.release import Release, attack, audit_release, resume
from synthdp.api.spec import BudgetPlan, Spec

__all__ = ["BudgetPlan", "Bundle", "Release", "Spec", "attack", "audit_release", "resume"]
