"""The shape of a causal VAE, and of each of its weights. It needs nothing of PyTorch.

Ancestral sampling of the causal VAE: columns in causal order, each given its parents and z.

The arithmetic is that of `CausalVae.column_logits`, on the released weights alone, so that whoever
has a bundle can draw from it without PyTorch. It is arranged for speed: one pass over a chunk of
rows that stays in the cache, with the rows of each level side by side in memory. A column's parents
are look-ups, its part of z and its biases are one product, and a level is found in unnormalised
cumulative sums. Tests compare both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, ndtri, softmax

from synthdp.data.encoding import Codes
from synthdp.graph.margins import Probabilities

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


Floats = npt.NDArray[np.float32]
Levels = npt.NDArray[np.int32]
"""Levels by column, `[columns, rows]`."""
Weights = Mapping[str, Floats]
"""The network's weights by name; `Architecture.shapes` has their shapes."""


@dataclass(frozen=True)
class AncestralSettings:
    """How rows are drawn: `chunk_rows` at once; z is summed out over `points` of it."""

    chunk_rows: int = 4096
    points: int = 32


SETTINGS = AncestralSettings()


@dataclass(frozen=True)
class ColumnSampler:
    """One column's decoder.

    `parents` and where each begins (`offsets`) in `table` `[levels of all parents, hidden]` and, if
    there is one, in `direct` `[levels of all parents, levels]`; `latent` `[latent + 1, hidden]`,
    whose last row is the bias; `weight` `[levels, hidden]` and `bias` `[levels, 1]`. `hidden` are
    the units that have weights.
    """

    column: int
    parents: tuple[int, ...]
    offsets: tuple[int, ...]
    table: Floats | None
    latent: Floats
    weight: Floats
    bias: Floats
    direct: Floats | None = None

    @property
    def levels(self) -> int:
        return len(self.weight)

    def logits(self, codes: Levels, z: Floats) -> Floats:
        """Logits `[levels, rows]`; `z` is `[rows, latent + 1]` with ones last."""
        hidden = z @ self.latent
        if self.table is not None:
            hidden += self.summed(self.table, codes)
        logits: Floats = self.weight @ np.tanh(hidden, out=hidden).T
        logits += self.bias
        if self.direct is not None:
            logits += self.summed(self.direct, codes).T
        return logits

    def summed(self, table: Floats, codes: Levels) -> Floats:
        """Sum of the rows of `table` at the parents' levels, `[rows, width of the table]`."""
        places = (codes[p] + offset for p, offset in zip(self.parents, self.offsets, strict=True))
        out: Floats = table.take(next(places), axis=0)
        for place in places:
            out += table.take(place, axis=0)
        return out


def causal_order(architecture: Architecture) -> list[int]:
    """Columns with parents before children.

    >>> causal_order(Architecture((2, 2, 2), parents=((1,), (2,), ()), latent_of=(), hidden=1))
    [2, 1, 0]

    Raises:
        networkx.NetworkXUnfeasible: the parents form a cycle.
    """
    graph = nx.DiGraph([(p, i) for i, parents in enumerate(architecture.parents) for p in parents])
    graph.add_nodes_from(range(len(architecture.sizes)))
    return list(nx.topological_sort(graph))


def column_samplers(architecture: Architecture, weights: Weights) -> list[ColumnSampler]:
    """The decoder with these weights, column by column in causal order."""
    return [_column_sampler(architecture, weights, c) for c in causal_order(architecture)]


def _column_sampler(shape: Architecture, weights: Weights, column: int) -> ColumnSampler:
    places, size, parents = shape.rows_of(column), shape.sizes[column], shape.parents[column]
    decoded = weights[f"{DECODE_LEVELS}.weight"][column, :, :size]
    used = np.flatnonzero(decoded.any(axis=1))  # units without weights say nothing
    hidden = column * shape.hidden + used
    reached = np.array([column in columns for columns in shape.latent_of])
    latent = weights["decode_latent.weight"][hidden].T * reached[:, None].astype(np.float32)
    bias = weights["decode_latent.bias"][hidden]
    rows, table, direct = slice(places.start, places.stop), None, None
    if any(shape.parents):
        bias = bias + weights["decode_parents.bias"][column, used]
    if parents and len(used):
        table = np.ascontiguousarray(weights["decode_parents.weight"][rows][:, used])
    if parents and shape.direct:
        direct = np.ascontiguousarray(weights[DIRECT][rows, :size])
    return ColumnSampler(
        column,
        parents,
        tuple(shape.offsets_of(column)),
        table,
        np.concatenate([latent, bias[None]]),
        np.ascontiguousarray(decoded[used].T),
        weights[f"{DECODE_LEVELS}.bias"][column, :size, None],
        direct,
    )


def draw(
    samplers: list[ColumnSampler],
    rows: int,
    *,
    do: Mapping[int, int],
    given: Mapping[int, int],
    rng: np.random.Generator,
) -> tuple[Levels, Floats]:
    """Levels `[columns, rows]` and the log of each row's weight `[rows]`.

    Columns in `do` are set, whatever their parents. Those in `given` are set too, and the weight of
    a row is the probability of these levels given the row's parents and z. Rows so weighted follow
    the law that is intervened on by `do` and then conditioned on `given` (likelihood weighting;
    Koller and Friedman, "Probabilistic Graphical Models", 2009, Section 12.2).
    """
    z = latents(len(samplers[0].latent) - 1, rows, rng)
    codes, log_weight = np.zeros((len(samplers), rows), np.int32), np.zeros(rows, np.float32)
    for sampler in samplers:
        column = sampler.column
        if column in do:
            codes[column] = do[column]
        elif column in given:
            codes[column] = given[column]
            log_weight += log_softmax(sampler.logits(codes, z))[given[column]]
        else:
            codes[column] = levels_of(sampler.logits(codes, z), rng.random(rows, dtype=np.float32))
    return codes, log_weight


def latents(latent: int, rows: int, rng: np.random.Generator) -> Floats:
    """Draws of z, `[rows, latent + 1]`; the last entry is one."""
    z = np.ones((rows, latent + 1), np.float32)
    z[:, :latent] = rng.standard_normal((rows, latent), dtype=np.float32)
    return z


def levels_of(logits: Floats, uniform: Floats) -> Levels:
    """A level of each column of `logits` `[levels, rows]` by inverse cumulative sums, `[rows]`."""

    def summed(parts: Floats) -> Floats:
        for before, after in pairwise(parts):
            after += before
        return parts

    with np.errstate(over="ignore"):
        sums = summed(np.exp(logits))
    # Between these, sums of exponentials have neither overflowed nor lost digits.
    if not 1e-30 < sums[-1].min() <= sums[-1].max() < 1e30:
        sums = summed(np.exp(log_softmax(logits)))
    levels: Levels = (sums <= uniform * sums[-1]).sum(0, dtype=np.int32)
    return np.minimum(levels, len(logits) - 1)


def log_softmax(logits: Floats) -> Floats:
    """Log probabilities, over the last axis but one."""
    shifted = logits - logits.max(-2, keepdims=True)
    logs: Floats = shifted - np.log(np.exp(shifted).sum(-2, keepdims=True))
    return logs


def probabilities_given_others(
    samplers: Mapping[int, ColumnSampler], codes: Codes, column: int, *, rng: np.random.Generator
) -> Probabilities:
    """Probabilities `[rows, levels]` of the levels of the column at position `column`.

    They are conditional on the other columns of each row of levels `[rows, columns]`. `samplers`
    are those of all columns, by position. A draw of one column of a row from them leaves the
    model's law as it is (a step of Gibbs sampling). z, which a row does not contain, is summed out
    over points of its prior, each weighted by the likelihood of the row's other columns.
    """

    def depends_on_z(some: ColumnSampler) -> bool:
        return bool(some.latent[:-1].any())

    sampler = samplers[column]
    children = [s for s in samplers.values() if column in s.parents]
    family = [sampler, *children]
    # If z reaches neither the column nor its children, no other column is evidence through z.
    others: list[ColumnSampler] = []
    if any(map(depends_on_z, family)):
        others = [s for s in samplers.values() if s not in family and depends_on_z(s)]
    latent = len(sampler.latent) - 1
    z = _points(latent, rng) if others or children else np.eye(latent + 1, dtype=np.float32)[-1:]
    step = SETTINGS.chunk_rows
    chunks = (codes[start : start + step] for start in range(0, len(codes), step))
    parts = [
        _probabilities(sampler, children, others, chunk.T.astype(np.int32), z) for chunk in chunks
    ]
    return np.concatenate(parts, 1).T.astype(np.float64)


def _points(latent: int, rng: np.random.Generator) -> Floats:
    """Points that cover the law of z evenly, `[points, latent + 1]`; the last entry is one."""
    from scipy.stats import qmc  # half a second of imports, which drawing rows does not need

    uniform = qmc.Sobol(latent, seed=int(rng.integers(2**32))).random(SETTINGS.points)
    normal = ndtri(np.clip(uniform, 1e-6, 1 - 1e-6))
    points: Floats = np.append(normal, np.ones((len(normal), 1)), 1).astype(np.float32)
    return points


def _probabilities(
    sampler: ColumnSampler,
    children: Sequence[ColumnSampler],
    others: Sequence[ColumnSampler],
    codes: Levels,
    z: Floats,
) -> Floats:
    """Probabilities `[levels, rows]` of a column's levels given `codes` `[columns, rows]`."""
    logs = _log_probabilities(sampler, codes, z)  # [points, levels, rows]
    for child in children:
        for level in range(sampler.levels):
            changed = codes.copy()
            changed[sampler.column] = level
            logs[:, level] += _log_likelihood(child, changed, z)
    for other in others:
        logs += _log_likelihood(other, codes, z)[:, None]
    found: Floats = softmax(logsumexp(logs, axis=0), axis=0)
    return found


def _log_likelihood(sampler: ColumnSampler, codes: Levels, z: Floats) -> Floats:
    """Log probabilities of a column's levels in `codes` at each point of z, `[points, rows]`."""
    logs = _log_probabilities(sampler, codes, z)
    return np.take_along_axis(logs, codes[None, None, sampler.column], 1)[:, 0]


def _log_probabilities(sampler: ColumnSampler, codes: Levels, z: Floats) -> Floats:
    """Log probabilities of all levels of a column at each point of z, `[points, levels, rows]`."""
    hidden = (z @ sampler.latent)[:, None]  # [points, 1, hidden]
    if sampler.table is not None:
        hidden = hidden + sampler.summed(sampler.table, codes)
    logits = sampler.weight @ np.tanh(hidden).mT + sampler.bias
    if sampler.direct is not None:
        logits = logits + sampler.summed(sampler.direct, codes).T
    whole = np.broadcast_to(logits, (len(z), sampler.levels, codes.shape[1]))
    return log_softmax(whole)
