"""The README's example runs as printed, on fewer rows and pairs."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.check

README = Path(__file__).parents[2] / "attacks" / "README.md"


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other, as a reader would."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    for name, rows in (
        ("private", 40),
        ("trained_on", 60),
        ("held_out", 60),
        ("reference", 60),
        ("synthetic", 60),
    ):
        texts = {
            "sex": rng.choice(["f", "m"], rows),
            "region": rng.choice(["north", "south", ""], rows),
        }
        numbers = {
            "age": rng.integers(0, 121, rows),
            "wage": np.where(rng.random(rows) < 0.2, np.nan, rng.uniform(0, 1000, rows).round(2)),
        }
        pd.DataFrame(texts | numbers).to_csv(f"{name}.csv", index=False)
    scope = {
        "my_synthesizer": lambda part, rows, seed: part.sample(
            rows, replace=True, random_state=seed
        ),
        "__name__": "example",
    }
    printed = []
    for code in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL):
        exec(
            code.replace("rows=500", "rows=30")
            .replace("pairs=200", "pairs=4")
            .replace("releases=1000", "releases=40")
            .replace("runner=Loky(workers=2), progress=print", ""),
            scope,
        )
        printed.append(capsys.readouterr().out)
    shadows, one_release, white_box, tables = printed
    assert "test models in each world" in shadows
    assert "too few models to refute the claim" in shadows
    assert "domias: AUC" in one_release
    assert "no bound on epsilon" in one_release
    assert "than about control rows" in one_release
    assert "test models in each world" in white_box
    assert "Interval(value=" in tables and tables.strip().endswith(("True", "False"))
