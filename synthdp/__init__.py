"""synthdp: private synthetic data with a causal graph, one privacy budget and a bundle anyone can
verify.

The names below are imported when they are first asked for, so that `import synthdp` costs nothing.
`docs/python.md` shows them at work; errors are the classes of `synthdp.errors`.

>>> import synthdp
>>> bundle = synthdp.Bundle("releases/clinic/bundle")
>>> bundle.certificate.epsilon <= 1
True
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synthdp.api import BudgetPlan as BudgetPlan
    from synthdp.api import Bundle as Bundle
    from synthdp.api import Release as Release
    from synthdp.api import Spec as Spec
    from synthdp.api import attack as attack
    from synthdp.api import audit_release as audit_release
    from synthdp.api import resume as resume

__version__ = "0.2.0"
__all__ = [
    "BudgetPlan",
    "Bundle",
    "Release",
    "Spec",
    "__version__",
    "attack",
    "audit_release",
    "resume",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'synthdp' has no attribute {name!r}")
    from synthdp import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted(__all__)


def door(room: str, modules: str) -> Callable[[str], Any]:
    """Return a room's `__getattr__`: the public names of `modules`, imported when asked for.

    Tests ask the room for them, so that a name may move to another file of it.
    """
    return partial(_named, room, modules.split())


def _named(room: str, modules: list[str], name: str) -> Any:
    if not name.startswith("_") and find_spec(f"{room}.{name}") is None:
        for module in modules:
            home = import_module(f"{room}.{module}")
            if hasattr(home, name):
                return getattr(home, name)
    raise AttributeError(f"module {room!r} has no attribute {name!r}")
