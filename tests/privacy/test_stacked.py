"""Models trained side by side are those that the kernel trains one by one: same draws, same
gradients, same steps; and none sees another's rows.

Every start, row and coin here has a seed, so nothing is left to chance. What remains is the last
bit of 32-bit sums, which machines round differently, and of which Adam's first step makes a whole
step where a gradient is next to 0. So gradients are compared before Adam takes them, and both sides
go on from the same ones.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch

from synthdp.data import Codes, Domain
from synthdp.errors import BoundaryError, BudgetError
from synthdp.model import CausalVae, TargetRegression
from synthdp.model.ancestral import Architecture
from synthdp.privacy import train_side_by_side, train_stacked
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.dpsgd.training import PerExampleLoss, Training, Weights
from synthdp.privacy.noise import Streams
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.session import Rehearsal
from synthdp.privacy.table import Table
from tests.builders import dp_sgd

MakeTable = Callable[[Domain, Codes], Table]
SIZES = (4, 2, 3, 7)
PARENTS = ((), (0,), (0, 1), (2,))
SETTINGS = dp_sgd(
    rate=0.15,
    steps=12,
    expected_batch=9.0,
    noise_multiplier=0.8,
    learning_rate=0.05,
    checkpoint_every=100,
)
LENGTHS = (60, 61, 40)


def network(
    seed: int = 0,
    parents: tuple[tuple[int, ...], ...] = PARENTS,
    *,
    features: bool = False,
    groups: Sequence[Sequence[int]] | None = None,
    direct: bool = False,
) -> PerExampleLoss:
    generator = torch.Generator().manual_seed(seed)
    known = [torch.eye(size) if size < 4 else _halved(size) for size in SIZES] if features else None
    module = CausalVae(
        Architecture(SIZES, parents, ((0, 1, 2, 3), (1, 2)), 6, direct),
        generator=generator,
        features=known,
        groups=groups,
    )
    module.start_from([np.full(size, 1 / size) for size in SIZES])
    if direct:
        module.get_buffer("direct").normal_(generator=generator)
    return module


def _halved(size: int) -> torch.Tensor:
    """Levels that share a feature with their half."""
    half = (torch.arange(size) < size // 2).float().unsqueeze(1)
    return torch.cat([torch.eye(size), half, 1 - half], 1) / 2**0.5


def regression(seed: int = 0) -> PerExampleLoss:
    rng = np.random.default_rng(seed)
    margins = [rng.dirichlet(np.full(size, 5.0)) for size in SIZES]
    return TargetRegression(
        Architecture(SIZES, PARENTS, ((0,),), 6), [1, 2], {0: _halved(4), 1: torch.eye(2)}, margins
    )


KINDS: dict[str, Callable[[int], PerExampleLoss]] = {
    "causal": network,
    "without edges": lambda seed: network(seed, ((), (), (), ())),
    "levels in order": lambda seed: network(seed, features=True),
    "two groups, and a column in none": lambda seed: network(
        seed, features=True, groups=[[1, 2], [3]]
    ),
    "direct logits": lambda seed: network(seed, direct=True),
    "direct logits in two groups": lambda seed: network(seed, groups=[[1, 2], [0, 3]], direct=True),
    "targets": regression,
}


def rows_of(lengths: Sequence[int], seed: int = 0) -> list[Codes]:
    rng = np.random.default_rng(seed)
    return [
        np.column_stack([rng.integers(0, size, n) for size in SIZES]).astype(np.uint16)
        for n in lengths
    ]


class InOrder(Streams):
    """Places, which models side by side do not have, take no coins."""

    def places(self, rows: int, slots: int) -> npt.NDArray[np.intp]:
        return np.arange(rows)


def streams(model: int) -> Streams:
    """Coins of one model that can be drawn once more."""
    return InOrder(*(np.random.default_rng([model, kind]) for kind in range(4)))


def stacked(
    settings: DpSgd, modules: Sequence[PerExampleLoss], tables: Sequence[Table]
) -> list[Weights]:
    return train_stacked(
        settings,
        [copy.deepcopy(m) for m in modules],
        tables,
        [streams(k) for k in range(len(modules))],
    )


@pytest.fixture
def tables(
    domain_of: Callable[..., Domain], table_of: MakeTable
) -> Callable[[list[Codes]], list[Table]]:
    return lambda rows: [table_of(domain_of(*SIZES), own) for own in rows]


Tables = Callable[[list[Codes]], list[Table]]
Gradients = list[list[torch.Tensor]]  # of each step, those of all parameters


@pytest.fixture
def adam(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]], None]:
    """Have every Adam that is made from now on step by what a function makes of its gradients."""
    true = torch.optim.Adam

    def watch(seen: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]) -> None:
        class Watched(true):  # type: ignore[misc, valid-type]
            def step(self, closure: None = None) -> None:
                params = self.param_groups[0]["params"]
                for p, gradient in zip(params, seen([p.grad for p in params]), strict=True):
                    p.grad = gradient.clone()
                super().step(closure)

        monkeypatch.setattr(torch.optim, "Adam", Watched)

    return watch


def rounding(settings: DpSgd, module: PerExampleLoss) -> float:
    """How far gradients of equal sums may lie apart: neighbours on the lattice."""
    spacing = settings.lattice_spacing(
        sum(p.numel() for p in module.parameters() if p.requires_grad)
    )
    return (spacing + 1e-5) / settings.expected_batch


def kept(heard: Gradients) -> Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]:
    """Keep the gradients of each step."""

    def seen(gradients: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        heard.append([g.clone() for g in gradients])
        return gradients

    return seen


def followed(
    heard: Gradients, model: int, atol: float
) -> Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]:
    """Compare each step's gradients with those of `model` among others; go on with these."""
    steps: Iterator[list[torch.Tensor]] = iter(heard)

    def seen(gradients: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        others = [g[model] for g in next(steps)]
        for own, other in zip(gradients, others, strict=True):
            torch.testing.assert_close(own, other, atol=atol, rtol=0)
        return others

    return seen


OTHERWISE = {
    "not averaged": replace(SETTINGS, ema=0.0),
    "empty batches": replace(SETTINGS, rate=0.02),
    "in groups": replace(SETTINGS, rate=0.9, expected_batch=400.0),
}


@pytest.mark.check
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *(pytest.param(kind, SETTINGS, id=f"{kind}, as planned") for kind in KINDS),
        *(
            pytest.param(kind, settings, id=f"{kind}, {name}")
            for kind in ("direct logits in two groups", "targets")
            for name, settings in OTHERWISE.items()
        ),
    ],
)
def test_each_model_is_the_one_that_the_kernel_trains(
    kind: str, settings: DpSgd, tables: Tables, adam: Callable[..., None]
) -> None:
    """Also where batches are empty, and where the kernel sums examples in groups."""
    modules, own, heard = (
        [KINDS[kind](seed) for seed in range(len(LENGTHS))],
        tables(rows_of(LENGTHS)),
        list[list[torch.Tensor]](),
    )
    adam(kept(heard))
    together = stacked(settings, modules, own)
    assert len(heard) == settings.steps
    for k, weights in enumerate(together):
        adam(followed(heard, k, rounding(settings, modules[k])))
        alone = Training(settings, copy.deepcopy(modules[k]), lambda done, total: None, None).run(
            own[k], streams(k)
        )
        assert weights.keys() == alone.keys()
        start = dict(modules[k].named_parameters())
        assert (
            max(float((alone[name] - start[name].detach()).abs().max()) for name in alone) > 0.05
        )  # it has gone somewhere
        for name, tensor in alone.items():
            torch.testing.assert_close(weights[name], tensor, atol=1e-5, rtol=0)


def test_no_model_sees_the_rows_of_another(tables: Tables) -> None:
    modules, rows = [network(seed, features=True) for seed in range(len(LENGTHS))], rows_of(LENGTHS)
    before = stacked(SETTINGS, modules, tables(rows))
    changed = stacked(SETTINGS, modules, tables([rows[0], rows_of([61], seed=1)[0], rows[2]]))
    for k in (0, 2):
        assert all(torch.equal(before[k][name], changed[k][name]) for name in before[k])
    assert not torch.equal(before[1]["decode_levels.weight"], changed[1]["decode_levels.weight"])


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_an_example_that_is_not_finite_counts_as_zero_and_spoils_no_other_model(
    poison: float, tables: Tables, adam: Callable[..., None]
) -> None:
    modules, own, heard = (
        [network(seed) for seed in range(len(LENGTHS))],
        tables(rows_of(LENGTHS)),
        list[list[torch.Tensor]](),
    )
    clean = stacked(SETTINGS, modules, own)
    with torch.no_grad():  # examples with a = 3, of the second model alone
        modules[1].get_parameter("encode_columns.weight")[3] = poison
    adam(kept(heard))
    spoilt = stacked(SETTINGS, modules, own)
    adam(followed(heard, 1, rounding(SETTINGS, modules[1])))
    alone = Training(SETTINGS, copy.deepcopy(modules[1]), lambda done, total: None, None).run(
        own[1], streams(1)
    )
    for name, tensor in alone.items():
        torch.testing.assert_close(spoilt[1][name], tensor, atol=1e-5, rtol=0, equal_nan=True)
    assert bool(spoilt[1]["decode_levels.weight"].isfinite().all())
    assert all(torch.equal(clean[k][name], spoilt[k][name]) for k in (0, 2) for name in clean[k])


def rehearsal(domain: Domain, codes: npt.NDArray[np.uint16]) -> Rehearsal:
    return Rehearsal(codes, domain, ReleasePlan(1.0, 1e-5, "add_remove", 1, train=SETTINGS))


def training(settings: DpSgd = SETTINGS, module: PerExampleLoss | None = None) -> Training:
    return Training(settings, module or network(), lambda done, total: None, None)


def test_rehearsals_are_held_to_their_plans(domain_of: Callable[..., Domain]) -> None:
    domain = domain_of(*SIZES)
    own = [rehearsal(domain, rows) for rows in rows_of((30, 31))]
    trained = train_side_by_side(own, [training(), training()], purpose="train")
    assert all(
        weights.receipts == {next(iter(trained[0].receipts))} for weights in trained
    )  # one that no ledger holds
    with pytest.raises(BudgetError, match="already released"):
        train_side_by_side(own, [training(), training()], purpose="train")
    other = replace(SETTINGS, noise_multiplier=0.4)
    fresh = [rehearsal(domain, rows) for rows in rows_of((30, 31))]
    with pytest.raises(BudgetError, match="another event"):
        train_side_by_side(fresh, [training(other), training(other)], purpose="train")
    with pytest.raises(BoundaryError, match="one setting"):
        train_side_by_side(fresh, [training(), training(other)], purpose="train")


def test_what_cannot_be_stacked_is_refused(
    domain_of: Callable[..., Domain], tables: Tables
) -> None:
    own = [rehearsal(domain_of(*SIZES), rows) for rows in rows_of((30, 31))]
    with pytest.raises(BoundaryError, match="one shape"):
        train_side_by_side(
            own, [training(), training(module=network(0, ((), (), (), ())))], purpose="train"
        )
    with pytest.raises(BoundaryError, match="its own module, table and randomness"):
        train_stacked(SETTINGS, [network()], tables(rows_of((30, 31))), [streams(0)])

    class Foreign(PerExampleLoss):
        latent = 0

        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

    with pytest.raises(BoundaryError, match="no proved per-example norm"):
        train_stacked(SETTINGS, [Foreign()], tables(rows_of((30,))), [streams(0)])


def test_the_door_to_a_rehearsals_rows_has_a_key(domain_of: Callable[..., Domain]) -> None:
    with pytest.raises(BoundaryError, match=r"only synthdp\.privacy"):
        rehearsal(domain_of(*SIZES), rows_of((30,))[0]).admit(
            training(), purpose="train", key=object()
        )
