"""Sentences and pages from templates: what a template may call, and how one is filled in.

Imports little, and Jinja last: texts of the command line are made by it, too.
"""

from __future__ import annotations

import base64
import math
from functools import cache
from typing import Any

from synthdp.spec.load.wording import many, up


def svg_image(svg: str) -> str:
    """A picture as a data address: no script runs inside an image."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def number(value: float | None) -> str:
    """A figure as text: three significant digits, or "not available".

    >>> number(0.12345), number(12345.0), number(None)
    ('0.123', '12,345', 'not available')
    """
    if value is None or not math.isfinite(value):
        return "not available"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def estimated(value: float | None, low: float, high: float, *, floor: float | None = None) -> str:
    """A figure with its 95% interval, as every page, line and table has it.

    The interval alone where it is wider than `floor`, which another sample would be off by, or
    where noise hides the figure: what the figure says is then of the noise.

    >>> estimated(0.0134, 0.01, 0.016), estimated(0.0134, 0, 0.106, floor=0.015)
    ('0.0134 (0.01 to 0.016)', '0 to 0.106')
    """
    ends = f"{number(low)} to {number(high)}"
    if value is None or (floor is not None and high - low > floor):
        return ends
    return f"{number(value)} ({ends})"


def right(advantage: float, search: tuple[float, float] | None = None) -> int:
    """How often in 100, rounded up, a guess on one unit is right that is right 50 times by chance.

    `search`, an (epsilon, delta) for the domain, comes on top. Its advantage is at most (e^epsilon
    - 1 + 2 delta) / (e^epsilon + 1) [Kairouz, Oh and Viswanath, arXiv:1311.0776, Theorem 2.1], and
    advantages of two looks add up, since total variation does.

    >>> right(0.1), right(0.101), right(0.1, (1.0, 0.0)), right(1.0)
    (55, 56, 79, 100)
    """
    if search is not None:
        advantage += (math.expm1(search[0]) + 2 * search[1]) / (math.exp(search[0]) + 1)
    return math.ceil(50 + 50 * min(1.0, advantage))


@cache
def template(name: str) -> Any:
    """A template of this package. That of a page escapes every value that is not markup already."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("synthdp.report", "templates"),
        autoescape=name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"number": number, "up": up, "many": many, "right": right}
    environment.filters |= {"image": svg_image, "as": format, "repr": repr}
    return environment.get_template(name)


def say(name: str, /, **values: Any) -> str:
    """A sentence of a report as plain text, from the macro of this name in `sentences.j2`."""
    return str(getattr(template("sentences.j2").module, name)(**values)).strip()


def say_of_plan(name: str, /, **values: Any) -> str:
    """A sentence of a plan or a run as plain text, from the macro of this name in `plan.j2`."""
    return str(getattr(template("plan.j2").module, name)(**values)).strip()
