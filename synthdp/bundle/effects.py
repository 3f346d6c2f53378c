"""The causal diagram of a certificate: effects of a data point, a status, and a group.

The effect of a group is drawn jointly and in total.

Tschantz, Sen and Datta, "SoK: Differential Privacy as a Causal Property" (arXiv:1710.05899, as in
the version published at IEEE S&P 2020), sections 5 and 6.3. A function of the certificate alone, so
that `verify` can draw it again and compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from synthdp.bundle.certificate import Certificate, Group
from synthdp.drawing.svg import (
    COOL,
    FAINT,
    HOT,
    INK,
    arrow_head,
    frame,
    label,
    line,
    safe,
    shortened,
)
from synthdp.spec.load.wording import up

WIDTH, PANEL_WIDTH, PANEL_HEIGHT, TOP = 900, 430, 300, 64
BOX_HEIGHT = 28
# Place and words of every node within a panel: left, top, width.
NODES = {
    "R1": (18, 62, 120, "Ada's status R1"),
    "R2": (188, 62, 128, "Byron's status R2"),
    "D1": (18, 132, 120, "data point D1"),
    "D2": (188, 132, 128, "data point D2"),
    "others": (330, 132, 88, "other rows"),
    "release": (118, 204, 198, "release, with noise"),
}
ARROWS = (
    ("R1", "R2"),
    ("R1", "D1"),
    ("R2", "D2"),
    ("D1", "release"),
    ("D2", "release"),
    ("others", "release"),
)
Arrow = tuple[str, str]


@dataclass(frozen=True)
class _Panel:
    """One intervention: the variables set, the arrows cut, and the arrows that carry its effect."""

    title: str
    act: str
    pure: str
    set_to: tuple[str, ...]
    cut: tuple[Arrow, ...]
    hot: tuple[Arrow, ...]
    cool: tuple[Arrow, ...] = ()


_BY_D1, _BY_D2 = ("D1", "release"), ("D2", "release")
PANELS = (
    _Panel(
        "(a) one data point",
        "do(D1): what is stored of Ada",
        "epsilon",
        ("D1",),
        (("R1", "D1"),),
        (_BY_D1,),
    ),
    _Panel(
        "(b) one status",
        "do(R1): what is true of Ada",
        "2 epsilon",
        ("R1",),
        (),
        (("R1", "D1"), _BY_D1, ("R1", "R2"), ("R2", "D2"), _BY_D2),
    ),
    _Panel(
        "(c) a group, joint effect",
        "do(R1, R2): both at once",
        "2 epsilon",
        ("R1", "R2"),
        (("R1", "R2"),),
        (("R1", "D1"), _BY_D1, ("R2", "D2"), _BY_D2),
    ),
    _Panel(
        "(d) a group, total effect",
        "do(R1), and do(R2), added up",
        "2 epsilon + epsilon = 3 epsilon",
        ("R1", "R2"),
        (),
        (("R1", "D1"), _BY_D1, ("R1", "R2"), ("R2", "D2"), _BY_D2),
        (("R2", "D2"), _BY_D2),
    ),
)


def effects_svg(certificate: Certificate) -> str:
    """The SVG text: four panels, with the bounds of this release."""
    bounds = _bounds(certificate)
    height = TOP + 2 * PANEL_HEIGHT + 60
    title = f"What the guarantee of {certificate.title or certificate.dataset} bounds"
    body = [
        "<defs>",
        *(
            arrow_head(f"effects-{n}", c)
            for n, c in (("plain", FAINT), ("hot", HOT), ("cool", COOL))
        ),
        "</defs>",
        label(20, 28, shortened(title), size=17, bold=True),
        label(
            20,
            50,
            "Ada is Byron's mother: her genetic status R1 is a cause of his, R2. The guarantee"
            " itself is (a); the others follow from it.",
        ),
    ]
    for i, (panel, bound) in enumerate(zip(PANELS, bounds, strict=True)):
        x, y = 15 + (i % 2) * (PANEL_WIDTH + 10), TOP + (i // 2) * PANEL_HEIGHT
        body += [f'<g transform="translate({x},{y})">', *_draw(panel, bound), "</g>"]
    body += list(_legend(height - 40))
    return frame(
        body,
        name="effects",
        title=title,
        description=_description(bounds),
        width=WIDTH,
        height=height,
    )


def _bounds(certificate: Certificate) -> tuple[str, str, str, str]:
    """The bounds of this release in words, one for each panel."""
    groups = {g.size: g for g in certificate.groups}

    def joint(group: Group | None) -> str:
        return "not tabulated" if group is None else _words(group.joint_epsilon, group.joint_delta)

    one, two = groups.get(1), groups.get(2)
    total = "not tabulated" if two is None else _words(two.total_epsilon, two.total_delta)
    return joint(one), joint(two), joint(two), total


def _words(epsilon: float | None, delta: float) -> str:
    return "no bound" if epsilon is None else f"at most {up(epsilon)}, at delta {delta:g}"


def _draw(panel: _Panel, bound: str) -> Iterator[str]:
    yield (
        f'<rect x="0" y="0" width="{PANEL_WIDTH}" height="{PANEL_HEIGHT - 12}" rx="6" fill="none"'
        ' stroke="#cccccc"/>'
    )
    yield label(14, 22, panel.title, size=14, bold=True)
    yield label(14, 42, panel.act)
    for arrow in ARROWS:
        look = "hot" if arrow in panel.hot else "cut" if arrow in panel.cut else "plain"
        yield _arrow(arrow, look, shift=-5 if arrow in panel.cool else 0)
        if arrow in panel.cool:
            yield _arrow(arrow, "cool", shift=5)
    yield from (_node(name, set_to=name in panel.set_to) for name in NODES)
    yield label(14, PANEL_HEIGHT - 42, f"with pure epsilon: {panel.pure}", size=12)
    yield label(14, PANEL_HEIGHT - 24, f"this release: {bound}", size=12)


def _node(name: str, *, set_to: bool) -> str:
    x, y, width, words = NODES[name]
    stroke, thick = (INK, 2.6) if set_to else (FAINT, 1)
    fill = "#fff3d6" if set_to else "#f4f6f8"
    box = (
        f'<rect x="{x}" y="{y}" width="{width}" height="{BOX_HEIGHT}" rx="5" fill="{fill}"'
        f' stroke="{stroke}" stroke-width="{thick}"/>'
    )
    return f"<g>{box}{label(x + width / 2, y + 18.5, words, anchor='middle', size=12, bold=set_to)}</g>"  # noqa: E501


def _arrow(arrow: Arrow, look: str, *, shift: float) -> str:
    (x1, y1, w1, _), (x2, y2, w2, _) = NODES[arrow[0]], NODES[arrow[1]]
    start: tuple[float, float]
    end: tuple[float, float]
    if y1 == y2:
        start, end = (x1 + w1, y1 + BOX_HEIGHT / 2), (x2 - 1.0, y2 + BOX_HEIGHT / 2)
    else:
        to = min(max(x1 + w1 / 2, x2 + 30), x2 + w2 - 30) if arrow[1] == "release" else x2 + w2 / 2
        start, end = (x1 + w1 / 2 + shift, y1 + BOX_HEIGHT), (to + shift, y2 - 1.0)
    colour, width, dashes, head = {
        "plain": (FAINT, 1.0, "", "plain"),
        "cut": (FAINT, 1.0, "2 4", ""),
        "hot": (HOT, 2.8, "", "hot"),
        "cool": (COOL, 2.8, "7 3", "cool"),
    }[look]
    drawn = line(
        start[0],
        start[1],
        end[0],
        end[1],
        colour=colour,
        width=width,
        dashes=dashes,
        head=f"effects-{head}" if head else "",
    )
    if look == "cut":
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        drawn += line(x - 5, y - 5, x + 5, y + 5, width=2) + line(
            x - 5, y + 5, x + 5, y - 5, width=2
        )
    return f"<g><title>{safe(f'{arrow[0]} to {arrow[1]}: {look}')}</title>{drawn}</g>"


def _legend(y: float) -> Iterator[str]:
    places = (
        (20, HOT, 2.8, "", "runs along here"),
        (230, COOL, 2.8, "7 3", "effect of do(R2), in (d)"),
        (480, FAINT, 1.0, "2 4", "cut by the intervention"),
    )
    for x, colour, width, dashes, words in places:
        yield line(x, y, x + 40, y, colour=colour, width=width, dashes=dashes)
        yield label(x + 50, y + 4.5, words, size=12)
    yield (
        f'<rect x="700" y="{y - 9}" width="34" height="18" rx="4" fill="#fff3d6" stroke="{INK}"'
        ' stroke-width="2.6"/>'
    )
    yield label(744, y + 4.5, "set by do(...)", size=12)
    yield label(
        20,
        y + 28,
        "Joint: where D1 and D2 are about one person. Total: where they are about two. See the"
        " certificate's table for other sizes.",
        size=12,
    )


def _description(bounds: tuple[str, str, str, str]) -> str:
    parts = [
        f"{p.title}: {p.act}; {p.pure} with pure epsilon, {b} in this release"
        for p, b in zip(PANELS, bounds, strict=True)
    ]
    return (
        "Arrows run from statuses to data points to the release, and from Ada's status to Byron's."
        f" {'. '.join(parts)}."
    )
