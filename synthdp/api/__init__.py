"""The Python face: what the command line does, as objects. Names are public at `synthdp` itself."""

from synthdp.api.bundle import Bundle
from synthdp.api.spec import BudgetPlan, Release, Spec, attack, audit_release, resume

__all__ = ["BudgetPlan", "Bundle", "Release", "Spec", "attack", "audit_release", "resume"]
