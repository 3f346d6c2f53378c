"""A small release with a real ledger, real accounting and a real (untrained) model, ready to be
bundled.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.bundle import DEPLOYMENT, FILES, BundleContent, published_sha256, sha256, write_bundle
from synthdp.bundle.certificate import composed_of
from synthdp.data import Domain, decode
from synthdp.files import SUMS
from synthdp.graph import CausalGraph
from synthdp.ledger import Ledger
from synthdp.model import untrained
from synthdp.model.ancestral import Architecture
from synthdp.privacy import accounting
from synthdp.privacy.calibration import secret_holdout
from synthdp.privacy.events.gaussian import unit_sampled_gaussian
from synthdp.privacy.events.kinds import event_from_json, event_to_json, kind_of, with_holdout
from synthdp.privacy.mechanisms.marginals import NoisyTable, Sampler, sampler_for
from synthdp.privacy.plan import Spend, bound_of, spends_digest
from synthdp.privacy.private import _KERNEL_KEY, Receipt, Released
from synthdp.spec import parse_spec
from synthdp.spec.model import ReleaseSpec
from synthdp.verify import inspect_bundle

SPEC = """
synthdp: 1
dataset:
  id: clinic
  title: Clinic visits | 2025
  description: Visits to a clinic.
  licence: CC-BY-4.0
  contact: Data desk <desk@statistics.example>
  citation: The Clinic (2025)
  source: {kind: csv, path: /home/steward/secret-folder/visits.csv}
  privacy_unit: {kind: row, meaning: one visit}
  rows: {kind: public, value: 200}
columns:
  sex: {type: categorical, categories: [female, male, "no"]}
  grade: {type: ordinal, categories: [1, 2, 3], missing: true, value_labels: {1: poor, 2: fair, 3: "good | best"}, missing_codes: [-9]}
  stage: {type: ordinal, categories: [I, II], value_labels: {I: early}}
  smoker: {type: boolean, "false": "no", "true": "yes", description: smokes now}
  visits: {type: integer, lower: 0, upper: 40, spikes: [0], edges: [0, 5, 10], missing: true}
  weight: {type: number, lower: 30, upper: 200, bins: 4, decimals: 1, unit: kg}
  born: {type: datetime, lower: 1920-01-01, upper: 2020-12-31, bins: 5}
  seen: {type: datetime, lower: 2025-01-01T00:00:00, upper: 2025-12-31T23:00:00, bins: 3, resolution: hour, missing: true}
privacy:
  epsilon: 3
  delta: 1e-5
  ledger: sqlite:////home/steward/ledger.db
  cap: {epsilon: 9, delta: 1e-3}
graph:
  mode: given
  edges: ["sex, born -> smoker", "smoker -> visits"]
gates:
  - {metric: tv1, at_most: 0.2, outside_guarantee: true}
synthesizer: {batch: 10, steps: 40}
sampling: {rake: false}  # its made-up tables do not hold every column
attacks: {membership: {rows: 50}}
tracking: {uri: "http://steward:password@tracking.internal"}
publication:
  curators: [{name: The Clinic, type: Nonprofit}]
  intended_use: Teaching
  region: Nowhere
  sector: Healthcare
signing: {key_env: CLINIC_SIGNING_KEY}
"""  # noqa: E501

TABLES = (("sex",), ("grade", "smoker"), ("visits",))
SIGMA = 12.0
GROUPS = (1, 2, 3)


@dataclass
class Release:
    """Everything a release would hand to the bundle."""

    spec: ReleaseSpec
    ledger: Ledger
    content: BundleContent
    folder: Path


def released(value: Any, receipts: frozenset[Receipt]) -> Released[Any]:
    return Released(value, receipts, key=_KERNEL_KEY)


def measure_event(rows: int, sampler: Sampler) -> dict[str, Any]:
    """For a unit or group of so many rows; a group gets the noise that a unit gets."""
    return {
        "event": "repeated",
        "count": len(TABLES),
        "of": {"event": f"{sampler}_gaussian", "sigma": SIGMA, "sensitivity": rows},
    }


def train_event(rows: int) -> dict[str, Any]:
    return event_to_json(
        unit_sampled_gaussian(noise_multiplier=1.5, rate=0.05, rows=rows, steps=40)
    )


def group_epsilon(spec: ReleaseSpec, size: int) -> float:
    """As the plan computes it: a group is a unit with more rows, each of whose own units has a coin
    of its own.
    """
    unit = spec.dataset.privacy_unit
    rows = unit.max_rows if unit.kind == "id" else 1
    looks = (measure_event(rows, sampler_for(rows)), train_event(rows))
    kind = spec.dataset.source.kind
    held_out = secret_holdout(spec.evaluation.held_out, "add_remove", kind)
    events = with_holdout([event_from_json(e) for e in looks], held_out, "add_remove")
    group = [kind_of(event).widened(size) for event in events]
    return accounting.epsilon(group, delta=spec.privacy.delta, adjacency="add_remove")


def _counted(
    codes: npt.NDArray[np.integer], domain: Domain, columns: tuple[str, ...]
) -> npt.NDArray[np.float64]:
    counts = np.zeros([domain[c].levels for c in columns])
    np.add.at(counts, tuple(codes[:, domain.index(c)] for c in columns), 1)
    return counts


def make_release(
    folder: Path, text: str = SPEC, *, run: str = "run-1", filtered: bool = False
) -> Release:
    """`filtered`: under a Gaussian filter, where the run before had a mu of .1."""
    spec = parse_spec(text, path="spec.yaml")
    domain, rng = Domain.from_spec(spec.columns), np.random.default_rng(0)
    unit = spec.dataset.privacy_unit
    rows = unit.max_rows if unit.kind == "id" else 1
    ledger = Ledger(f"sqlite:///{folder / 'ledger.db'}")
    cap = spec.privacy.cap
    ledger.reserve(
        "clinic",
        "run-0",
        epsilon=0.5,
        delta=1e-6,
        cap=(cap.epsilon, cap.delta) if cap else None,
        body={},
        bound=(0.1, 1e-8) if filtered else None,
    )  # another run's entry comes between
    planned = (
        Spend(
            purpose="measure",
            mechanism="discrete Gaussian on 3 tables",
            event=measure_event(rows, sampler_for(rows)),
        ),
        Spend(purpose="train", mechanism="DP-SGD, 40 steps", event=train_event(rows)),
    )
    body = {"adjacency": "add_remove", "plan_sha256": spends_digest(planned)}
    body |= {"published_sha256": published_sha256(spec), "expected": {"tv1": 0.02, "figures": []}}
    events = composed_of(planned, spec)
    ledger.reserve(
        "clinic",
        run,
        epsilon=spec.privacy.epsilon,
        delta=spec.privacy.delta,
        cap=None,
        body=body,
        bound=bound_of(events, delta=spec.privacy.delta, adjacency="add_remove")
        if filtered
        else None,
    )
    measure = ledger.charge("clinic", run, **planned[0].model_dump())
    ledger.settle("clinic", "run-0")
    train = ledger.charge("clinic", run, **planned[1].model_dump())
    ledger.settle("clinic", run)
    paid = [Receipt(run, e.hash) for e in (measure, train)]
    groups = {k: group_epsilon(spec, k) for k in (GROUPS if rows == 1 else (1, 2))}
    graph = CausalGraph.from_spec(spec.graph, domain.names)
    parents = tuple(tuple(domain.index(p) for p in graph.parents(n)) for n in domain.names)
    model = untrained(
        domain, Architecture(domain.sizes, parents, (tuple(range(len(domain))),) * 2, 4)
    )
    codes = model.sample(200, rng=rng)
    frame = decode(domain, codes, rng=rng)
    shapes = [tuple(domain[c].levels for c in columns) for columns in TABLES]
    real = np.column_stack([rng.integers(0, size, 200) for size in domain.sizes])
    visits = domain.index("visits")
    real[:, visits] = np.minimum(
        real[:, visits], rng.integers(0, domain.sizes[visits], (3, 200)).min(0)
    )  # not as the model has them
    tables = tuple(
        NoisyTable(c, np.round(_counted(real, domain, c) + rng.normal(scale=SIGMA, size=s)), SIGMA)
        for c, s in zip(TABLES, shapes, strict=True)
    )
    everything, first = frozenset(paid), frozenset(paid[:1])
    content = BundleContent(
        spec=spec,
        run=run,
        planned=planned,
        group_epsilons=groups,
        synthetic=released(frame, everything),
        model=released(model, everything),
        tables=released(tables, first),
        graph=graph,
    )
    return Release(spec, ledger, content, folder)


@pytest.fixture(scope="session", autouse=True)
def remembered_accounting() -> Iterator[None]:
    """Many bundles have the same events; compose them once."""

    def remembered(real: Callable[..., Any]) -> Callable[..., Any]:
        cached = lru_cache(maxsize=None)(lambda events, rest: real(list(events), **dict(rest)))
        return lambda events, **rest: cached(tuple(events), tuple(sorted(rest.items())))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounting, "epsilon", remembered(accounting.epsilon))
        patch.setattr(accounting, "group_epsilon", remembered(accounting.group_epsilon))
        patch.setattr(accounting, "delta_profile", remembered(accounting.delta_profile))
        yield


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return make_release(tmp_path)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good bundle that no test may change; `bundle` is a copy to spoil."""
    folder = tmp_path_factory.mktemp("made")
    release = make_release(folder)
    return write_bundle(folder / "bundle", release.content, ledger=release.ledger, force=False)


@pytest.fixture
def bundle(made: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def written(release: Release, **options: Any) -> Path:
    """The bundle of a release, in its folder."""
    return write_bundle(
        release.folder / "bundle", release.content, ledger=release.ledger, force=False, **options
    )


def problems(bundle: Path, *, mended: bool = True) -> str:
    """What `verify` finds; `mended`: with fitting checksums, as a forger would write them."""
    if mended:
        names = [n for n in (*FILES, DEPLOYMENT) if (bundle / n).exists()]
        (bundle / SUMS).write_text("".join(f"{sha256(bundle / n)}  {n}\n" for n in names))
    return "\n".join(inspect_bundle(bundle).problems)


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.fixture(scope="session")
def build() -> Callable[..., Release]:
    return make_release


@pytest.fixture(scope="session")
def spec_text() -> str:
    return SPEC
