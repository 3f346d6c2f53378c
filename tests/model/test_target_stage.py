"""The targets' own stage: the network with the regression, gradients, groups of layers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from synthdp.data import ColumnDomain, Domain, level_features
from synthdp.model import (
    CausalVae,
    Synthesizer,
    TargetRegression,
    arrays,
    into_network,
    shrunk_log_ratio,
    without_targets,
)
from synthdp.model.ancestral import Architecture
from synthdp.model.fit import target_regression, width_groups
from synthdp.privacy.dpsgd.training import Training
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.session import Rehearsal
from tests.builders import dp_sgd
from tests.model.conftest import generator, quiet

# a, b -> y; a -> b; a, b, y -> x. The targets are y and x.
EDGES = tuple(float(e) for e in range(8))
DOMAIN = Domain(
    (
        ColumnDomain(
            "a", "number", tuple("01234567"), False, edges=EDGES, stop=8.0, lower=0.0, upper=8.0
        ),
        ColumnDomain("b", "categorical", ("p", "q", "r"), False),
        ColumnDomain("y", "categorical", ("no", "yes"), False),
        ColumnDomain("x", "categorical", ("u", "v", "w"), False),
    )
)
WHOLE = Architecture(DOMAIN.sizes, ((), (0,), (0, 1), (2, 0, 1)), (tuple(range(4)),) * 2, hidden=5)
TARGETS = (2, 3)
MARGINS = [np.full(s, 1 / s) for s in DOMAIN.sizes]


def shaken(module: torch.nn.Module, seed: int) -> torch.nn.Module:
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn(p.shape, generator=generator(seed + p.numel())))
    return module


def rows(count: int, seed: int = 0) -> Tensor:
    return torch.stack(
        [torch.randint(s, (count,), generator=generator(seed + s)) for s in DOMAIN.sizes], 1
    )


def stage() -> tuple[CausalVae, TargetRegression, CausalVae]:
    """A network trained without targets, the targets' regression, and the network of both."""
    features = [torch.from_numpy(level_features(column)).float() for column in DOMAIN.columns]
    left = [i for i in range(4) if i not in TARGETS]
    trained = CausalVae(
        without_targets(WHOLE, TARGETS),
        generator=generator(1),
        features=features,
        groups=width_groups(DOMAIN.sizes, left),
    )
    regression = target_regression(DOMAIN, WHOLE, TARGETS, MARGINS)
    shaken(trained, 2), shaken(regression, 3)
    plain = trained.plain({n: p for n, p in trained.named_parameters() if p.requires_grad})
    both = CausalVae(WHOLE, generator=generator(4))
    both.load_state_dict(
        into_network(WHOLE, plain, regression, dict(regression.named_parameters()))
    )
    return trained, regression, both


def test_the_network_of_both_gives_targets_the_regressions_probabilities_and_the_others_their_own() -> (  # noqa: E501
    None
):
    trained, regression, both = stage()
    codes, z = rows(50), torch.randn(50, 2, generator=generator(5))
    logits = both.logits(codes, z)
    torch.testing.assert_close(logits[:, :2], trained.logits(codes, z)[:, :2], rtol=1e-4, atol=1e-4)
    surprise = sum(
        torch.nn.functional.cross_entropy(
            logits[:, t, : DOMAIN.sizes[t]], codes[:, t], reduction="none"
        )
        for t in TARGETS
    )
    torch.testing.assert_close(
        surprise, regression(codes, torch.zeros(50, 0)), rtol=1e-4, atol=1e-4
    )


def test_a_target_depends_on_its_parents_alone() -> None:
    _, _, both = stage()
    codes, z = rows(50), torch.randn(50, 2, generator=generator(5))
    before = both.logits(codes, z)
    assert torch.equal(both.logits(codes, z + 1)[:, TARGETS], before[:, TARGETS])
    for moved in range(4):
        changed = codes.clone()
        changed[:, moved] = (codes[:, moved] + 1) % DOMAIN.sizes[moved]
        after = both.logits(changed, z)
        for t in TARGETS:
            same = bool((after[:, t, : DOMAIN.sizes[t]] == before[:, t, : DOMAIN.sizes[t]]).all())
            assert same is (moved not in WHOLE.parents[t]), (moved, t)


def test_the_network_that_is_trained_without_targets_has_no_loss_for_them() -> None:
    trained, _, _ = stage()
    codes, noise = rows(20), torch.zeros(20, 2)
    sizes = trained.architecture.sizes
    mean, log_variance = trained.encode(codes)  # the encoder sees every column
    divergence = (log_variance.exp() + mean.square() - 1 - log_variance).sum(1) / 2
    logits = trained.logits(codes, mean)
    own = sum(
        torch.nn.functional.cross_entropy(logits[:, i, : sizes[i]], codes[:, i], reduction="none")
        for i in (0, 1)
    )
    torch.testing.assert_close(trained(codes, noise), own + divergence, rtol=1e-4, atol=1e-4)


def test_chances_of_a_target_are_the_regressions() -> None:
    _, regression, both = stage()
    codes = rows(50)
    synthesizer = Synthesizer(DOMAIN.names, WHOLE, arrays(both.state_dict()))
    for t in TARGETS:
        every = []
        for level in range(DOMAIN.sizes[t]):
            asked = codes.clone()
            asked[:, t] = level
            every.append(-regression(asked, torch.zeros(50, 0)))
        expected = torch.stack(every, 1).softmax(
            1
        )  # y leads to x, which so says something of y too
        (probabilities,) = synthesizer.probabilities(
            codes.numpy().astype(np.uint16), [t], rng=np.random.default_rng(1)
        )
        np.testing.assert_allclose(probabilities, expected.detach().numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [((2, 3, 100, 4), ((0, 1, 3), (2,))), ((5, 5, 6), ((0, 1, 2),)), ((7,), ((0,),))],
)
def test_wide_columns_are_decoded_apart(
    sizes: tuple[int, ...], wanted: tuple[tuple[int, ...], ...]
) -> None:
    assert width_groups(sizes, range(len(sizes))) == wanted


def test_groups_change_no_number() -> None:
    """One network decoded as one group and the same in two."""
    one = shaken(CausalVae(WHOLE, generator=generator(1)), 2)
    two = CausalVae(WHOLE, generator=generator(1), groups=[(1, 3), (0, 2)])
    assert isinstance(one, CausalVae)
    shared = {n: p for n, p in one.state_dict().items() if not n.startswith("decode_levels")}
    two.load_state_dict(shared, strict=False)
    with torch.no_grad():
        for group, layer in two.decoders():
            for place, i in enumerate(group):
                levels = layer.weight.shape[2]
                layer.weight[place] = one.decode_levels.weight[i, :, :levels]
                layer.bias[place] = one.decode_levels.bias[i, :levels]
    codes, noise = rows(30), torch.randn(30, 2, generator=generator(7))
    torch.testing.assert_close(two.logits(codes, noise), one.logits(codes, noise))
    torch.testing.assert_close(two(codes, noise), one(codes, noise))
    for column in range(4):
        torch.testing.assert_close(
            two.column_logits(column, codes, noise), one.column_logits(column, codes, noise)
        )
    back = two.plain({n: p for n, p in two.named_parameters() if p.requires_grad})
    assert {n: tuple(t.shape) for n, t in back.items()} == WHOLE.shapes()
    for i, size in enumerate(DOMAIN.sizes):
        torch.testing.assert_close(
            back["decode_levels.bias"][i, :size], one.decode_levels.bias[i, :size]
        )


@pytest.mark.check
def test_the_stage_learns_what_targets_depend_on() -> None:
    """y is yes with odds that rise by e for each unit of a, without noise worth the name."""
    rng = np.random.default_rng(0)
    codes = rows(20_000).numpy()
    slope = codes[:, 0] - 3.5 + 2 * (codes[:, 1] == 1)
    codes[:, 2] = rng.random(len(codes)) < 1 / (1 + np.exp(-slope))
    settings = dp_sgd(
        **{"rate": 0.05, "steps": 300, "expected_batch": 1000.0, "clip": 4.0, "ema": 0.99},
        **{"noise_multiplier": 1e-3, "learning_rate": 0.03, "checkpoint_every": 300},
    )
    regression = target_regression(DOMAIN, WHOLE, (2,), MARGINS)
    training = Training(settings, regression, quiet, None)
    plan = ReleasePlan(1e9, 1e-5, "add_remove", 1, targets=settings)
    rehearsal = Rehearsal(codes.astype(np.uint16), DOMAIN, plan)
    tables, biases = regression.tables(rehearsal.release(training, purpose="targets").value)
    odds = [tables[2, p][:, 1] - tables[2, p][:, 0] for p in (0, 1)]
    found = sum(own[codes[:, p]] for p, own in enumerate(odds)) + biases[2][1] - biases[2][0]
    assert isinstance(found, Tensor)
    assert float((found - torch.from_numpy(slope)).abs().mean()) < 0.35


def test_no_parent_of_a_target_is_missed_where_nothing_else_has_parents() -> None:
    lone = replace(WHOLE, parents=((), (), (0, 1), ()))
    plain = CausalVae(without_targets(lone, (2,)), generator=generator(1))
    assert plain.decode_parents is None
    regression = target_regression(DOMAIN, lone, (2,), MARGINS)
    weights = into_network(
        lone, plain.state_dict(), regression, dict(shaken(regression, 1).named_parameters())
    )
    assert {n: tuple(t.shape) for n, t in weights.items()} == lone.shapes()


# --- where the stage starts ---


def counted(probabilities: list[float], rows: list[int]) -> np.ndarray:
    """A table of parents' levels by `no` and `yes`."""
    return np.array([[n * (1 - p), n * p] for n, p in zip(rows, probabilities, strict=True)])


def test_a_stage_that_nothing_was_measured_for_starts_at_the_margins() -> None:
    regression = target_regression(DOMAIN, WHOLE, TARGETS, MARGINS)
    regression.start_from(
        [NoisyTable(("a",), np.ones(8), 1.0), NoisyTable(("a", "b"), np.ones((8, 3)), 1.0)], DOMAIN
    )
    wanted = np.log(2) + np.log(3)
    assert regression(rows(5), torch.zeros(5, 0)).tolist() == pytest.approx([wanted] * 5)


@pytest.mark.parametrize("turned", [False, True])
def test_a_measured_table_says_where_to_start(turned: bool) -> None:
    """Each level of a starts at its own chances of yes, all else at the margins."""
    probabilities = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    counts = counted(probabilities, [10_000] * 8)
    table = NoisyTable(("y", "a"), counts.T, 1.0) if turned else NoisyTable(("a", "y"), counts, 1.0)
    regression = target_regression(DOMAIN, WHOLE, (2,), MARGINS)
    regression.start_from([table], DOMAIN)
    codes = torch.tensor([[level, 0, 1, 0] for level in range(8)])
    assert (-regression(codes, torch.zeros(8, 0))).exp().tolist() == pytest.approx(
        probabilities, abs=0.01
    )


def test_a_level_without_rows_follows_its_neighbours_and_not_its_noise() -> None:
    chances, rows_of = [0.05, 0.05, 0.9, 0.9, 0.1, 0.1, 0.9, 0.9], [5000] * 3 + [0] * 3 + [5000] * 2
    noise = np.array([[0, 0]] * 3 + [[60, -20]] * 3 + [[0, 0]] * 2)
    counts, even = counted(chances, rows_of) + noise, np.array([0.5, 0.5])
    found = np.exp(shrunk_log_ratio(counts, even, DOMAIN.columns[0], sigma=20.0))[:, 1] / 2
    assert (found[3:6] > 0.87).all() and (found[:2] < 0.15).all() and (found[6:] > 0.85).all()
    some = counts[:3] * [[1], [0], [1]]
    unordered = np.exp(shrunk_log_ratio(some, even, DOMAIN.columns[1], sigma=20.0))[:, 1] / 2
    assert unordered[1] == pytest.approx(0.5) and unordered[0] < 0.15 < 0.85 < unordered[2]


SPIKED = {"spikes": (0.0,), "edges": (1.0,), "stop": 2.0, "upper": 2.0}


@pytest.mark.parametrize("sigma", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("share", [(0.5, 0.5), (1 - 1e-6, 1e-6), (1.0,)])
def test_any_table_gives_numbers(sigma: float, share: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    spiked = ColumnDomain("s", "number", ("0", "a", "missing"), True, **SPIKED)
    for column in (*DOMAIN.columns, spiked):
        shape = (column.levels, len(share))
        for counts in (np.zeros(shape), rng.normal(0, sigma, shape)):
            assert np.isfinite(shrunk_log_ratio(counts, np.array(share), column, sigma=sigma)).all()


def test_a_rare_level_of_a_target_stays_rare_where_nothing_speaks_for_it() -> None:
    """However many of its parents were measured."""
    share = np.array([0.6, 0.4 - 5e-6, 5e-6])
    found = shrunk_log_ratio(np.outer([1e6, 1e6, 1e6], share), share, DOMAIN.columns[1], sigma=20.0)
    assert np.abs(found).max() < 0.01


def test_the_wider_the_target_the_less_is_a_level_of_noise_alone_taken_for_rows() -> None:
    rng, levels = np.random.default_rng(0), 32
    share = np.full(levels, 1 / levels)
    drawn = [rng.normal(0, 20.0, (3, levels)) for _ in range(200)]
    quiet = [not shrunk_log_ratio(n, share, DOMAIN.columns[1], sigma=20.0).any() for n in drawn]
    assert np.mean(quiet) > 0.9
