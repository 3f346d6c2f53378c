"""A trained synthesizer: architecture and released weights, sampling, and its files.

Sampling reads nothing but the released weights, so it costs no privacy: any number of rows,
interventions `do(column = level)`, which cut a column off from its parents and set it, and
conditions `column = level`, by weights. It needs no PyTorch, which only training does.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.errors import VerifyError, one_thread
from synthdp.files import check_plain, parse_json, read_text
from synthdp.graph.margins import Probabilities
from synthdp.model import ancestral
from synthdp.model.ancestral import DECODE_LEVELS, Architecture, Floats, Weights

if TYPE_CHECKING:
    import torch

    from synthdp.model.network import CausalVae


WEIGHTS_FILE, MODEL_FILE = "model.safetensors", "model.json"

LogWeights = npt.NDArray[np.float32]
"""Log of each row's weight, `[rows]`."""
Draws = Generator[tuple[Codes, LogWeights], None, None]
"""Chunks of levels `[rows, columns]` with the log weights of their rows."""


@dataclass(frozen=True)
class Synthesizer:
    """A causal VAE that can be sampled; `columns` are in the order of the architecture."""

    columns: tuple[str, ...]
    architecture: Architecture
    weights: Weights

    def sample(
        self,
        rows: int,
        *,
        rng: np.random.Generator,
        do: Mapping[str, int] | None = None,
        threads: int | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Codes:
        """`rows` rows of levels, `[rows, columns]`; `do` maps column names to levels.

        Raises:
            ValueError: `do` names an unknown column or level.
        """
        out = np.empty((rows, len(self.columns)), dtype=np.uint16)
        step, done = ancestral.SETTINGS.chunk_rows, 0
        sizes = [min(step, rows - start) for start in range(0, rows, step)]
        for codes, _ in self.draws(sizes, rng=rng, do=do, threads=threads):
            out[done : done + len(codes)] = codes
            done += len(codes)
            progress(done, rows)
        return out

    def draws(
        self,
        sizes: Iterable[int],
        *,
        rng: np.random.Generator,
        do: Mapping[str, int] | None = None,
        given: Mapping[str, int] | None = None,
        threads: int | None = None,
    ) -> Draws:
        """Chunks of `sizes` rows each: levels `[rows, columns]` and log weights `[rows]`.

        Rows so weighted follow the model's law under `do`, conditioned on `given`; without `given`
        all weights are one. `sizes` may be endless: only a few chunks are drawn ahead. The draws
        depend on `rng`, and not on the number of threads.

        Raises:
            ValueError: `do` or `given` names an unknown column or level, or both name the same
                column.
        """
        fixed, evidence = self._levels("do", do or {}), self._levels("given", given or {})
        both = [self.columns[c] for c in fixed.keys() & evidence.keys()]
        if both:
            message = f"given: column {both[0]!r} is set by do, so it cannot be conditioned on"
            raise ValueError(message)
        samplers = ancestral.column_samplers(self.architecture, self.weights)
        # Sampling is post-processing, so the caller may seed its generator for repeatable samples.
        seeds = np.random.default_rng(int(rng.integers(2**63)))

        def chunk(size: int, seed: int) -> tuple[Codes, LogWeights]:
            own = np.random.default_rng(seed)
            codes, weights = ancestral.draw(samplers, size, do=fixed, given=evidence, rng=own)
            return codes.T.astype(np.uint16), weights

        tasks = ((size, int(seeds.integers(2**63))) for size in sizes)
        return _in_threads(chunk, tasks, threads or os.cpu_count() or 1)

    def probabilities(
        self, codes: Codes, columns: Sequence[int], *, rng: np.random.Generator
    ) -> Iterator[Probabilities]:
        """Conditional probabilities of the levels of each of `columns` (positions) in turn.

        They are `[rows, levels]`, given all other columns of each row. `codes`
        `[rows, all columns]` are read at each step of the iterator, so a caller may draw a column
        again before the next one.
        """
        every = ancestral.column_samplers(self.architecture, self.weights) if columns else []
        samplers = {s.column: s for s in every}
        for column in columns:
            with one_thread():
                found = ancestral.probabilities_given_others(samplers, codes, column, rng=rng)
            yield found

    def elbo(
        self, codes: Codes, *, draws: int, generator: torch.Generator
    ) -> npt.NDArray[np.float64]:
        """Evidence lower bound of rows `[rows, columns]` in nats, `[rows]`, over `draws` of z."""
        import torch

        model = _starting(self.architecture)
        model.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in self.weights.items()})
        levels = torch.from_numpy(codes.astype(np.int64)).repeat(draws, 1)
        noise = torch.randn(draws, model.latent, generator=generator)
        with torch.no_grad():
            surprise: torch.Tensor = model.eval()(levels, noise.repeat_interleave(len(codes), 0))
        return -surprise.double().view(draws, len(codes)).mean(0).numpy()

    def calibrated(
        self, targets: Sequence[Probabilities], *, rows: int, rng: np.random.Generator
    ) -> Synthesizer:
        """The same with biases that give its columns the margins `targets`; see `calibration`."""
        with one_thread():
            bias = calibrated_bias(self.architecture, self.weights, targets, rows=rows, rng=rng)
        return replace(self, weights={**self.weights, f"{DECODE_LEVELS}.bias": bias})

    def _levels(self, what: str, named: Mapping[str, int]) -> dict[int, int]:
        levels = {}
        for name, level in named.items():
            if name not in self.columns:
                known = ", ".join(self.columns)
                raise ValueError(f"{what}: unknown column {name!r}; columns are {known}")
            column = self.columns.index(name)
            last = self.architecture.sizes[column] - 1
            if not 0 <= level <= last:
                raise ValueError(f"{what}: column {name!r} has levels 0 to {last}, got {level}")
            levels[column] = level
        return levels

    def save(self, folder: Path) -> None:
        """Write `model.safetensors` and `model.json`."""
        from safetensors.numpy import save_file

        whole = {k: np.ascontiguousarray(v) for k, v in self.weights.items()}
        save_file(whole, folder / WEIGHTS_FILE)
        content = {
            "kind": "causal_vae",
            "columns": list(self.columns),
            "architecture": self.architecture.to_json(),
            "shapes": {k: list(v.shape) for k, v in self.weights.items()},
        }
        (folder / MODEL_FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Synthesizer:
        """Read what `save` wrote. It reads only safetensors and JSON, so nothing in a file can run.

        Raises:
            VerifyError: the files are damaged, or do not belong together.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            content = parse_json(read_text(folder / MODEL_FILE))
            check_plain(folder / WEIGHTS_FILE)
            weights = load_file(folder / WEIGHTS_FILE)
            architecture = Architecture.from_json(content["architecture"])
            columns, stated = tuple(content["columns"]), content["shapes"]
        # An attribute error is a type of number that NumPy has not.
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise VerifyError(
                f"cannot read the model in {folder.name}: {type(error).__name__}"
            ) from None
        if {k: list(v.shape) for k, v in weights.items()} != stated:
            raise VerifyError(f"{WEIGHTS_FILE} does not hold the tensors that {MODEL_FILE} states")
        loaded = cls(columns, architecture, weights)
        if not loaded._whole():
            message = f"{WEIGHTS_FILE} does not fit the architecture and columns in {MODEL_FILE}"
            raise VerifyError(message)
        return loaded

    def _whole(self) -> bool:
        """Whether columns, architecture and weights make one model whose graph has no cycle.

        Sizes are compared with the weights first, so that no file can ask for more memory than it
        brings.
        """
        shapes = {name: weight.shape for name, weight in self.weights.items()}
        if not self._plausible_architecture() or self.architecture.shapes() != shapes:
            return False
        if not all(w.dtype == np.float32 and np.isfinite(w).all() for w in self.weights.values()):
            return False
        try:
            ancestral.causal_order(self.architecture)
        except nx.NetworkXUnfeasible:
            return False
        return True

    def _plausible_architecture(self) -> bool:
        """Whether the architecture is one of these columns, and its look-ups fit in memory."""
        shape, columns = self.architecture, range(len(self.columns))
        if not columns or not all(isinstance(name, str) for name in self.columns):
            return False
        if not len(set(self.columns)) == len(shape.sizes) == len(shape.parents) == len(columns):
            return False
        if not shape.latent_of or shape.hidden < 1 or min(shape.sizes) < 1:
            return False
        if not set(columns).issuperset(itertools.chain(*shape.parents, *shape.latent_of)):
            return False
        if any(len(set(parents)) < len(parents) for parents in shape.parents):
            return False
        # Columns times parents of one column bound the look-ups of a foreign model.
        return len(columns) * max(map(len, shape.parents)) <= 1 << 26


def arrays(state: Mapping[str, torch.Tensor]) -> dict[str, Floats]:
    """A copy of a network's weights that needs no PyTorch."""
    return {name: value.detach().cpu().numpy().copy() for name, value in state.items()}


def untrained(domain: Domain, architecture: Architecture) -> Synthesizer:
    """A synthesizer with starting weights only (tests, cost estimates)."""
    return Synthesizer(domain.names, architecture, arrays(_starting(architecture).state_dict()))


def _starting(architecture: Architecture) -> CausalVae:
    import torch

    from synthdp.model.network import CausalVae

    return CausalVae(architecture, generator=torch.Generator().manual_seed(0))


def _in_threads(
    chunk: Callable[[int, int], tuple[Codes, LogWeights]],
    tasks: Iterator[tuple[int, int]],
    threads: int,
) -> Draws:
    """Results of `chunk` in the order of `tasks`, at most two for each thread ahead."""
    first = list(itertools.islice(tasks, 2))
    with one_thread():
        if threads == 1 or len(first) < 2:  # a single chunk is not worth a thread
            yield from itertools.starmap(chunk, itertools.chain(first, tasks))
            return
        pool = ThreadPoolExecutor(threads)
        try:
            ahead: deque[Future[tuple[Codes, LogWeights]]] = deque()
            for task in itertools.chain(first, tasks):
                ahead.append(pool.submit(chunk, *task))
                if len(ahead) > 2 * threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def calibrated_bias(
    architecture: Architecture,
    weights: Weights,
    targets: Sequence[Probabilities],
    *,
    rows: int,
    rng: np.random.Generator,
) -> Floats:
    """`decode_levels.bias`, `[columns, levels]`, that gives the margins `targets`.

    Column i has the margin `targets[i]` in `rows` drawn rows. Noise in the decoder's weights moves
    the margins of its columns, and more so for later columns in causal order. Given the columns
    before it, drawn by what is already calibrated, a column's margin depends on its biases alone.
    So columns come in this order; each round multiplies the odds of a level by its wanted over its
    present probability, which is iterative proportional fitting of one margin. All of it is
    post-processing.
    """
    bias = weights[f"{DECODE_LEVELS}.bias"].copy()
    z = ancestral.latents(len(architecture.latent_of), rows, rng)
    codes = np.zeros((len(targets), rows), np.int32)
    for sampler in ancestral.column_samplers(architecture, weights):
        logits = sampler.logits(codes, z)
        shift = _shift(np.exp(ancestral.log_softmax(logits)), targets[sampler.column])
        bias[sampler.column, : sampler.levels] += shift
        logits += shift[:, None]
        codes[sampler.column] = ancestral.levels_of(logits, rng.random(rows, dtype=np.float32))
    return bias


def _shift(probabilities: Floats, wanted: Probabilities) -> Floats:
    """What to add to the biases of a column, from its `probabilities` `[levels, rows]`."""
    factor, target = np.ones(len(probabilities), np.float32), wanted.astype(np.float32)
    for _ in range(10):
        present = factor * (probabilities @ (1 / (factor @ probabilities)))
        present /= probabilities.shape[1]
        factor *= target / np.maximum(present, np.float32(1e-12))
    with np.errstate(divide="ignore"):
        shift: Floats = np.log(factor).clip(-20.0, 20.0)  # the largest change
    return shift
