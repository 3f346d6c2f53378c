"""The README's example runs as printed, on fewer rows and pairs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

README = Path(__file__).parents[2] / "attacks" / "README.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    pd.DataFrame({"a": rng.choice(["x", "y"], 40), "b": rng.choice(["u", "v", "w"], 40)}).to_csv("private.csv", index=False)
    code = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert code is not None
    example = code[1].replace("rows=500", "rows=30").replace("pairs=200", "pairs=4").replace("runner=Loky(workers=2), progress=print", "")
    exec(example, {"my_synthesizer": lambda part, rows, seed: part.sample(rows, replace=True, random_state=seed), "__name__": "example"})
    printed = capsys.readouterr().out
    assert "test models in each world" in printed and "too few models to refute the claim" in printed
