"""The quick tests fail by chance in less than one of 10,000 runs, and draw by seeds."""

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from synthdp.privacy.noise import Streams, fresh_generator
from tests.chance import CHANCES, seeded

TESTS = Path(__file__).parent


def test_chances_of_all_tests_sum_to_less_than_one_in_ten_thousand() -> None:
    assert sum(chance for chance, _ in CHANCES.values()) <= 1e-4
    assert [name for name in CHANCES if not (TESTS / name).exists()] == []


UNSEEDED = ("urandom", "token_bytes", "uuid4", "SystemRandom")


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(TESTS.rglob("*.py")):
        yield str(path.relative_to(TESTS)), ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.check
def test_no_test_draws_without_a_seed() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            ast.unparse(node.func).endswith(UNSEEDED)
            or (
                ast.unparse(node.func).endswith(("default_rng", "SeedSequence"))
                and not node.args
                and not node.keywords
            )
        )
    ]
    assert found == []


@pytest.mark.check
def test_no_generator_is_shared_by_tests() -> None:
    """What one of them draws would depend on which others ran before it."""
    found = []
    for name, tree in sources():
        made = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            for target in node.targets
            if isinstance(target, ast.Name) and ast.unparse(node.value.func).endswith("default_rng")
        }
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        inside = [node for function in functions for node in ast.walk(function)]
        found += [
            f"{name}:{node.lineno}"
            for node in inside
            if isinstance(node, ast.Name) and node.id in made
        ]
    assert found == []


@pytest.fixture(scope="session")
def shared() -> float:
    return float(fresh_generator().random())


def test_a_quick_test_and_what_it_shares_draw_by_their_names(
    shared: float, request: pytest.FixtureRequest
) -> None:
    drawn = {request.node.name: float(fresh_generator().random()), "shared": shared}
    for name, number in drawn.items():
        with seeded(name):
            assert number == fresh_generator().random()


def test_what_is_seeded_repeats_and_keeps_its_law() -> None:
    def drawn(seed: str) -> list[float]:
        with seeded(seed):
            streams, zeros = Streams.quick(), np.zeros(40_000, dtype=np.int64)
            noise = [
                streams.discrete_gaussian(zeros, sigma=3.0),
                streams.discrete_laplace(zeros, scale=2.0),
            ]
            best = [streams.noisy_max(np.array([0, 3]), scale=4.0) for _ in range(4000)]
            return [
                float(fresh_generator().random()),
                *(float(n.std()) for n in noise),
                float(np.mean(best)),
            ]

    assert drawn("one") == drawn("one") != drawn("other")
    _, gaussian, laplace, best = drawn("one")
    assert (
        abs(gaussian / 3.01 - 1) < 0.03 and abs(laplace / 2.8 - 1) < 0.03
    )  # sqrt(9 + 1/12); sqrt(2 q) / (1 - q), q = exp(-1/2)
    assert abs(best - (1 - np.exp(-3 / 4) / 2)) < 0.05  # the law of two exponentials
    fresh = [Streams.fresh().noise.random() for _ in range(2)]
    assert fresh[0] != fresh[1]
