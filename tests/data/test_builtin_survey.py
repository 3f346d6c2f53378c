"""The built-in table: its shape, its public seed, and that its stated graph is the graph of its
equations.
"""

import numpy as np
import pandas as pd
import pytest

from synthdp.data import builtin

STRUCTURE, frame = builtin.STRUCTURE, builtin.survey_frame
EDGES = [(parent, name) for name, own in STRUCTURE.items() for parent in own.parents]


def levels(values: pd.Series) -> np.ndarray:
    """A column in at most five levels; missing is one."""
    if values.dtype.kind in "ifM":
        values = pd.cut(values.rank(pct=True), [0, 0.25, 0.5, 0.75, 1])
    return pd.factorize(values, use_na_sentinel=False)[0]


def cramers_v(a: np.ndarray, b: np.ndarray) -> float:
    a, b = (np.unique(x, return_inverse=True)[1] for x in (a, b))
    counts = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(counts, (a, b), 1)
    expected = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
    chi = ((counts - expected) ** 2 / expected).sum()
    return float(
        np.sqrt(
            max(chi - (counts.shape[0] - 1) * (counts.shape[1] - 1), 0)
            / counts.sum()
            / (min(counts.shape) - 1)
        )
    )


def test_it_has_the_papers_shape_and_every_kind_of_column() -> None:
    table = frame()
    assert table.shape == (1000, 22)
    assert [n for n in table if table[n].isna().any()] == ["cholesterol"]
    kinds = {str(d) for d in table.dtypes}
    assert {"bool", "int64", "float64", "str"} <= kinds and any("datetime64" in k for k in kinds)
    assert 0.2 < (table["visits"] == 0).mean() < 0.7 and (table["cost"] == 0).equals(
        table["visits"] == 0
    )


def test_everybody_has_the_same_table() -> None:
    pd.testing.assert_frame_equal(frame(), frame())
    assert frame().iloc[0][["region", "age", "education", "income"]].tolist() == [
        "north",
        61,
        "bachelor",
        64.09,
    ]


def test_causes_come_before_effects() -> None:
    names = list(STRUCTURE)
    assert (
        all(names.index(a) < names.index(b) for a, b in EDGES)
        and len(set(EDGES)) == len(EDGES) == 30
    )


@pytest.mark.check
def test_every_edge_can_be_seen_and_non_edges_vanish_given_the_parents() -> None:
    """Large sample: a cause moves its effect while the effect's other parents are held, and a
    stranger does not.
    """
    table = frame(rows=40_000)
    code = {n: levels(table[n]) for n in table}
    for name, own in STRUCTURE.items():
        for parent in own.parents:
            held = [code[p] for p in own.parents if p != parent]
            assert strongest(code[parent], code[name], held) > 0.1, (parent, name)
    for stranger, name in [
        ("region", "age"),
        ("sex", "income"),
        ("urban", "employed"),
        ("exercise", "diabetes"),
        ("employed", "insured"),
    ]:
        held = [
            np.round(table[p].rank(pct=True).to_numpy() * 30)
            if table[p].dtype == float
            else code[p]
            for p in STRUCTURE[name].parents
        ]
        assert strongest(code[stranger], code[name], held, mean=True) < 0.05, (stranger, name)


def strongest(a: np.ndarray, b: np.ndarray, held: list[np.ndarray], *, mean: bool = False) -> float:
    """Association of a and b within cells of `held`: the largest, or the mean by rows."""
    cell = (
        np.zeros(len(a), dtype=np.int64)
        if not held
        else pd.factorize(pd.MultiIndex.from_arrays(held))[0]
    )
    found = [
        (float((cell == c).sum()), cramers_v(a[cell == c], b[cell == c]))
        for c in np.unique(cell)
        if varied(a, b, cell == c)
    ]
    sizes, values = zip(*found, strict=True)
    return float(np.average(values, weights=sizes)) if mean else max(values)


def varied(a: np.ndarray, b: np.ndarray, rows: np.ndarray) -> bool:
    return bool(
        rows.sum() > 400
        and np.ptp(a[rows])
        and np.ptp(b[rows])
        and min(np.bincount(b[rows])[np.unique(b[rows])]) > 20
    )
