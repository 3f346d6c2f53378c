"""One folder for all examples of the Python face: a small spec, its table and its release."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import synthdp
from synthdp.privacy import plan

ROWS = 300

CLINIC = """\
synthdp: 1
dataset:
  id: clinic
  title: Patients of a clinic, synthetic
  source: {kind: csv, path: clinic.csv}
  privacy_unit: {kind: row, meaning: one patient}
  rows: {kind: approximate, value: 300}
columns:
  age: {type: integer, lower: 18, upper: 110, bins: 4, unit: years}
  sex: {type: categorical, categories: [female, male]}
  smoker: {type: boolean, false: "no", true: "yes", missing: true}
privacy: {epsilon: 1, delta: 1e-5, cap: {epsilon: 9, delta: 1e-4},
  shares: {measure: 0.8, train: 0.2}}
graph: {mode: given, edges: [age -> smoker, sex -> smoker]}
synthesizer: {batch: 64, steps: 5, hidden: 8, latent: 2}
sampling: {rows: 200, oversample: 2}
evaluation: {enabled: false}
attacks: {membership: {enabled: false}}
gates: [{metric: tv1_noisy, at_most: 1}]
tracking: {enabled: false}
compute: {threads: 1}
"""


def clinic(rows: int = ROWS) -> pd.DataFrame:
    """Patients who do not exist, in columns of text as `clinic.csv` has them."""
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 95, rows).astype(str),
            "sex": rng.choice(["female", "male"], rows),
            "smoker": rng.choice(["no", "yes", ""], rows),
        }
    )


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder; the release of `clinic.yaml` lies in `releases/clinic`."""
    folder = tmp_path_factory.mktemp("face")
    (folder / "clinic.yaml").write_text(CLINIC, encoding="utf-8")
    clinic().to_csv(folder / "clinic.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(plan, "GROUP_SIZES", (1, 2))  # bounds for larger groups take seconds
        synthdp.Spec.load("clinic.yaml").release()
    return folder


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "GROUP_SIZES", (1, 2))


@pytest.fixture
def at_work(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder is `workplace`."""
    monkeypatch.chdir(workplace)
    return workplace
