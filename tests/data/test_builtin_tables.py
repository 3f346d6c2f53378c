"""The built-in tables as one registry: public rows, graphs that specs can state, drafts that are
the specs in specs/.
"""

from pathlib import Path
from typing import get_args

import pandas as pd
import pytest

from synthdp.data import DRAFTS, builtin
from synthdp.graph import CausalGraph
from synthdp.spec import load_spec
from synthdp.spec.model import BuiltinSource

SPECS = Path(__file__).parents[2] / "specs"
SHAPES = {
    "synthetic": (1000, 22),
    "pain1000": (1000, 222),
    "pain5000": (5000, 222),
    "eedi": (2950, 948),
}
LINKS = {
    "synthetic": (30, 0),
    "pain1000": (770, 0),
    "pain5000": (770, 0),
    "eedi": (940, 9),
}  # arrows, unseen causes


def test_a_spec_can_name_exactly_the_tables_there_are() -> None:
    assert get_args(BuiltinSource.model_fields["name"].annotation) == tuple(builtin.TABLES)


@pytest.mark.check
@pytest.mark.parametrize("name", SHAPES)
def test_everybody_has_the_same_rows_of_the_stated_shape(name: str) -> None:
    pd.testing.assert_frame_equal(builtin.frame(name), builtin.frame(name))
    assert builtin.frame(name).shape == SHAPES[name]


def test_the_survey_has_the_papers_kinds_of_columns() -> None:
    table = builtin.frame("synthetic")
    assert [n for n in table if table[n].isna().any()] == ["cholesterol"]
    kinds = {str(d) for d in table.dtypes}
    assert {"bool", "int64", "float64", "str"} <= kinds and any("datetime64" in k for k in kinds)
    assert 0.2 < (table["visits"] == 0).mean() < 0.7
    assert (table["cost"] == 0).equals(table["visits"] == 0)


@pytest.mark.check
def test_the_tables_are_those_that_figures_were_published_on() -> None:
    numbers = builtin.frame("synthetic").select_dtypes(["number", "bool"]).astype(float)
    assert numbers.sum().sum() == pytest.approx(474_923.08, abs=0.01)
    assert [int(builtin.frame(name).to_numpy().sum()) for name in ("pain1000", "pain5000")] == [
        21300,
        102696,
    ]
    assert [
        int((builtin.frame("eedi") == answer).to_numpy().sum()) for answer in ("right", "wrong")
    ] == [376409, 357744]


@pytest.mark.parametrize("name", LINKS)
def test_its_graph_holds_in_python_and_has_no_cycle(name: str) -> None:
    columns = list(builtin.frame(name))
    graph = CausalGraph.from_spec(builtin.graph(name), columns)
    assert graph.is_dag and (len(graph.directed), len(graph.latent)) == LINKS[name]
    assert all(
        columns.index(a) < columns.index(b) for a, b in graph.directed
    )  # columns stand in causal order


@pytest.mark.check
@pytest.mark.parametrize("name", DRAFTS)
def test_the_draft_of_a_wide_table_is_the_spec_and_states_its_true_graph(name: str) -> None:
    path = SPECS / f"{name}.yaml"
    assert path.read_text(encoding="utf-8") == DRAFTS[name]()
    loaded = load_spec(path)
    assert tuple(loaded.columns) == tuple(builtin.frame(name))
    assert loaded.graph == builtin.graph(name) and loaded.dataset.source == BuiltinSource(
        kind="builtin", name=name
    )
