"""The list of all mechanisms of the kernel, and the replay of those of a plan."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import synthdp.privacy
from synthdp.audit.mechanisms.examples import BATCH, EXAMPLES, no_ticks, runnable
from synthdp.audit.mechanisms.findings import Replayed
from synthdp.audit.mechanisms.neighbours import neighbours
from synthdp.audit.mechanisms.replay import merged, replay
from synthdp.audit.mechanisms.small_model import SmallModel
from synthdp.data.domain import Domain
from synthdp.privacy.dpsgd.settings import DpSgd
from synthdp.privacy.dpsgd.training import PerExampleLoss
from synthdp.privacy.mechanisms.mechanism import Mechanism
from synthdp.privacy.plan import ReleasePlan


def mechanism_classes() -> set[type]:
    """Every class of the kernel that sees rows and states an event."""
    classes: set[type] = set()
    for module in pkgutil.walk_packages(synthdp.privacy.__path__, "synthdp.privacy."):
        imported = importlib.import_module(module.name)
        classes |= {thing for _, thing in inspect.getmembers(imported, inspect.isclass)}
    return {thing for thing in classes if _is_mechanism(thing)}


def _is_mechanism(thing: type) -> bool:
    """Whether a class of the kernel has the methods of a mechanism and is no protocol."""
    if not thing.__module__.startswith("synthdp.privacy") or getattr(thing, "_is_protocol", False):
        return False
    return all(callable(getattr(thing, method, None)) for method in ("run", "event", "pack"))


def unregistered() -> set[type]:
    """Mechanisms of the kernel that have no example here."""
    return mechanism_classes() - EXAMPLES.keys()


def replay_plan(
    plan: ReleasePlan,
    domain: Domain,
    *,
    module: Callable[[str, Domain], PerExampleLoss] = lambda purpose, domain: SmallModel(domain),
    random_pairs: int = 0,
    progress: Callable[[int, int], None] = no_ticks,
) -> Replayed:
    """Replay a release's mechanisms, with its settings and domain, on constructed tables.

    `module` makes what is trained, by purpose. A training is cut to a few steps, each charged as in
    the plan, from the module's weights and from stretched ones. Tables that the release would
    choose later are chosen here.
    """
    trainings = [s.mechanism for s in plan.spends if isinstance(s.mechanism, DpSgd)]
    batch = round(max((t.expected_batch for t in trainings), default=BATCH))
    mechanisms: list[Mechanism[Any]] = []
    for spend in plan.spends:
        mechanisms += runnable(spend.mechanism, domain, partial(module, spend.purpose))
    unit_rows, adjacency = plan.rows_per_unit, plan.adjacency
    replays = []
    for number, mechanism in enumerate(mechanisms):
        progress(number, len(mechanisms))
        pairs = neighbours(
            domain,
            batch=batch,
            max_rows=unit_rows,
            adjacency=adjacency,
            random_pairs=random_pairs,
        )
        replays.append(
            replay(mechanism, pairs, domain=domain, rows_per_unit=unit_rows, adjacency=adjacency)
        )
    progress(len(mechanisms), len(mechanisms))
    return merged(replays)
