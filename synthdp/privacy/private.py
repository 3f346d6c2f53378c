"""The three kinds of value that touch the privacy boundary.

`Private[T]`       sealed: only the kernel opens it. No accessor, no length, no pickle, one
constant repr.
`Released[T]`      came out of a charged mechanism; carries its receipts; post-processing keeps
them.
`Confidential[T]`  was computed on rows without noise: for the steward alone, refused by the bundle.

Python cannot hide a value from code that is determined to reach it. What this module gives is that
no *accident* crosses the boundary: the key below may be imported by the kernel only, which a test
enforces over the whole source tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar, final

from synthdp.errors import BoundaryError, instead, withheld

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")

_KERNEL_KEY = object()


def _check_key(key: object, what: str) -> None:
    if key is not _KERNEL_KEY:
        raise BoundaryError(f"only synthdp.privacy may {what}")


def withholding(look: Callable[P, T]) -> Callable[P, T]:
    """`look`, which has rows open: what it raises that is not ours leaves as its kind and place,
    and no error with the frames of the look, which hold them.
    """

    @wraps(look)
    def quiet(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return instead(lambda: look(*args, **kwargs), withheld)
        except BaseException as error:
            left = error
        left.__cause__ = left.__context__ = None
        raise left.with_traceback(None)

    return quiet


class _Sealed:
    """No pickle, no copy, no size, no iteration, no truth value, and a repr that says nothing."""

    __slots__ = ()

    def _refuse(self, *_: Any) -> NoReturn:
        raise BoundaryError(
            f"{type(self).__name__} values cannot be pickled, copied, measured, compared or looped"
            " over"
        )

    __reduce_ex__ = __reduce__ = __getstate__ = __copy__ = __deepcopy__ = _refuse
    __len__ = __iter__ = __bool__ = __eq__ = __hash__ = __getitem__ = _refuse

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        return repr(self)


@final
class Private(_Sealed, Generic[T]):
    """Rows behind a seal. A table is made by `privacy.source` and opened by `privacy.session`
    alone; a DataFrame that is given is sealed and opened by its reader.
    """

    __slots__ = ("_open",)
    _open: Callable[[], T]

    def __init__(self, value: T, *, key: object) -> None:
        _check_key(key, "seal rows")
        # A closure, not an attribute: debuggers' and loggers' attribute walks do not print it.
        object.__setattr__(self, "_open", lambda: value)

    def __setattr__(self, *_: Any) -> NoReturn:
        self._refuse()

    def unseal(self, *, key: object) -> T:
        """The rows, for the kernel."""
        _check_key(key, "open rows")
        return self._open()


@dataclass(frozen=True, order=True)
class Receipt:
    """Proof of one charge: the run and the hash of the ledger entry that paid for it."""

    run: str
    entry: str


@final
class Released(Generic[T]):
    """A value that was paid for. Anyone may read it; only the session makes one."""

    __slots__ = ("_receipts", "_value")
    _value: T
    _receipts: frozenset[Receipt]

    def __init__(self, value: T, receipts: frozenset[Receipt], *, key: object) -> None:
        _check_key(key, "declare a value released")
        object.__setattr__(self, "_value", value)
        object.__setattr__(self, "_receipts", receipts)

    def __setattr__(self, *_: Any) -> NoReturn:
        raise BoundaryError("Released values are frozen")

    def __reduce__(self) -> NoReturn:
        raise BoundaryError(
            "Released values are not pickled: write their content as JSON or safetensors"
        )

    @property
    def value(self) -> T:
        """The released content."""
        return self._value

    @property
    def receipts(self) -> frozenset[Receipt]:
        """What paid for it."""
        return self._receipts

    def map(self, fn: Callable[[T], U]) -> Released[U]:
        """Post-processing: free, and the result keeps the receipts.

        `fn` must not read rows; it cannot reach any through this module.
        """
        return Released(fn(self._value), self._receipts, key=_KERNEL_KEY)

    def zip(self, other: Released[U]) -> Released[tuple[T, U]]:
        """Both values as one, with the receipts of both."""
        return Released(
            (self._value, other._value), self._receipts | other._receipts, key=_KERNEL_KEY
        )

    def __repr__(self) -> str:
        return f"<Released {type(self._value).__name__}, {len(self._receipts)} receipts>"


@final
class Confidential(_Sealed, Generic[T]):
    """Computed on real rows without noise. `for_steward` is called where internal reports and
    tracking write.
    """

    __slots__ = ("_open", "reason")
    _open: Callable[[], T]
    reason: str

    def __init__(self, value: T, reason: str, *, key: object) -> None:
        _check_key(key, "declare a value confidential")
        object.__setattr__(self, "_open", lambda: value)
        object.__setattr__(self, "reason", reason)

    def __setattr__(self, *_: Any) -> NoReturn:
        self._refuse()

    @withholding
    def map(self, fn: Callable[[T], U]) -> Confidential[U]:
        """A function of it, as confidential as before."""
        return Confidential(fn(self._open()), self.reason, key=_KERNEL_KEY)

    def for_steward(self) -> T:
        """The content, for the internal report, tracking, and gates that were opted into by
        name.
        """
        return self._open()
