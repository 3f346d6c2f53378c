"""What the tests of the audits start from: a domain with every kind of column."""

from __future__ import annotations

import pytest

from synthdp.data.domain import ColumnDomain, Domain


def make_domain() -> Domain:
    return Domain(
        (
            ColumnDomain("a", "categorical", ("v0", "v1", "v2", "v3"), False),
            ColumnDomain("b", "boolean", ("false", "true"), False),
            ColumnDomain("c", "ordinal", ("low", "high", "missing"), True),
            ColumnDomain(
                "n",
                "number",
                ("0", "[-5, 0)", "[0, 5]", "missing"),
                True,
                spikes=(0.0,),
                edges=(-5.0, 0.0),
                stop=5.0,
                lower=-5.0,
                upper=5.0,
                decimals=1,
            ),
            ColumnDomain("one", "categorical", ("only",), False),
        )
    )


@pytest.fixture(scope="session")
def domain() -> Domain:
    return make_domain()
