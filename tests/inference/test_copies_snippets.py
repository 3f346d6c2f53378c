"""The guide's snippets for pooling copies, in Python and in R: they agree, and R's runs.

R is no part of the project's environment; without it these tests are skipped, with the reason.
Coverage of the pooled analyses is that of `combined` in Python (`test_copies_coverage.py`).
"""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from tests.builders import lacks_r
from tests.docs.pages import ROOT, blocks
from tests.inference.copied import SHAPE, law, released, snippet

COPIES, ROWS = 8, 4_000
FORMULA = "~ 1,"
READ = 'combined(column("Estimate"), column("Std. Error"))'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of two columns of a release of pairs. Seeded."""
    rng, place = np.random.default_rng(22), tmp_path_factory.mktemp("drawn")
    posterior = released(law((0.4, 0.3, 0.2, 0.1)), 4_000, rng)
    (place / "copies").mkdir()
    laws = [drawn for _ in range(3 * COPIES) if (drawn := posterior.drawn(rng)) is not None]
    for at, drawn in enumerate(laws[:COPIES]):
        cells = rng.choice(drawn.size, ROWS, p=drawn.ravel() / drawn.sum())
        _, _, treated, ill, _ = np.unravel_index(cells, SHAPE)
        table = pd.DataFrame({"smoker": np.where(ill, "yes", "no"), "arm": treated})
        table.to_csv(place / "copies" / f"copy-{at + 1:02}.csv", index=False)
    return place


def in_r(folder: Path, formula: str, then: str) -> pd.DataFrame:
    """What the guide's snippet finds with another formula; `then` prints it."""
    (block,) = [b for b in blocks(ROOT / "docs" / "consumer.md") if b.language == "r"]
    assert FORMULA in block.text and READ in block.text
    code = block.text.replace(FORMULA, f"{formula},").replace(READ, then)
    done = subprocess.run(
        ["Rscript", "-e", code], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return pd.read_csv(io.StringIO(done.stdout), index_col=0)


def logistic(table: pd.DataFrame, *columns: str) -> tuple[Any, Any]:
    """Coefficients and their variances, as `glm` has them."""
    x = np.column_stack([np.ones(len(table)), *(table[name] for name in columns)])
    y, beta = (table["smoker"] == "yes").to_numpy(), np.zeros(x.shape[1])
    for _ in range(25):
        fit = expit(x @ beta)
        inverse = np.linalg.inv((x * (fit * (1 - fit))[:, None]).T @ x)
        beta = beta + inverse @ (x.T @ (y - fit))
    return beta, np.diag(inverse)


@pytest.mark.check
@pytest.mark.parametrize(("formula", "columns"), [("~ 1", ()), ("~ arm", ("arm",))])
def test_r_pools_as_python_does(folder: Path, formula: str, columns: tuple[str, ...]) -> None:
    if lacking := lacks_r():
        pytest.skip(lacking)
    found = in_r(folder, formula, f"write.csv({READ}, stdout())")
    files = sorted((folder / "copies").glob("copy-*.csv"))
    fits = [logistic(pd.read_csv(file), *columns) for file in files]
    estimates, variances = (np.array(part) for part in zip(*fits, strict=True))
    for k, (_, row) in enumerate(found.iterrows()):
        middle, (low, high) = snippet()(estimates[:, k], variances[:, k])
        assert row.tolist() == pytest.approx([middle, low, high], rel=1e-5)
    assert len(found) == 1 + len(columns)


@pytest.mark.check
def test_the_rules_of_multiple_imputation_are_too_wide(folder: Path) -> None:
    """As the guide says: `mitools` adds the two variances, where copies ask for the difference."""
    if lacking := lacks_r("mitools"):
        pytest.skip(lacking)
    ours = in_r(folder, "~ arm", f"write.csv({READ}, stdout())")
    theirs = in_r(
        folder,
        "~ arm",
        'e <- column("Estimate"); s <- column("Std. Error")\n'
        "p <- mitools::MIcombine(lapply(1:ncol(e), function(i) e[, i]),"
        " lapply(1:ncol(s), function(i) diag(s[, i]^2)))\n"
        "write.csv(data.frame(estimate = coef(p), error = sqrt(diag(vcov(p)))), stdout())",
    )
    assert theirs["estimate"].tolist() == pytest.approx(ours["estimate"].tolist(), rel=1e-6)
    files = sorted((folder / "copies").glob("copy-*.csv"))
    fits = [logistic(pd.read_csv(file), "arm") for file in files]
    estimates, variances = (np.array(part) for part in zip(*fits, strict=True))
    within, between = variances.mean(0), (1 + 1 / COPIES) * estimates.var(0, ddof=1)
    assert theirs["error"].tolist() == pytest.approx(np.sqrt(between + within), rel=1e-4)
    assert (theirs["error"] ** 2 > np.maximum(between - within, within)).all()
