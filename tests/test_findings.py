"""Every finding of the outside reviews that is called mended has a test, and every marker names a
finding.
"""

from __future__ import annotations

import pytest

from tests.findings import FINDINGS, marked

pytestmark = pytest.mark.check


def test_every_mended_finding_has_a_test_and_every_marker_a_finding() -> None:
    tested, known = {name for name, _ in marked()}, {f.name for f in FINDINGS}
    assert tested <= known
    assert [f.name for f in FINDINGS if f.mended and f.name not in tested] == []
