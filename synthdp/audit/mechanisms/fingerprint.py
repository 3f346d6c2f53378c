"""Fingerprints: a value as named pieces of exact bytes.

Two fingerprints are compared to the last bit, and a difference has a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

Fingerprint = dict[str, tuple[str, bytes]]  # piece -> what it is (type, shape), and its bytes


def fingerprint(value: Any) -> Fingerprint:
    """Pieces of `value`: arrays, tensors, numbers, texts, in dataclasses, mappings, sequences.

    >>> fingerprint({"a": 1})["value['a']"]
    ('int', b'1')
    """
    return dict(_pieces("value", value))


def _pieces(where: str, value: Any) -> Iterator[tuple[str, tuple[str, bytes]]]:
    """The piece of `value` itself, and those of its parts."""
    if hasattr(value, "numpy"):
        value = value.detach().cpu().numpy()
    kind = type(value).__name__
    if isinstance(value, np.ndarray | np.generic):
        kind = f"{value.dtype} array of shape {value.shape}"
        yield where, (kind, np.ascontiguousarray(value).tobytes())
    elif is_dataclass(value):
        yield where, (kind, b"")
        for field in fields(value):
            yield from _pieces(f"{where}.{field.name}", getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield where, (f"{kind} of {len(value)}", "\n".join(map(repr, value)).encode())
        for key, item in value.items():
            yield from _pieces(f"{where}[{key!r}]", item)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        yield where, (f"{kind} of {len(value)}", b"")
        for i, item in enumerate(value):
            yield from _pieces(f"{where}[{i}]", item)
    else:
        yield where, (kind, repr(value).encode())
