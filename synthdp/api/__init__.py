"""The Python face: what the command line does, as objects. Names are public at `synthdp` itself."""

from synthdp.api.audit import audit_release
from synthdp.api.bundle import Bundle
from synthdp.api.plan import BudgetPlan
from synthdp.api.release import Release, attack, resume
from synthdp.api.spec import Spec

__all__ = ["BudgetPlan", "Bundle", "Release", "Spec", "attack", "audit_release", "resume"]
