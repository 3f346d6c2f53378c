"""What every test of the project shares: one thread for torch, so that tests side by side do not fight, and figures for the dashboard."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

Figure = Callable[..., None]


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Print a figure that was just asserted, and append it to the file that SYNTHDP_DASHBOARD names."""

    def add(name: str, value: float, of: float) -> None:
        command = f"pytest {request.node.nodeid.split('[')[0]}"
        print(f"{name}: {value:g} of {of:g}")
        target = os.environ.get("SYNTHDP_DASHBOARD")
        if target:
            with Path(target).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"figure": name, "value": value, "of": of, "command": command}) + "\n")

    return add
