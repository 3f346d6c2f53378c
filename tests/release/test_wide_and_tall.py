"""Wide, mostly missing and tall tables are released in memory that a laptop has, and their bundles
verify.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scaling import Point, run_apart
from synthdp.verify import verify_bundle

pytestmark = pytest.mark.check

ROOT = Path(__file__).parents[2]
SPECS = ROOT / "specs"
MAX_MB = 4096
RELEASE = """
import json, sys
from pathlib import Path
from benchmarks.memory import peak_mb
from synthdp.release.run import release
outcome = release(Path(sys.argv[1]), out=Path(sys.argv[2]))
print(json.dumps({"peak_mb": peak_mb(), "seconds": outcome.seconds, "metrics": outcome.metrics, "bundle": str(outcome.bundle)}))
"""  # noqa: E501


def released(name: str, folder: Path) -> dict[str, Any]:
    """A spec of the project released as it stands, in a process of its own."""
    shutil.copy(SPECS / f"{name}.yaml", folder)
    command = [sys.executable, "-c", RELEASE, f"{name}.yaml", "out"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ
        | {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "attacks"))),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pain5000", "eedi"])
def test_a_wide_table_is_released_judged_and_verified(
    name: str, tmp_path: Path, figure: Any
) -> None:
    result = released(name, tmp_path)
    assert verify_bundle(tmp_path / result["bundle"]).ok
    assert {"judge on real rows", "attack", "bundle", "report"} <= set(result["seconds"])
    assert "log the report in MLflow" in result["seconds"]
    assert {"tv1", "tv2", "tstr_auc", "attack_auc_upper"} <= set(result["metrics"])
    assert result["peak_mb"] < MAX_MB
    figure(f"{name}: memory of the whole release, MB", round(result["peak_mb"]), MAX_MB)


@pytest.mark.slow
def test_five_million_rows_are_released_in_bounded_memory(figure: Any) -> None:
    result = run_apart(Point(rows=5_000_000))
    assert result["peak_mb"] < MAX_MB and result["tv2"] < 0.02
    figure(
        "5,000,000 rows x 20 columns: memory of the whole release, MB",
        round(result["peak_mb"]),
        MAX_MB,
    )
