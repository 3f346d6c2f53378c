"""Sealed values: what they refuse, and what a released value keeps."""

import copy
import json
import pickle  # noqa: TID251  the test shows that it is refused
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthdp.errors import BoundaryError
from synthdp.privacy.private import _KERNEL_KEY, Confidential, Private, Receipt, Released

CANARY = "canary-7431"
SEALED = [
    Private([CANARY, 2], key=_KERNEL_KEY),
    Confidential([CANARY, 2], "a test", key=_KERNEL_KEY),
]


@pytest.fixture(params=SEALED, ids=["Private", "Confidential"])
def sealed(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize(
    "attempt",
    [
        *(pickle.dumps, copy.copy, copy.deepcopy, len, iter, list, bool, hash),
        *(lambda x: pickle.dumps(x, protocol=0), lambda x: pickle.dumps([x])),
        *(lambda x: copy.deepcopy({"a": x}), lambda x: {x}, lambda x: x == x, lambda x: x != 1),
        *(lambda x: x in [1], lambda x: x[0], lambda x: 2 in x),
        *(lambda x: x.__getstate__(), lambda x: x.__reduce__()),
        lambda x: setattr(x, "_open", None),
    ],
)
def test_refuses(sealed: Any, attempt: Any) -> None:
    with pytest.raises(BoundaryError):
        attempt(sealed)


@pytest.mark.parametrize(
    "attempt", [json.dumps, vars, float, lambda x: x < x, lambda x: x + x, lambda x: x.value]
)
def test_gives_nothing_to_what_it_does_not_know(sealed: Any, attempt: Any) -> None:
    with pytest.raises((TypeError, AttributeError, BoundaryError)) as caught:
        attempt(sealed)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "show",
    [
        *(repr, str, ascii, "{}".format, "{:>40}".format, "{!r}".format, lambda x: f"{x}"),
        lambda x: "%s %r" % (x, x),  # noqa: UP031
    ],
)
def test_shows_only_its_kind(sealed: Any, show: Any) -> None:
    text = show(sealed)
    assert type(sealed).__name__ in text
    assert CANARY not in text and "2" not in text


def test_a_frozen_array_of_them_shows_nothing(sealed: Any) -> None:
    holder = np.empty(1, dtype=object)
    holder[0] = sealed
    assert CANARY not in repr(holder)


def test_only_the_key_opens() -> None:
    private = Private(CANARY, key=_KERNEL_KEY)
    assert private.unseal(key=_KERNEL_KEY) == CANARY
    for wrong in (object(), None, True, "_KERNEL_KEY"):
        with pytest.raises(BoundaryError):
            private.unseal(key=wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Private(1, key=object()),
        lambda: Confidential(1, "r", key=None),
        lambda: Released(1, frozenset(), key=object()),
    ],
)
def test_only_the_key_makes_them(make: Any) -> None:
    with pytest.raises(BoundaryError):
        make()


def test_confidential_keeps_its_reason_and_stays_confidential() -> None:
    doubled = Confidential(4, "a count", key=_KERNEL_KEY).map(lambda x: 2 * x)
    assert isinstance(doubled, Confidential)
    assert doubled.reason == "a count"
    assert doubled.for_steward() == 8


receipts = st.frozensets(st.builds(Receipt, st.text(max_size=3), st.text(max_size=3)), max_size=4)


@pytest.mark.check
@given(receipts, receipts)
def test_released_keeps_all_receipts(mine: frozenset[Receipt], other: frozenset[Receipt]) -> None:
    a, b = Released(1, mine, key=_KERNEL_KEY), Released("x", other, key=_KERNEL_KEY)
    assert a.map(lambda x: x + 1).receipts == mine
    both = a.zip(b).map(lambda pair: pair[1] * pair[0])
    assert both.value == "x"
    assert both.receipts == mine | other


def test_released_is_frozen_and_not_pickled() -> None:
    released = Released([1], frozenset({Receipt("r", "h")}), key=_KERNEL_KEY)
    for name in ("_value", "_receipts", "value", "receipts", "other"):
        with pytest.raises((BoundaryError, AttributeError)):
            setattr(released, name, 2)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(BoundaryError):
            attempt(released)
    assert repr(released) == "<Released list, 1 receipts>"
