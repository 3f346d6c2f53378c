"""Graph files as other programs write them: each is read exactly, or refused with the reason.

`corpus/index.json` has for each file the program, where it comes from and under which terms, and
what must be read. `alone` are columns without an arrow or a link of unknown direction.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from synthdp.graph import SUFFIXES, GraphFileError, read_graph

CORPUS = Path(__file__).parent / "corpus"
FILES: list[dict[str, Any]] = json.loads((CORPUS / "index.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("told", FILES, ids=[told["file"] for told in FILES])
def test_files_of_other_programs(told: dict[str, Any]) -> None:
    path = CORPUS / told["file"]
    if path.suffix == ".graphml":
        pytest.importorskip("defusedxml", reason="the extra [codebook] is not installed")
    if "refused" in told:
        with pytest.raises(GraphFileError) as refusal:
            read_graph(path)
        assert told["refused"] in refusal.value.message and refusal.value.hint
        assert "Error" not in str(refusal.value)
        return
    found = read_graph(path)
    assert {e.pair for e in found.edges if e.directed} == ends(told, "->")
    assert {frozenset(e.pair) for e in found.edges if not e.directed} == {
        frozenset(pair) for pair in ends(told, "--")
    }
    assert {frozenset(names) for names in found.latent} == {
        frozenset(names) for names in told.get("unseen", ())
    }
    named = {n for a, _, b in told["links"] for n in (a, b)} | set(told.get("alone", ()))
    assert set(found.nodes) == named.union(*told.get("unseen", ()))


def ends(told: dict[str, Any], mark: str) -> set[tuple[str, str]]:
    return {(a, b) for a, m, b in told["links"] if m == mark}


def test_the_corpus_has_each_file_once_and_each_format() -> None:
    here = {told["file"] for told in FILES if not told["file"].startswith("..")}
    assert len(FILES) == len({told["file"] for told in FILES}) >= 40
    assert here == {p.name for p in CORPUS.iterdir()} - {"index.json"}
    read = {SUFFIXES[Path(told["file"]).suffix] for told in FILES if "refused" not in told}
    assert read >= {"dot", "dagitty", "bif", "gml", "graphml", "json", "tetrad"}
    assert all(told["origin"] and told["licence"] for told in FILES)


def test_the_guide_has_every_suffix() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "graphs.md").read_text("utf-8")
    assert [suffix for suffix in SUFFIXES if f"`{suffix}`" not in guide] == []
