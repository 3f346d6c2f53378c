"""No value of a row changes what another row is read as, in any source; who lets it is caught."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.audit.planted.readers import WHOLE_COLUMNS as READERS
from tests.audit.reading_pairs import (
    TEXTS,
    WAYS,
    fuzzed,
    pair_domain,
    read_in_batches,
    replay_values,
)

SEED = 20261123  # of made-up values, not of noise
TEXT_WAYS = ("texts of a file", "texts of a dictionary")


@pytest.mark.check
def test_no_value_changes_what_another_is_read_as() -> None:
    """Over a thousand pairs: all of typed cells, one in 61 of texts and objects."""
    done = replay_values(more=10, every=61, rng=np.random.default_rng(SEED))
    assert done.findings == () and done.pairs > 1_000


@pytest.mark.check
def test_nor_in_batches() -> None:
    done = replay_values(
        ways=[w for w in WAYS if w not in ("objects of a database", "texts of pandas")],
        every=67,
        rng=np.random.default_rng(SEED),
        read=read_in_batches,
    )
    assert done.findings == () and done.pairs > 350


@pytest.mark.parametrize("name", READERS)
def test_a_reader_of_whole_columns_is_caught(name: str, figure: Callable[..., None]) -> None:
    read, way, values = READERS[name]
    both, alone = (
        replay_values(ways=[way], values=own, rng=np.random.default_rng(SEED), read=read).findings
        for own in (values, values[:1])
    )
    assert both and alone == (), "it is not the pair that shows it"
    figure("readers of whole columns caught by pairs of values", 1, 1)


def test_fuzzed_values_differ_and_come_again_from_their_seed() -> None:
    made = fuzzed(TEXTS, 500, np.random.default_rng(SEED))
    assert made == fuzzed(TEXTS, 500, np.random.default_rng(SEED)) and len({*made} - {*TEXTS}) > 300


@pytest.mark.slow
def test_a_hundred_thousand_pairs(figure: Callable[..., None]) -> None:
    """Each in a column of every type."""
    rng = np.random.default_rng(11)
    runs: list[dict[str, Any]] = [
        {"more": 60, "every": 8},
        {"ways": TEXT_WAYS, "more": 50, "every": 24, "read": read_in_batches},
    ]
    done = [replay_values(rng=rng, **run) for run in runs]
    found = [str(f) for d in done for f in d.findings]
    pairs = sum(d.pairs for d in done) * len(pair_domain())
    assert found == [] and pairs >= 100_000
    figure("pairs of values read without a change", pairs - len(found), pairs)
