"""What both pages are made of: verdict cards, pictures with their sentence, and the templates'
surroundings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

MAX_BYTES = 3_000_000


@dataclass(frozen=True)
class Card:
    """One verdict at the top: a heading, a figure, what it means. `state` is good, bad or plain."""

    heading: str
    figure: str
    text: str
    state: str = "plain"


@dataclass(frozen=True)
class Picture:
    """One figure and the sentence that says what to conclude from it."""

    title: str
    svg: Markup
    sentence: str


def template(name: str) -> Any:
    """A template of this package; everything that it is given is escaped, unless it is markup
    already.
    """
    loader = PackageLoader("synthdp.report", "templates")
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template(name)
