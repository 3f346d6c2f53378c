"""A value taken apart into named pieces of exact bytes, so that two can be compared to the last bit
and the difference named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

Fingerprint = dict[str, tuple[str, bytes]]  # piece -> what it is (type, shape), and its bytes


def fingerprint(value: Any) -> Fingerprint:
    """Pieces of `value`: arrays, tensors, numbers and texts, in dataclasses, mappings and
    sequences.
    """
    return dict(_pieces("value", value))


def _pieces(where: str, value: Any) -> Iterator[tuple[str, tuple[str, bytes]]]:
    if hasattr(value, "numpy"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic):
        yield (
            where,
            (f"{value.dtype} array of shape {value.shape}", np.ascontiguousarray(value).tobytes()),
        )
    elif is_dataclass(value):
        yield where, (type(value).__name__, b"")
        for own in fields(value):
            yield from _pieces(f"{where}.{own.name}", getattr(value, own.name))
    elif isinstance(value, Mapping):
        yield (
            where,
            (f"{type(value).__name__} of {len(value)}", "\n".join(map(repr, value)).encode()),
        )
        for key, own in value.items():
            yield from _pieces(f"{where}[{key!r}]", own)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        yield where, (f"{type(value).__name__} of {len(value)}", b"")
        for i, own in enumerate(value):
            yield from _pieces(f"{where}[{i}]", own)
    else:
        yield where, (type(value).__name__, repr(value).encode())
