"""The pain tables follow a noisy OR over the published graph, with parameters in the stated
ranges.
"""

import numpy as np
import pytest

from synthdp.data import builtin, frame

LEAK, LINK = builtin.PAIN.leak, builtin.PAIN.link
causes, labels, draw = builtin.PAIN.causes, builtin.PAIN.labels, builtin.PAIN.frame

ROWS = 100_000


def test_the_graph_is_the_published_one() -> None:
    into = [len(own) for own in causes.values()]
    assert len(labels) == 222 and sum(into) == 770 and max(into) == 20 and into.count(0) == 27


@pytest.mark.check
def test_a_label_without_a_present_cause_appears_at_its_leak_and_one_cause_adds_its_link() -> None:
    table = {label: values.to_numpy() for label, values in draw(rows=ROWS).items()}
    assert (LEAK, LINK) == ((0.01, 0.05), (0.2, 0.8))
    leaks, links = [], []
    for label, own in causes.items():
        others = (
            np.column_stack([table[c] for c in own]) if own else np.zeros((ROWS, 0), dtype=bool)
        )
        alone = ~others.any(axis=1)
        leaks.append(table[label][alone].mean())
        for i in range(len(own)):
            one = others[:, i] & (others.sum(axis=1) == 1)
            links.append(1 - (1 - table[label][one].mean()) / (1 - leaks[-1]))
    # Uniform in the stated ranges, but for what 40,000 rows or more (2,000 for a link) leave open.
    assert (
        LEAK[0] - 0.004 < min(leaks) < LEAK[0] + 0.004
        and LEAK[1] - 0.004 < max(leaks) < LEAK[1] + 0.004
    )
    assert (
        LINK[0] - 0.04 < min(links) < LINK[0] + 0.04
        and LINK[1] - 0.04 < max(links) < LINK[1] + 0.04
    )
    assert (
        abs(np.mean(links) - np.mean(LINK)) < 0.02 and abs(np.mean(leaks) - np.mean(LEAK)) < 0.003
    )


def test_the_two_tables_share_no_rows() -> None:
    assert (frame("pain1000").to_numpy() != frame("pain5000").to_numpy()[:1000]).any(
        axis=1
    ).mean() > 0.99
