"""A release with a column of codes, from the spec to the recipient: only prefixes leave."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from synthdp.errors import SpecError, VerifyError
from synthdp.verify import verify_bundle

pytestmark = pytest.mark.check

DIAGNOSIS = {
    "type": "text-code",
    "codes": ["E11.9", "E11.65", "I10", "J45.0"],
    "prefix": 3,
    "missing": True,
    "description": "main diagnosis, ICD-10",
}
TABLE_ONLY = "J45.909"  # it begins like a declared code, and is in the table alone
CHANGES: dict[str, Any] = {
    "columns": {"diagnosis": DIAGNOSIS},
    "graph": {"mode": "given", "edges": ["sex -> smoker, diagnosis", "diagnosis -> visits"]},
    "constraints": ["diagnosis != 'I10' or visits < 8", "diagnosis in ('E11', 'I10', 'J45')"],
    "evaluation": {"targets": ["diagnosis"], "subgroups": ["diagnosis"]},
}


@pytest.fixture
def coded(tiny: Any, make_table: Any) -> Any:
    rng = np.random.default_rng(4)
    values = ["E11.9", "E11.65", "I10", TABLE_ONLY, "E11", ""]
    frame = make_table()
    return tiny.write(frame.assign(diagnosis=rng.choice(values, len(frame))), **CHANGES)


def test_prefixes_are_released_and_nothing_more(coded: Any, synthdp: Any) -> None:
    assert synthdp("validate", coded.spec).code == 0
    assert synthdp("plan", coded.spec).code == 0
    coded.release()
    assert verify_bundle(coded.bundle).ok
    table = pd.read_csv(coded.bundle / "synthetic.csv")
    assert {*table["diagnosis"].dropna()} <= {"E11", "I10", "J45"}
    assert not ((table["diagnosis"] == "I10") & (table["visits"] >= 8)).any()
    parquet = pq.read_table(coded.bundle / "synthetic.parquet").to_pandas()
    assert list(parquet["diagnosis"].cat.categories) == ["E11", "I10", "J45"]
    field = json.loads((coded.bundle / "datapackage.json").read_text())["resources"][0]["schema"]
    assert field["fields"][-1]["categories"] == ["E11", "I10", "J45"]
    for file in coded.out.rglob("*"):
        assert not file.is_file() or TABLE_ONLY.encode() not in file.read_bytes(), file
    card = (coded.bundle / "DATACARD.md").read_text()
    assert "E11, I10, J45 (the first 3 characters of a code)" in card

    for option in ("--do", "--given"):
        drawn = coded.folder / f"drawn{option}.csv"
        options = (option, "diagnosis=E11.9", "--rows", 20, "--seed", 1, "--out", drawn)
        assert synthdp("sample", coded.bundle, *options).code == 0
        assert {*pd.read_csv(drawn)["diagnosis"]} == {"E11"}
    refused = synthdp("sample", coded.bundle, "--do", "diagnosis=Z99", "--rows", 5)
    assert refused.code != 0 and "it holds E11, I10, J45, missing" in refused.err

    # A whole code is no value of a release, although a source may hold it.
    text = (coded.bundle / "synthetic.csv").read_text()
    (coded.bundle / "synthetic.csv").write_text(text.replace("E11", "E11.9", 1))
    with pytest.raises(VerifyError, match="diagnosis"):
        verify_bundle(coded.bundle)


def test_a_constraint_on_a_whole_code_is_refused_before_anything_is_spent(coded: Any) -> None:
    with pytest.raises(SpecError, match=r"'E11.9' is no category of 'diagnosis': E11, I10, J45"):
        coded.write(**{**CHANGES, "constraints": ["diagnosis == 'E11.9'"]}).release()
    assert coded.kinds() == []
