"""The shape of a causal VAE, and of each of its weights. It needs nothing of PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

DIRECT = "direct"
"""Name of the parents' own logits."""
DECODE_LEVELS = "decode_levels"
"""Name of the decoding layer of the first group of columns."""


@dataclass(frozen=True)
class Architecture:
    """Everything that fixes the network's shape; public.

    `sizes[i]` is the number of levels of column i, `parents[i]` are the positions of its parents.
    `latent_of[k]` are the columns that dimension k of z reaches. `hidden` is the width of every
    hidden layer. With `direct`, each parent's level also adds logits of its own, past the hidden
    layer: `direct.weight` has a row for each level of each parent of each column.
    """

    sizes: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]
    latent_of: tuple[tuple[int, ...], ...]
    hidden: int
    direct: bool = False

    def to_json(self) -> dict[str, Any]:
        stated = asdict(self)
        return stated if self.direct else {k: v for k, v in stated.items() if k != "direct"}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Architecture:
        """The architecture that `to_json` wrote; KeyError or TypeError if it is none."""
        direct = data.get("direct", False)
        if not isinstance(direct, bool):
            raise TypeError("expected true or false")
        return cls(
            _wholes(data["sizes"]),
            tuple(map(_wholes, data["parents"])),
            tuple(map(_wholes, data["latent_of"])),
            hidden=_wholes([data["hidden"]])[0],
            direct=direct,
        )

    def rows_of(self, column: int) -> range:
        """The rows of `decode_parents` and `direct` that hold the parents of a column."""
        return range(self._ends[column], self._ends[column + 1])

    @cached_property
    def _ends(self) -> list[int]:
        """How many rows hold the parents of the columns before each column, and of all."""
        rows = (sum(self.sizes[p] for p in parents) for parents in self.parents)
        return list(accumulate(rows, initial=0))

    def rows_of_all(self, columns: Iterable[int]) -> list[int]:
        """The rows of some columns, one after the other."""
        return [row for column in columns for row in self.rows_of(column)]

    def offsets_of(self, column: int) -> list[int]:
        """Where each parent of a column begins among these rows."""
        sizes = [self.sizes[p] for p in self.parents[column]]
        return list(accumulate(sizes, initial=0))[:-1]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight of the network by name, computed without the network."""
        columns, levels, latent = len(self.sizes), max(self.sizes), len(self.latent_of)
        rows = self._ends[-1]
        lookups = {
            "decode_parents.weight": (rows, self.hidden),
            "decode_parents.bias": (columns, self.hidden),
        }
        return {
            "encode_columns.weight": (sum(self.sizes), self.hidden),
            "encode_columns.bias": (1, self.hidden),
            "encode_latent.weight": (2 * latent, self.hidden),
            "encode_latent.bias": (2 * latent,),
            **(lookups if any(self.parents) else {}),
            **({DIRECT: (rows, levels)} if self.direct else {}),
            "decode_latent.weight": (columns * self.hidden, latent),
            "decode_latent.bias": (columns * self.hidden,),
            "decode_levels.weight": (columns, self.hidden, levels),
            "decode_levels.bias": (columns, levels),
        }


def _wholes(values: Sequence[Any]) -> tuple[int, ...]:
    if not isinstance(values, list | tuple) or not all(type(v) is int for v in values):
        raise TypeError("expected a list of whole numbers")
    return tuple(values)
