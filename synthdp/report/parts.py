"""What both reports share: pictures with their sentence, numbers as text, and the templates."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

MAX_BYTES = 3_000_000
VISIBLE_ASSOCIATION = 0.1  # Cramér's V that a reader of a table would notice


@dataclass(frozen=True)
class Picture:
    """One figure and the sentence that says what to conclude from it."""

    title: str
    svg: Markup
    sentence: str


@cache
def template(name: str) -> Any:
    """A template of this package. It escapes every value that is not markup already."""
    loader = PackageLoader("synthdp.report", "templates")
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template(name)


def svg_image(svg: str) -> str:
    """A picture as a data address: no script runs inside an image."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def number(value: float | None) -> str:
    """A figure as text: three significant digits, or "not available".

    >>> number(0.12345), number(12345.0), number(None)
    ('0.123', '12,345', 'not available')
    """
    if value is None or not np.isfinite(value):
        return "not available"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def interval(value: Any) -> str:
    """An estimate with its interval as text; plain numbers and texts as they are.

    >>> interval({"value": 0.5, "low": 0.4, "high": 0.6})
    '0.5 (0.4 to 0.6)'
    """
    if isinstance(value, Mapping):
        middle = number(value.get("value", value.get("estimate")))
        low, high = value.get("lower", value.get("low")), value.get("upper", value.get("high"))
        if low is None or high is None:
            return middle
        return f"{middle} ({number(low)} to {number(high)})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, float):
        return number(value)
    return str(value)
