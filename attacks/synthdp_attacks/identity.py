"""A digest of a trainer, so that only the trainer that began a game continues it.

It is the same in every process, and differs where settings or code of the trainer differ.

A digest of its class or function - name, source, what a function closes over - and of its fields.
Not seen are the functions that it calls, other modules, files, services. For these, and where a
name should outlive a change of the code, a trainer has an attribute `identity`, or
`Fleet(identity=...)` says it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any

import joblib

from synthdp_attacks.errors import AttackError


def identity_of(trainer: object) -> str:
    """The trainer's own `identity` if it has one, else a digest of what can be seen of it.

    Raises:
        AttackError: its `identity` is an empty text.
    """
    given = getattr(trainer, "identity", None)
    return checked_identity(given) if isinstance(given, str) else str(joblib.hash(_told(trainer)))


def checked_identity(identity: str) -> str:
    """A name that was given by hand.

    Raises:
        AttackError: it is no text, or an empty one.
    """
    if not isinstance(identity, str) or not identity.strip():
        raise AttackError(
            f"identity={identity!r}; give a text that names the trainer and its settings, such as"
            " 'mst 1.2, epsilon 1', or leave it out"
        )
    return identity


def _told(trainer: Any) -> object:
    """What of a trainer, or of one that it holds, goes into its name, as plain values."""
    if isinstance(given := getattr(trainer, "identity", None), str):
        return ("named", given)
    if isinstance(trainer, functools.partial):
        return [_told(trainer.func), _setting(trainer.args), _setting(trainer.keywords)]
    if inspect.ismethod(trainer):
        return [_told(trainer.__func__), _told(trainer.__self__)]
    if inspect.isfunction(trainer):
        held = dict(inspect.getclosurevars(trainer).nonlocals)
        settings = (held, trainer.__defaults__, trainer.__kwdefaults__)
        return [_code(trainer), _setting(settings)]
    if inspect.isclass(trainer):
        return [_code(cls) for cls in inspect.getmro(trainer) if cls is not object]
    if dataclasses.is_dataclass(trainer):
        names = [f.name for f in dataclasses.fields(trainer) if f.compare]
    else:  # no caches
        cached = functools.cached_property
        names = [
            name
            for name in getattr(trainer, "__dict__", ())
            if not isinstance(getattr(type(trainer), name, None), cached)
        ]
    return [_told(type(trainer)), _setting({name: getattr(trainer, name) for name in names})]


def _setting(value: object) -> object:
    """The attributes of a trainer as plain values or a digest.

    What has no readable content, such as a lock, is described by its type.
    """
    if isinstance(value, dict):
        return sorted((str(name), str(_setting(held))) for name, held in value.items())
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(_setting, value)]
    if isinstance(value, set | frozenset):  # in an order that is not another in each process
        return sorted(str(_setting(part)) for part in value)
    if (
        inspect.isroutine(value)
        or inspect.isclass(value)
        or isinstance(value, functools.partial)
        or dataclasses.is_dataclass(value)
    ):
        return _told(value)
    try:
        return str(joblib.hash(value))
    except Exception:  # whatever its own code raises
        return f"{type(value).__module__}.{type(value).__qualname__}"


def _code(made: Any) -> tuple[str, str, str]:
    """Where a function or class is from, and its source where there is one."""
    try:
        source = inspect.getsource(made)
    except (OSError, TypeError):  # typed in, or no Python
        source = ""
    return (str(getattr(made, "__module__", "")), str(getattr(made, "__qualname__", made)), source)
