"""Copies are pooled in one call, in Python and by the bundle's script for R: both agree.

R is no part of the project's environment; without it these tests are skipped, with the reason.
Coverage of the pooled analyses is that of `pooled` (`test_copies_coverage.py`).
"""

import io
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import t

from synthdp.api.bundle import CopiedTables
from synthdp.bundle import template_text
from synthdp.errors import OutputError
from synthdp.inference import pooled
from tests.builders import lacks_r
from tests.inference.copied import SHAPE, law, released

COPIES, ROWS = 8, 4_000
FIELDS = [
    {"name": "smoker", "type": "boolean", "trueValues": ["yes"], "falseValues": ["no"]},
    {"name": "arm", "type": "integer", "description": "arm of the trial"},
    {
        "name": "group",
        "type": "integer",
        "categories": [{"value": 0, "label": "low"}, {"value": 100000, "label": "high"}],
        "categoriesOrdered": False,
    },
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of columns of a release of pairs, and what describes them. Seeded."""
    rng, place = np.random.default_rng(22), tmp_path_factory.mktemp("drawn")
    posterior = released(law((0.4, 0.3, 0.2, 0.1)), 4_000, rng)
    (place / "copies").mkdir()
    laws = [drawn for _ in range(3 * COPIES) if (drawn := posterior.drawn(rng)) is not None]
    for at, drawn in enumerate(laws[:COPIES]):
        cells = rng.choice(drawn.size, ROWS, p=drawn.ravel() / drawn.sum())
        _, group, treated, ill, _ = np.unravel_index(cells, SHAPE)
        columns = {"smoker": np.where(ill, "yes", "no"), "arm": treated}
        table = pd.DataFrame(columns | {"group": np.where(group, 100000, 0)})
        table.to_csv(place / "copies" / f"copy-{at + 1:02}.csv", index=False)
    content = {"resources": [{"schema": {"fields": FIELDS}}]}
    (place / "datapackage.json").write_text(json.dumps(content))
    (place / "synthdp.R").write_text(template_text("synthdp.R.j2"))
    return place


def _copies(folder: Path) -> list[pd.DataFrame]:
    return [pd.read_csv(file) for file in sorted((folder / "copies").glob("copy-*.csv"))]


def in_r(folder: Path, code: str) -> str:
    """What R prints after it has read the bundle's script."""
    done = subprocess.run(
        ["Rscript", "-e", f'source("synthdp.R")\n{code}'],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def logistic(table: pd.DataFrame, *columns: str) -> tuple[Any, Any]:
    """Coefficients and their variances, as `glm` has them."""
    x = np.column_stack([np.ones(len(table)), *(table[name] for name in columns)])
    y, beta = (table["smoker"] == "yes").to_numpy(), np.zeros(x.shape[1])
    for _ in range(25):
        fit = expit(x @ beta)
        inverse = np.linalg.inv((x * (fit * (1 - fit))[:, None]).T @ x)
        beta = beta + inverse @ (x.T @ (y - fit))
    return beta, np.diag(inverse)


def test_a_model_is_pooled_in_one_call(folder: Path) -> None:
    """By a mapping, and by what looks like a fit of statsmodels; by the rule of the derivations."""
    tables = _copies(folder)
    copies = CopiedTables(tables, {})

    def shares(rows: pd.DataFrame) -> dict[str, tuple[float, float]]:
        ill = rows["smoker"] == "yes"
        arms = {arm: ill[rows["arm"] == arm] for arm in (0, 1)}
        return {f"arm {arm}": (y.mean(), y.var() / len(y)) for arm, y in arms.items()}

    found = copies.pool(shares)
    q = np.array([shares(rows)["arm 1"] for rows in tables])
    b, u = q[:, 0].var(ddof=1), q[:, 1].mean()
    total = (1 + 1 / COPIES) * b - u
    assert total > u  # the rule's first case
    freedom = (COPIES - 1) * (1 - u / ((1 + 1 / COPIES) * b)) ** 2
    half = t.ppf(0.975, freedom) * np.sqrt(total)
    line = found.loc["arm 1"]
    assert line["estimate"] == pytest.approx(q[:, 0].mean())
    assert (line["low"], line["high"]) == pytest.approx(
        (q[:, 0].mean() - half, q[:, 0].mean() + half)
    )

    def fit(rows: pd.DataFrame) -> SimpleNamespace:
        made = pd.DataFrame(shares(rows), index=["q", "u"]).T
        return SimpleNamespace(params=made["q"], bse=np.sqrt(made["u"]))

    pd.testing.assert_frame_equal(copies.pool(fit), found)


def test_what_cannot_be_pooled_is_told(folder: Path) -> None:
    copies = CopiedTables(_copies(folder), {})
    with pytest.raises(OutputError, match="copy 1 is no estimates with variances"):
        copies.pool(lambda rows: {"a": (np.nan, 1.0)})
    made = iter(range(99))
    with pytest.raises(
        OutputError, match="copy 2 and the first have different estimates: '0', '1'"
    ):
        copies.pool(lambda rows: {next(made): (0.5, 1.0)})


def test_equal_copies_have_the_variance_of_one() -> None:
    middle, error, freedom = pooled(np.full((5, 1), 0.3), np.full((5, 1), 0.04))
    assert (middle[0], error[0], freedom[0]) == pytest.approx((0.3, 0.2, 1.0))
    assert np.isfinite(pooled(np.ones((3, 1)), np.zeros((3, 1)))).all()


@pytest.mark.check
@pytest.mark.parametrize(("formula", "columns"), [("~ 1", ()), ("~ arm", ("arm",))])
def test_r_pools_as_python_does(folder: Path, formula: str, columns: tuple[str, ...]) -> None:
    if lacking := lacks_r("jsonlite"):
        pytest.skip(lacking)
    model = f"function(rows) glm(smoker {formula}, family = binomial, data = rows)"
    printed = in_r(folder, f'write.csv(synthdp_pool("copies", {model}), stdout())')
    found = pd.read_csv(io.StringIO(printed), index_col=0)
    fits = [logistic(table, *columns) for table in _copies(folder)]
    middle, error, freedom = pooled(*(np.array(part) for part in zip(*fits, strict=True)))
    half = t.ppf(0.975, freedom) * error
    wanted = np.column_stack([middle, error, middle - half, middle + half])
    assert found.to_numpy() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.check
def test_r_reads_types_and_labels_and_warns_of_rows(folder: Path) -> None:
    if lacking := lacks_r("jsonlite"):
        pytest.skip(lacking)
    first = (folder / "copies" / "copy-01.csv").read_text()
    (folder / "synthetic.csv").write_text(first)
    told = in_r(
        folder,
        "rows <- withCallingHandlers(synthdp_read(), warning = function(w) cat('warned', '\\n'))\n"
        "cat(class(rows$smoker), class(rows$arm), levels(rows$group), attr(rows$arm, 'label'))\n"
        "cat('', sum(is.na(rows$group)))",
    )
    assert told.splitlines()[0].strip() == "warned"
    assert told.splitlines()[-1] == "logical numeric low high arm of the trial 0"


@pytest.mark.check
def test_the_rules_of_multiple_imputation_are_too_wide(folder: Path) -> None:
    """As the guide says: `mitools` adds the two variances, where copies ask for the difference."""
    if lacking := lacks_r("jsonlite", "mitools"):
        pytest.skip(lacking)
    printed = in_r(
        folder,
        "fits <- lapply(list.files('copies', full.names = TRUE), function(file)"
        " glm(smoker ~ arm, family = binomial, data = synthdp_read('.', file)))\n"
        "p <- mitools::MIcombine(lapply(fits, coef), lapply(fits, vcov))\n"
        "write.csv(data.frame(estimate = coef(p), error = sqrt(diag(vcov(p)))), stdout())",
    )
    theirs = pd.read_csv(io.StringIO(printed), index_col=0)
    fits = [logistic(table, "arm") for table in _copies(folder)]
    middle, error, _ = pooled(*(np.array(part) for part in zip(*fits, strict=True)))
    assert theirs["estimate"].tolist() == pytest.approx(middle.tolist(), rel=1e-6)
    assert (theirs["error"] > error).all()
