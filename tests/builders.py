"""What tests build specs from: the parts that every spec must have, so that a test states only
what it is about.
"""

from __future__ import annotations

from typing import Any

from synthdp.spec.model import ReleaseSpec


def skeleton(rows: int = 1000, **dataset: Any) -> dict[str, Any]:
    """The required sections of a spec but `columns`, for `rows` rows of a table without a file.

    >>> skeleton(rows=50)["dataset"]["rows"]
    {'kind': 'public', 'value': 50}
    """
    return {
        "synthdp": 1,
        "dataset": {
            "id": "d",
            "source": {"kind": "builtin", "name": "synthetic"},
            "privacy_unit": {"kind": "row", "meaning": "one person"},
            "rows": {"kind": "public", "value": rows},
            **dataset,
        },
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
    }


def build_spec(columns: dict[str, Any], *, rows: int = 1000, **sections: Any) -> ReleaseSpec:
    """A spec of these columns; `sections` are added or replace those of `skeleton`."""
    return ReleaseSpec.model_validate({**skeleton(rows), "columns": columns, **sections})
