"""A release suggests to the steward what its columns look like, and tells nobody else."""

import json
from typing import Any

import pytest
import yaml

from synthdp.spec import load_spec
from tests.release.conftest import SPEC, table

pytestmark = pytest.mark.check

AFTER = {"type": "number", "lower": 30, "upper": 140, "bins": 4, "decimals": 1}
WEIGHT = SPEC["columns"]["weight"]


def told(tiny: Any) -> Any:
    return json.loads((tiny.out / "internal" / "internal.json").read_text())["suggestions"]


def test_the_line_of_the_report_can_be_pasted_and_stands_nowhere_else(
    tiny: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = table()
    frame["after"] = (frame["weight"] + frame["weight"].to_numpy()[::-1] / 4).round(1)
    columns = {"after": AFTER, "weight": WEIGHT}
    tiny.write(frame, graph={"mode": "none"}, columns=columns).release()
    (found,) = told(tiny)["suggestions"]
    assert found["kind"] == "constraint" and found["columns"] == ["weight", "after"]
    assert found["holds"] == len(frame)  # held-out rows too
    for file in tiny.bundle.rglob("*"):
        text = file.read_bytes() if file.is_file() else b""
        assert b"weight <= after" not in text
    said = capsys.readouterr()
    assert "weight <= after" not in said.out + said.err
    page = (tiny.out / "internal" / "internal.html").read_text(encoding="utf-8")
    assert "Declare what is true by definition of the columns" in page

    assert yaml.safe_load(found["line"]) == ["weight <= after"]
    spec = yaml.safe_load(tiny.spec.read_text(encoding="utf-8"))
    spec["constraints"] = yaml.safe_load(found["line"])
    tiny.spec.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    assert load_spec(tiny.spec).constraints == ("weight <= after",)


def test_without_evaluation_nothing_is_looked_at(tiny: Any) -> None:
    off = {"enabled": False, "holdout": 0.0, "targets": []}
    tiny.write(graph={"mode": "none"}, evaluation=off).release()
    assert told(tiny) is None
