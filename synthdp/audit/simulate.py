"""The simulated twin of a spec: rows over the declared columns that depend on no real row.

The rows are drawn from a bundle's released model where there is one. Otherwise they are drawn from
a causal network over the spec's columns and given arrows, with random effects. Both are functions
of public values, so everything computed on the twin may be published.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from synthdp.bundle.noisy_tables import level_law
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.errors import OutputError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.edge import GraphEdge
from synthdp.graph.prediction.search import prediction_order
from synthdp.model.build import architecture_for
from synthdp.model.network import CausalVae
from synthdp.model.synthesizer import MODEL_FILE, Synthesizer, arrays
from synthdp.spec.model import IdUnit, ReleaseSpec

EFFECT = 2.0  # standard deviation that the hidden units add to logits: a strong dependence


def simulated_twin(
    spec: ReleaseSpec, domain: Domain, *, bundle: Path | None, rng: np.random.Generator
) -> Codes:
    """Levels `[declared rows, columns]` from the model in `bundle`, or from a random network.

    The random network is used where `bundle` is None.

    Raises:
        VerifyError: the bundle's model is damaged.
        OutputError: its columns or levels are not those of the spec.
    """
    rows = spec.dataset.rows.value
    if bundle is None:
        return _random_network(spec, domain, rng).sample(rows, rng=rng)
    model, law = Synthesizer.load(bundle), level_law(bundle, domain, margins=False)
    if model.columns != domain.names or model.architecture.sizes != law.groups.coarse.sizes:
        raise OutputError(
            f"the model in {bundle} is of other columns than the spec",
            hint="give the spec that made the bundle, or another --out",
        )
    return law.drawn(model.sample(rows, rng=rng), rng=rng)


def twin_units(spec: ReleaseSpec, twin: Codes) -> npt.NDArray[np.int64] | None:
    """The number of each simulated row's unit: as many rows to each as one may have at most. None
    where a row is a unit.
    """
    unit = spec.dataset.privacy_unit
    return np.arange(len(twin)) // unit.max_rows if isinstance(unit, IdUnit) else None


def public_graph(spec: ReleaseSpec, domain: Domain) -> CausalGraph:
    """A graph that no row had a part in: the spec's arrows, whatever the mode.

    Mode predict finds all of its arrows in rows. Here each column is predicted by the one before.
    """
    if spec.graph.mode != "predict":
        return CausalGraph.from_spec(spec.graph, domain.names)
    order = prediction_order(spec.graph, domain.names, spec.evaluation.targets)
    arrows = (GraphEdge(*pair, directed=True, provenance="predictive") for pair in pairwise(order))
    return CausalGraph(domain.names, tuple(arrows))


def released_model(out: Path) -> Path | None:
    """The bundle in the output folder `out`, if it contains a model."""
    bundle = out / "bundle"
    return bundle if (bundle / MODEL_FILE).exists() else None


def _random_network(spec: ReleaseSpec, domain: Domain, rng: np.random.Generator) -> Synthesizer:
    """The spec's network with independent Gaussian weights."""
    architecture = architecture_for(spec, domain, public_graph(spec, domain))
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    model = CausalVae(architecture, generator=generator)
    with torch.no_grad():
        for name, p in model.named_parameters():
            scale = EFFECT / architecture.hidden**0.5 if name == "decode_levels.weight" else 1.0
            values = rng.standard_normal(tuple(p.shape), dtype=np.float32)
            p.copy_(torch.from_numpy(scale * values))
    return Synthesizer(domain.names, architecture, arrays(model.state_dict()))
