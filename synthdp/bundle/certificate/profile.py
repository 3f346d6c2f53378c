"""The privacy profile of a release: delta at every epsilon of a public grid.

It is given as numbers and as a picture.

One (epsilon, delta) is one point of a curve. The curve says more: at epsilon 0 delta bounds the
advantage (true minus false positive rate) of any test for one data point, and what the same release
offers at other deltas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from synthdp.bundle.certificate.facts import Certificate, PlannedSpend, events_of
from synthdp.drawing.palette import COOL, FAINT, HOT
from synthdp.drawing.svg import frame, label, line, shortened
from synthdp.privacy import accounting
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.wording import up

# 0, then twenty points to a decade from 0.01 to 100: a constant, so that it says nothing about a
# release.
EPSILONS = (0.0, *(round(10 ** (k / 20), 6) for k in range(-40, 41)))
FLOOR = 1e-12  # of the picture; deltas below are in the file
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 70, 620, 64, 340


def profile_of(planned: Sequence[PlannedSpend], spec: ReleaseSpec) -> dict[str, Any]:
    """The content of `privacy/profile.json`: upper bounds, composed from all planned events.

    See `certificate.guaranteed_epsilon`.
    """
    points = accounting.delta_profile(
        events_of(planned), epsilons=EPSILONS, adjacency=spec.privacy.adjacency
    )
    # A bound at a smaller epsilon holds at a larger one, so the least so far is a bound: it removes
    # the rounding far below 1e-12.
    deltas = accumulate((min(max(d, 0.0), 1.0) for _, d in points), min)
    return {
        "meaning": (
            "for each epsilon, an upper bound on the delta of everything in this bundle together,"
            " as planned, for one unit of privacy"
        ),
        "adjacency": spec.privacy.adjacency,
        "points": [{"epsilon": e, "delta": d} for (e, _), d in zip(points, deltas, strict=True)],
    }


def profile_svg(profile: dict[str, Any], certificate: Certificate) -> str:
    """The profile as a picture; `verify` draws it again from the file's own numbers."""
    points = [(float(p["epsilon"]), float(p["delta"])) for p in profile["points"]]
    shown = [(e, d) for e, d in points if d >= FLOOR]
    most = max([certificate.epsilon * 1.25, *(e for e, _ in shown)])

    def place(epsilon: float, delta: float) -> tuple[float, float]:
        height = math.log10(max(delta, FLOOR)) / math.log10(FLOOR)
        return LEFT + (RIGHT - LEFT) * epsilon / most, TOP + (BOTTOM - TOP) * height

    path = " ".join(
        f"{'M' if i == 0 else 'L'}{x:.1f},{y:.1f}"
        for i, (x, y) in enumerate(place(e, d) for e, d in shown)
    )
    x, y = place(certificate.epsilon, certificate.delta)
    words = f"certificate: epsilon {up(certificate.epsilon)}, delta {certificate.delta:g}"
    title = f"Delta at every epsilon: {certificate.title or certificate.dataset}"
    body = [
        label(20, 28, shortened(title, most=60), size=16, bold=True),
        label(
            20,
            48,
            "Upper bounds for everything in the bundle together, for one unit of privacy.",
            size=12,
        ),
        *_axes(most, place),
        f'<path d="{path}" fill="none" stroke="{COOL}" stroke-width="2.4"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{HOT}"/>',
        # Above the falling curve on its right, or below it on its left.
        (
            label(x + 9, y - 8, words, size=12, colour=HOT)
            if x < (LEFT + RIGHT) / 2
            else label(x - 9, y + 18, words, anchor="end", size=12, colour=HOT)
        ),
    ]
    listed = "; ".join(
        f"epsilon {e:g}: delta {d:.3g}" for e, d in shown[:: max(1, len(shown) // 8)]
    )
    return frame(
        body,
        name="profile",
        title=title,
        description=f"A falling curve. {listed}.",
        width=WIDTH,
        height=HEIGHT,
    )


def _axes(most: float, place: Any) -> Iterator[str]:
    for power in range(0, 13, 2):
        _, y = place(0.0, 10.0**-power)
        yield line(LEFT, y, RIGHT, y, colour="#dddddd")
        yield label(
            LEFT - 8, y + 4, f"1e-{power}" if power else "1", anchor="end", size=11, colour=FAINT
        )
    step = _round_step(most / 6)
    for i in range(int(most / step) + 1):
        x, y = place(i * step, FLOOR)
        yield line(x, y, x, y + 5, colour=FAINT)
        yield label(x, y + 19, f"{i * step:g}", anchor="middle", size=11, colour=FAINT)
    yield label((LEFT + RIGHT) / 2, HEIGHT - 18, "epsilon", anchor="middle")
    yield (
        f'<text x="24" y="{(TOP + BOTTOM) / 2:.1f}" transform="rotate(-90 24'
        f' {(TOP + BOTTOM) / 2:.1f})" text-anchor="middle">delta</text>'
    )


def _round_step(about: float) -> float:
    """1, 2 or 5 times a power of ten, at least `about`."""
    power = 10.0 ** math.floor(math.log10(about))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= about)
