"""The canvas of the steward's figures: colours of the page, axes, and inline SVG.

Matplotlib draws with stand-in colours that become CSS variables, so that a figure follows the
page's colours, light or dark. Text stays text. There is no pyplot and no global state but a
temporary rc context. Names and categories are data: they are never parsed as mathematics or markup.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = npt.NDArray[np.float64]

# Stand-ins that no colour map gives, and what each becomes in the page.
TEXT, MUTED, LINE, REAL, SYNTHETIC, BOUND = (
    "#010101",
    "#010102",
    "#010103",
    "#010104",
    "#010105",
    "#010106",
)
_CSS = {
    TEXT: "currentColor",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    REAL: "var(--real)",
    SYNTHETIC: "var(--synthetic)",
    BOUND: "var(--bound)",
}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Inside, Matplotlib has the style of the report."""
    import matplotlib

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # Fonts here only measure; the reader's browser has the glyphs that ours may lack.
        warnings.simplefilter("ignore")
        yield


def new_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of `width` x `height` inches with one pair of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def as_svg(figure: Figure, name: str, alt: str) -> str:
    """The figure as inline SVG; `name` keeps its ids apart, `alt` says in words what it shows."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]*>", lambda tag: _tag(tag.group(), name), text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(alt, quote=True)}"', 1)


def _tag(tag: str, name: str) -> str:
    """One tag, made fit for a page of many figures.

    It gets ids of its own and the page's colours, and loses namespaces.
    """
    tag = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", tag)
    tag = re.sub(r'\sid="([^"]*)"', rf' id="{name}-\1"', tag)
    tag = re.sub(r"url\(#", f"url(#{name}-", tag)
    tag = re.sub(r'href="#', f'href="#{name}-', tag)
    tag = tag.replace("'DejaVu Sans'", "system-ui, sans-serif")
    for stand_in, css in _CSS.items():
        tag = tag.replace(stand_in, css)
    return tag
