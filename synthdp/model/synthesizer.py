"""A trained synthesizer: architecture and released weights, ancestral sampling, saving and loading.

Sampling reads nothing but the released weights, so it is free: as many rows as wanted, and interventions
`do(column = level)`, which cut a column off from its parents and set it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.errors import VerifyError
from synthdp.model.causal_vae import Architecture, CausalVae
from synthdp.untrusted import check_plain, parse_json, read_text

CHUNK_ROWS = 65_536
MOST_SLOTS = 1 << 26  # columns times the most parents of one: what the lookups of a foreign model may take
WEIGHTS_FILE, MODEL_FILE = "model.safetensors", "model.json"


@dataclass(frozen=True)
class Synthesizer:
    """A causal VAE that can be sampled. `columns` are the column names in the order of the architecture."""

    columns: tuple[str, ...]
    architecture: Architecture
    weights: dict[str, Tensor]

    def sample(
        self,
        rows: int,
        *,
        rng: np.random.Generator,
        do: Mapping[str, int] | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Codes:
        """`rows` rows of levels, shape `[rows, columns]`; `do` maps column names to the level they are set to.

        Raises:
            ValueError: `do` names an unknown column or level.
        """
        fixed = self._fixed(do or {})
        model = self._model()
        # Sampling is post-processing; its generator may be seeded by the caller for repeatable samples.
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        out = np.empty((rows, len(self.columns)), dtype=np.uint16)
        for start in range(0, rows, CHUNK_ROWS):
            size = min(CHUNK_ROWS, rows - start)
            out[start : start + size] = _ancestral(model, self._order(), fixed, size, generator).numpy().astype(np.uint16)
            progress(start + size, rows)
        return out

    def _fixed(self, do: Mapping[str, int]) -> dict[int, int]:
        fixed = {}
        for name, level in do.items():
            if name not in self.columns:
                raise ValueError(f"do: unknown column {name!r}; columns are {', '.join(self.columns)}")
            column = self.columns.index(name)
            if not 0 <= level < self.architecture.sizes[column]:
                raise ValueError(f"do: column {name!r} has levels 0 to {self.architecture.sizes[column] - 1}, got {level}")
            fixed[column] = level
        return fixed

    def _order(self) -> list[int]:
        graph = nx.DiGraph([(p, i) for i, own in enumerate(self.architecture.parents) for p in own])
        graph.add_nodes_from(range(len(self.columns)))
        return list(nx.topological_sort(graph))

    def _model(self) -> CausalVae:
        model = CausalVae(self.architecture, generator=torch.Generator().manual_seed(0))
        model.load_state_dict(self.weights)
        return model.eval()

    def save(self, folder: Path) -> None:
        """Write `model.safetensors` and `model.json`."""
        from safetensors.torch import save_file

        save_file({k: v.contiguous() for k, v in self.weights.items()}, folder / WEIGHTS_FILE)
        shapes = {k: list(v.shape) for k, v in self.weights.items()}
        content = {"kind": "causal_vae", "columns": list(self.columns), "architecture": self.architecture.to_json(), "shapes": shapes}
        (folder / MODEL_FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Synthesizer:
        """Read what `save` wrote. Only safetensors and JSON are read: nothing in a model file can run.

        Raises:
            VerifyError: the files are damaged, or do not belong together.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            content = parse_json(read_text(folder / MODEL_FILE))
            check_plain(folder / WEIGHTS_FILE)
            weights = load_file(folder / WEIGHTS_FILE)
            architecture = Architecture.from_json(content["architecture"])
            columns, stated = tuple(content["columns"]), content["shapes"]
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise VerifyError(f"cannot read the model in {folder.name}: {type(error).__name__}") from None
        if {k: list(v.shape) for k, v in weights.items()} != stated:
            raise VerifyError(f"{WEIGHTS_FILE} does not hold the tensors that {MODEL_FILE} states")
        loaded = cls(columns, architecture, weights)
        if not loaded._whole():
            raise VerifyError(f"{WEIGHTS_FILE} does not fit the architecture and columns in {MODEL_FILE}")
        return loaded

    def _whole(self) -> bool:
        """Whether columns, architecture and weights make one model whose graph has no cycle.

        Sizes are held against the weights first, so that no file can ask for more memory than it brings.
        """
        own, columns = self.architecture, range(len(self.columns))
        if not all(isinstance(name, str) for name in self.columns) or not len(set(self.columns)) == len(own.sizes) == len(own.parents) == len(
            columns
        ):
            return False
        if not columns or not own.latent_of or own.hidden < 1 or min(own.sizes) < 1:
            return False
        if not all(column in columns for row in own.parents + own.latent_of for column in row) or any(len(set(p)) < len(p) for p in own.parents):
            return False
        if len(columns) * max(map(len, own.parents)) > MOST_SLOTS or {k: tuple(v.shape) for k, v in self.weights.items()} != own.shapes():
            return False
        if not all(v.dtype == torch.float32 and bool(v.isfinite().all()) for v in self.weights.values()):
            return False
        try:
            self._order()
        except nx.NetworkXUnfeasible:
            return False
        return True


def untrained(domain: Domain, architecture: Architecture) -> Synthesizer:
    """A synthesizer with starting weights only (tests, cost estimates)."""
    model = CausalVae(architecture, generator=torch.Generator().manual_seed(0))
    return Synthesizer(domain.names, architecture, {k: v.detach().clone() for k, v in model.state_dict().items()})


@torch.no_grad()
def _ancestral(model: CausalVae, order: list[int], fixed: Mapping[int, int], rows: int, generator: torch.Generator) -> Tensor:
    """Columns in causal order, each from its parents and z; categorical draws by inverse cumulative sums."""
    z = torch.randn(rows, len(model.architecture.latent_of), generator=generator)
    codes = torch.zeros(rows, len(order), dtype=torch.long)
    for column in order:
        if column in fixed:
            codes[:, column] = fixed[column]
            continue
        cumulative = model.column_logits(column, codes, z).softmax(1).cumsum(1)
        uniform = torch.rand(rows, 1, generator=generator) * cumulative[:, -1:]
        codes[:, column] = (uniform >= cumulative).sum(1).clamp_(max=cumulative.shape[1] - 1)
    return codes
