"""A name of a trainer by what it does: the same in every process, another one as soon as its code or its settings differ.

Results of a game may only be continued by the trainer that began it. Its name is a digest of its fields, of the bytecode of its functions, and
of what these close over or find in their own module, in turn: a class or function of the same name that was edited has another name.
Left out, because they differ between processes or cannot be seen: addresses, caches (`cached_property`, fields with
`compare=False`), state of random generators, the code of other modules, files, services. For these, and where a name should outlive a change
of the code, a trainer has an attribute `identity`, or `Fleet(identity=...)` says it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import types
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np

from attacks.errors import AttackError

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), PurePath, np.dtype)


def identity_of(trainer: object) -> str:
    """The trainer's own `identity` if it has one, else a digest of all that can be seen of it.

    Raises:
        AttackError: its `identity` is an empty text.
    """
    given = getattr(trainer, "identity", None)
    if isinstance(given, str):
        return checked_identity(given)
    home = getattr(trainer, "__module__", None) if isinstance(trainer, types.FunctionType) else type(trainer).__module__
    digest = hashlib.blake2b(digest_size=16)
    for word in _Reader(str(home)).words(trainer):
        digest.update(f"{len(word)}:{word}".encode(errors="backslashreplace"))
    return digest.hexdigest()


def checked_identity(identity: str) -> str:
    """A name that was given by hand.

    Raises:
        AttackError: it is no text, or an empty one.
    """
    if not isinstance(identity, str) or not identity.strip():
        raise AttackError(
            f"identity={identity!r}; give a text that names the trainer and its settings, such as 'mst 1.2, epsilon 1', or leave it out"
        )
    return identity


class _Reader:
    """Spells out one trainer in words that say nothing of where it lies in memory.

    `seen` keeps what was met, so that cycles end and no address is used a second time. Only what has an identity of its own is
    in it: whether two equal texts or tuples are one object is the interpreter's business, and differs.
    """

    def __init__(self, home: str) -> None:
        self.home = home
        self.seen: dict[int, tuple[int, object]] = {}

    def words(self, value: object) -> Iterator[str]:
        """The value, and all that it holds."""
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, Enum):
            yield f"{name} {value.name}"
        elif isinstance(value, _PLAIN):
            yield f"{name} {value!r}"
        elif isinstance(value, (tuple, frozenset, AbstractSet)):
            yield from self._several(name, value)
        elif id(value) in self.seen:
            yield f"as number {self.seen[id(value)][0]}"
        else:
            self.seen[id(value)] = len(self.seen), value
            yield from self._thing(name, value)

    def _thing(self, name: str, value: object) -> Iterator[str]:
        if isinstance(value, types.ModuleType):
            yield f"module {value.__name__} {getattr(value, '__version__', '')}"
        elif isinstance(value, type):
            yield f"class {value.__module__}.{value.__qualname__}"
            if value.__module__ == self.home:
                yield from self._code_of(value)
        elif isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif isinstance(value, types.MethodType):
            yield from self._several(name, (value.__func__, value.__self__))
        elif isinstance(value, functools.partial):
            yield from self._several(name, (value.func, value.args, value.keywords))
        elif isinstance(value, Mapping):
            yield from self._several(name, tuple(value.items()))
        elif isinstance(value, list):
            yield from self._several(name, tuple(value))
        elif (array := _array(value)) is not None:
            content = tuple(array.ravel().tolist()) if array.dtype == object else np.ascontiguousarray(array).tobytes()
            yield from self._several(name, (array.dtype.str, array.shape, tuple(map(str, getattr(value, "columns", ()))), content))
        else:
            yield name
            yield from self.words(type(value))
            yield from self._several(name, tuple(_state(value)))

    def _several(self, name: str, values: tuple[object, ...] | AbstractSet[object]) -> Iterator[str]:
        """Parts in their order; those of a set by what they say, for their order is by address."""
        yield f"{name} of {len(values)}"
        if isinstance(values, tuple):
            for value in values:
                yield from self.words(value)
        else:
            yield from sorted("".join(self.words(value)) for value in values)

    def _function(self, function: types.FunctionType) -> Iterator[str]:
        """Its code where it is of the trainer's own module, and what that needs."""
        yield f"function {function.__module__}.{function.__qualname__}"
        if function.__module__ != self.home:
            return
        yield from self._several("defaults", (function.__defaults__, function.__kwdefaults__))
        yield from self._code(function.__code__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                held = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            yield f"held {name}"
            yield from self.words(held)
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                yield f"global {name}"
                yield from self.words(function.__globals__[name])

    def _code(self, code: types.CodeType) -> Iterator[str]:
        """Bytecode without file names and line numbers."""
        yield f"code {code.co_qualname} {code.co_code.hex()} {code.co_names} {code.co_varnames}"
        for constant in code.co_consts:
            yield from self._code(constant) if isinstance(constant, types.CodeType) else self.words(constant)

    def _code_of(self, cls: type) -> Iterator[str]:
        """Functions and settings of a class, and of its parents."""
        for name, member in sorted(vars(cls).items()):
            function = _function_of(member)
            if function is not None or not name.startswith("__"):
                yield f"member {name}"
                yield from self.words(member if function is None else function)
        for base in cls.__bases__:
            yield from self.words(base)


def _function_of(member: object) -> Callable[..., Any] | None:
    """The function behind a method, a property or a static or class method."""
    if isinstance(member, property):
        member = member.fget
    elif isinstance(member, functools.cached_property):
        member = member.func
    elif isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    return member if isinstance(member, types.FunctionType) else None


def _names(code: types.CodeType) -> set[str]:
    """Names that a function looks up, those of functions within it too."""
    return set(code.co_names).union(*(_names(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def _array(value: object) -> np.ndarray[Any, Any] | None:
    """Arrays, frames, tensors: whatever has numbers to show."""
    if not hasattr(type(value), "__array__"):
        return None
    try:
        return np.asarray(value)
    except Exception:  # a tensor on another device, or one that is being trained
        return None


def _state(value: object) -> Iterator[tuple[str, object]]:
    """Fields of an object by name: those of a dataclass that tell it from another, or all that it would be copied with."""
    if dataclasses.is_dataclass(value):
        yield from ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.compare and hasattr(value, f.name))
        return
    held = object.__getstate__(value)
    parts = held if isinstance(held, tuple) else (held,)
    names = {name: part for own in parts if isinstance(own, Mapping) for name, part in own.items()}
    for name, part in sorted(names.items()):
        cached = isinstance(getattr(type(value), name, None), functools.cached_property)
        if not cached and not name.startswith("__"):
            yield name, part
