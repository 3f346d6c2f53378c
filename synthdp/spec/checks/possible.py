"""Whether any row of the declared columns fulfils the constraints.

Many rows are drawn to find out. No row of the data is read.

Rows that violate a constraint are drawn again until enough are left, so what next to no row fulfils
would end a release after its budget was spent. A constraint is refused if none of many rows fulfils
it; several are, if many rows fulfil all but one of them and none that one. Many constraints that
are each likely, such as an order of ten dates, are not refused for being rare together.

An equation between columns of numbers or dates is another matter. The model knows levels, and draws
values inside of bins by themselves, so that an equation holds by chance alone, whatever the model
learnt. It is refused between real numbers, and between whole ones and dates where
fewer than a tenth of even rows fulfil it: drawing again is given up at a hundredth, and a model is
not even.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from synthdp.spec.expressions.expressions import calculation, parse
from synthdp.spec.load.wording import SpecMistake
from synthdp.spec.model import Column, Number, Ranged, ReleaseSpec, derived_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

UNIFORM_ROWS = 50_000
COMPUTED = (
    "take one column out of the model and have it computed from the others, e.g. `after: {type:"
    ' number, derived: "before + change", ...}`'
)
CONVINCING = 1000  # rows that fulfil the others and not this one: surely fewer than a hundredth do


def impossible(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Constraints that no row fulfils, and sets of constraints that no row fulfils together.

    The problem of a set is reported at the last constraint of the set.
    """
    readable = {
        i: e for i, text in enumerate(spec.constraints) if (e := parse(text, spec.columns)[0])
    }
    if not readable:
        return
    import numpy as np  # a spec without constraints is checked without it

    rng = np.random.default_rng(0)
    read = [name for name in spec.columns if any(name in e.columns for e in readable.values())]
    values = {name: _drawn(column, rng) for name, column in spec.modelled.items() if name in read}
    with np.errstate(all="ignore"):
        values |= {name: _computed(name, values, spec) for name in read if name not in values}
        holds = {i: ~e.violated(values) for i, e in readable.items()}
        # Next to no drawn row fulfils these equations, whatever the model learnt.
        # 0.1: of even rows, for an equation between whole numbers
        by_chance = [
            i
            for i, e in readable.items()
            for equation in e.equations
            if any(spec.columns[name].continuous for name in equation.columns)
            or equation.truth(values)[0].mean() < 0.1
        ]
    for i in dict.fromkeys(by_chance):
        message = "is an equation between numbers, which drawn rows fulfil by chance alone"
        yield SpecMistake(("constraints", i), f"{readable[i].text!r}: {message}", COMPUTED)
        del holds[i]
    no_row = f"none of {UNIFORM_ROWS:,} rows drawn uniformly from the declared domain fulfils it"
    for i in [i for i, rows in holds.items() if not rows.any()]:
        hint = (
            "rows that violate a constraint are drawn again until enough fulfil it: loosen it, or"
        )
        message = f"{readable[i].text!r}: {no_row}"
        yield SpecMistake(("constraints", i), message, f"{hint} change the columns' bounds")
        del holds[i]
    places = list(holds)
    for *others, last in _conflicts(np.array(list(holds.values()))) if holds else ():
        names = " and ".join(f"#{places[k] + 1} {readable[places[k]].text!r}" for k in others)
        message = f"{readable[places[last]].text!r}: {no_row} together with {names}"
        hint = "each can hold alone, and together they cannot: change or delete one of them"
        yield SpecMistake(("constraints", places[last]), message, hint)


def _computed(
    name: str, values: Mapping[str, npt.NDArray[np.float64]], spec: ReleaseSpec
) -> npt.NDArray[np.float64]:
    """Values of a derived column, within its bounds; NaN where its entry is wrong."""
    import numpy as np

    column = spec.columns[name]
    computed, _ = calculation(derived_of(column) or "", spec.columns)
    if computed is None or not isinstance(column, Ranged):
        return np.full(UNIFORM_ROWS, np.nan)
    day = 1.0 if column.step_seconds is None else column.step_seconds / 86_400
    numbers = computed.value(values)
    ends = column.number(column.lower) * day, column.number(column.upper) * day
    return np.clip(np.where(np.isfinite(numbers), numbers, np.nan), *ends)


def _drawn(column: Column, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """`UNIFORM_ROWS` values as constraints read them, uniform over levels and inside bins."""
    import numpy as np

    if not isinstance(column, Ranged):
        categories = len(column.labels)
        levels = rng.integers(categories + column.missing, size=UNIFORM_ROWS).astype(np.float64)
        return np.where(levels == categories, np.nan, levels)
    lower, upper, *others = map(
        column.number, (column.lower, column.upper, *column.spikes, *(column.edges or ()))
    )
    spikes, edges = np.array(others[: len(column.spikes)]), np.array(others[len(column.spikes) :])
    stop = upper if column.continuous else upper + 1
    ends = np.append(edges, stop) if len(edges) else np.linspace(lower, stop, column.bins + 1)
    level = rng.integers(len(spikes) + len(ends) - 1 + column.missing, size=UNIFORM_ROWS)
    inside = np.clip(level - len(spikes), 0, len(ends) - 2)
    drawn = ends[inside] + rng.random(UNIFORM_ROWS) * np.diff(ends)[inside]
    if isinstance(column, Number):
        drawn = np.clip(np.round(drawn, column.decimals), lower, upper)
    else:
        drawn = np.floor(drawn)
    spike = np.append(spikes, 0.0)[np.minimum(level, len(spikes))]
    drawn = np.where(level < len(spikes), spike, drawn)
    drawn = np.where(level == len(spikes) + len(ends) - 1, np.nan, drawn)
    return drawn if column.step_seconds is None else drawn * column.step_seconds / 86_400


def _conflicts(holds: npt.NDArray[np.bool_]) -> Iterator[Sequence[int]]:
    """The smallest sets of constraints that no row fulfils together.

    Many rows fulfil all constraints of a set but one. `holds` is `[constraints, rows]`.
    """
    import numpy as np

    counts = holds.sum(1)
    both = holds.astype(np.float32) @ holds.T.astype(np.float32)
    left = list(range(len(holds)))
    for i, j in np.argwhere(np.triu(both == 0)):
        if max(counts[i], counts[j]) >= CONVINCING:
            yield int(i), int(j)
            left = [k for k in left if k != j]
    while not holds[left].all(0).any():
        core = left
        for k in left:  # whatever is not needed to leave no row is left out
            core = (
                [c for c in core if c != k]
                if not holds[[c for c in core if c != k]].all(0).any()
                else core
            )
        if max(int(holds[[c for c in core if c != k]].all(0).sum()) for k in core) < CONVINCING:
            return
        yield core
        left = [k for k in left if k != core[-1]]
