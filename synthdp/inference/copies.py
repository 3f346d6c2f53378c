"""Copies: tables whose analyses, pooled, have right intervals for what a bundle's tables span.

Of persons with visits they are rows of one kind. Noisy tables of linked tables count rows of a
kind: persons, first and last visits, second visits, all visits, or visits after the first, each
with the columns of its person and of the visit before. Copies are of one of these kinds, drawn as
those of one table are: what the tables of a kind leave open is drawn, with the sampling of persons.
Rows of persons who have several are not independent. For any analysis that is a mean over rows, the
sampling variance is at most that of independent rows times the most rows of a person [Cauchy,
Schwarz; `inference.visits`], and by this laws are drawn: intervals are at least as wide as they
should be.

A whole course, visit after visit, is spanned by no tables: which persons have which steps one after
the other is the model's alone. So copies have no keys, and no row of one belongs to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.bundle.content import is_linked
from synthdp.bundle.noisy_values import MARGINALS, level_law
from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, decode_column
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import OutputError
from synthdp.files import check_sums
from synthdp.graph.level_groups import LevelLaw, groups_of
from synthdp.inference.answer import check_agreement
from synthdp.inference.figures import widest
from synthdp.inference.least_squares import (
    SETTINGS,
    Blocks,
    LeastSquares,
    Measured,
    Posterior,
    measured,
)
from synthdp.inference.visits import Asked, VisitQuestions
from synthdp.model.visits.fit import level_laws
from synthdp.model.visits.laws import bare
from synthdp.model.visits.questions import names_of_rows, places, written
from synthdp.privacy.noise import fresh_generator
from synthdp.spec.expressions.parsed import quoted
from synthdp.spec.load.loader import load_spec
from synthdp.spec.load.wording import nearest
from synthdp.spec.model import Column, ReleaseSpec

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Copies:
    """Copies of some columns: an iterator of tables, each drawn when it is asked for.

    `spanned` says what they are right for, as `spanned.json` does. `columns` are the spec's.
    `laws` are the drawn laws, of the groups of levels that tables count, and `rows` those of a
    copy. `groups` has those groups, and `margins` the law of the levels of each grouped column.
    """

    spanned: dict[str, Any]
    columns: dict[str, Column]
    laws: list[Floats]
    rows: int
    groups: LevelGroups
    margins: Mapping[str, Floats]
    rng: np.random.Generator

    def __len__(self) -> int:
        return len(self.laws)

    def __iter__(self) -> Iterator[pd.DataFrame]:
        import pandas as pd

        domain = self.groups.domain
        for law in self.laws:
            codes = self._inside(drawn_levels(law, self.rows, self.rng))
            yield pd.DataFrame(
                {
                    name: decode_column(domain[name], codes[:, i], rng=self.rng)
                    for i, name in enumerate(self.columns)
                }
            )

    def _inside(self, codes: Codes) -> Codes:
        """Levels inside groups, drawn independently by the column's released one-way table."""
        for i, name in enumerate(self.columns):
            if name not in self.groups.starts:
                continue
            margin = self.margins[name] + 1e-12
            ends, starts = np.cumsum(margin), np.asarray(self.groups.starts[name])
            low = np.append(0.0, ends)[starts][codes[:, i]]
            high = np.append(ends[starts[1:] - 1], ends[-1])[codes[:, i]]
            at = np.searchsorted(ends, self.rng.uniform(low, high), side="right")
            last = np.append(starts[1:] - 1, len(margin) - 1)[codes[:, i]]
            codes[:, i] = np.minimum(at, last)
        return codes


def drawn_levels(law: Floats, rows: int, rng: np.random.Generator) -> Codes:
    """Levels `[rows, columns]` of independent rows of a law `[*cells]`, in random order."""
    counts = rng.multinomial(rows, law.ravel())
    cells = rng.permutation(np.repeat(np.arange(law.size), counts))
    return np.column_stack(np.unravel_index(cells, law.shape)).astype(np.uint16)


def copies_of(
    bundle: Path,
    m: int,
    *,
    columns: Sequence[str] | None = None,
    rows: int | None = None,
    seed: int | None = None,
) -> Copies:
    """`m` copies of some columns of a bundle, or of all. `rows` are those of each.

    Raises:
        OutputError: the columns cannot be served: the message says why.
        VerifyError: a file was changed, or cannot be read, or the tables do not agree.
    """
    if m < 2 or (rows is not None and rows < 1):
        asked = f"m={m}" if m < 2 else f"rows={rows}"
        raise OutputError(
            f"{asked} tells no interval", hint="ask for 2 copies or more, of one row or more"
        )
    rng = fresh_generator() if seed is None else np.random.default_rng(seed)
    if is_linked(bundle):
        return copies_of_visits(VisitQuestions(bundle), m, columns=columns, rows=rows, rng=rng)
    check_sums(bundle, ("spec.yaml", MARGINALS))
    spec = load_spec(bundle / "spec.yaml")
    domain = Domain.from_spec(spec.columns)
    law = level_law(bundle, domain, margins=False)
    names = _chosen(domain, law, columns)
    known = measured(law.tables, law.groups.domain, names, grouped=True)
    posterior = posterior_of(known, bundle, per_unit=spec.dataset.privacy_unit.max_rows)
    grouped = {*names} & law.groups.starts.keys()
    inside = {name: law.margins[domain.index(name)] for name in grouped}
    own = {n: spec.columns[n] for n in names}
    return _drawn(posterior, m, rows, rng, spec, own, law.groups, inside)


def _drawn(
    posterior: Posterior,
    m: int,
    rows: int | None,
    rng: np.random.Generator,
    spec: ReleaseSpec,
    columns: dict[str, Column],
    groups: LevelGroups,
    inside: Mapping[str, Floats],
    **law: str,
) -> Copies:
    """Copies of what tables say of some columns: the fewer rows, the wider is the interval of few
    copies.
    """
    laws, refused = drawn_laws(posterior, m, rng)
    counted = posterior.rows
    rows = rows or max(round(min(5 * counted, 200_000)), round(counted))
    said = {"copies": m, "rows": rows, "draws_refused": refused, **law}
    said |= statement(posterior, spec, [*columns] if law else None)
    return Copies(said, columns, laws, rows, groups, inside, rng)


def _chosen(domain: Domain, law: LevelLaw, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns of the copies, in the order of the table, which must have them."""
    named = domain.names if columns is None else tuple(columns)
    unknown = [name for name in named if name not in domain.names]
    if unknown or not named or len(set(named)) < len(named):
        raise OutputError(
            f"no columns to copy: {', '.join(unknown or named) or 'none is named'}",
            hint=next(filter(None, (nearest(name, domain.names) for name in unknown)), None)
            or f"name some of {', '.join(map(quoted, domain.names))}, each once",
        )
    check_size(len(named), law.groups.coarse.cells(named))
    return tuple(name for name in domain.names if name in named)


def check_size(columns: int, cells: int) -> None:
    """Refuse copies of too many columns, or of too many combinations of levels (`OutputError`)."""
    most = SETTINGS.max_columns, SETTINGS.max_cells
    if columns > most[0] or cells > most[1]:
        raise OutputError(
            f"{columns} columns with {cells:,} combinations of levels; copies are of up to"
            f" {most[0]} columns and {most[1]:,} combinations",
            hint="name the columns of your analysis with --columns",
        )


def posterior_of(known: Measured, bundle: Path, *, per_unit: int) -> Posterior:
    """What the tables say of the columns, if they have two of them (or the one), and agree.

    Raises:
        OutputError: they have not.
        VerifyError: they do not agree.
    """
    solver, names = LeastSquares(known), [column.name for column in known.columns]
    most = max(map(len, solver.measured.margins), default=0)
    if most == 0:
        raise OutputError(
            f"no table of the bundle has {' or '.join(names)}",
            hint="name columns of marginals.json with --columns",
        )
    if most == 1 < len(names):
        raise OutputError(
            f"no table of the bundle has two of {', '.join(names)}: their copies would be"
            " independent columns",
            hint=(
                "copy one column, or ask `synthdp answer`; `privacy.pairs` or mode predict measure"
                " pairs in the next release"
            ),
        )
    check_agreement(solver.agreement(), bundle, names)
    return Posterior(solver, per_unit)


def drawn_laws(posterior: Posterior, m: int, rng: np.random.Generator) -> tuple[list[Floats], int]:
    """`m` drawn laws, and how many draws had none, which must not be most."""
    laws, refused = list[Floats](), 0
    while len(laws) < m:
        law = posterior.drawn(rng)
        if law is not None:
            laws.append(law)
            continue
        refused += 1
        if refused > 3 * m:
            raise OutputError(
                f"{refused} of {refused + len(laws)} draws of the columns' noisy tables are counts"
                " that no table can have: the noise is too large for so many columns at once",
                hint="name fewer columns with --columns",
            )
    return laws, refused


# --- pooled ---


def pooled(estimates: Floats, variances: Floats) -> tuple[Floats, Floats, Floats]:
    """Of k estimates and their squared standard errors in m copies, `[m, k]` both: the pooled
    estimates, their standard errors and degrees of freedom, `[k]` each, by `RULE`.
    """
    m, within = len(estimates), variances.mean(axis=0)
    between = (1 + 1 / m) * estimates.var(axis=0, ddof=1)
    total = np.maximum(between - within, within)
    freedom = (m - 1) * (1 - within / np.maximum(np.maximum(between, 2 * within), 1e-300)) ** 2
    return estimates.mean(axis=0), np.sqrt(total), freedom


def pool_fits(tables: Iterable[pd.DataFrame], model: Callable[[pd.DataFrame], Any]) -> pd.DataFrame:
    """What a model finds in each of several copies, pooled; see `CopiedTables.pool`.

    Raises:
        OutputError: a fit has no estimates with their errors, or other ones than the first.
    """
    import pandas as pd
    from scipy.stats import t

    fits = list[dict[str, tuple[float, ...]]]()
    for at, table in enumerate(tables, 1):
        fit = model(table)
        if hasattr(fit, "params") and hasattr(fit, "bse"):  # as statsmodels has them
            fit = {name: (fit.params[name], fit.bse[name] ** 2) for name in fit.params.index}
        found = {str(name): tuple(map(float, pair)) for name, pair in dict(fit).items()}
        if not found or not all(len(p) == 2 and np.isfinite(p).all() for p in found.values()):
            raise OutputError(
                f"the model's result on copy {at} is no estimates with variances",
                hint="return a fit with params and bse, or {name: (estimate, variance)}",
            )
        if fits and found.keys() != fits[0].keys():
            others = ", ".join(map(repr, sorted(found.keys() ^ fits[0].keys())))
            raise OutputError(
                f"copy {at} and the first have different estimates: {others}",
                hint="take levels together as `spanned` does, or name fewer columns",
            )
        fits.append(found)
    names = list(fits[0])
    values = np.array([[fit[name] for name in names] for fit in fits])
    middle, error, freedom = pooled(values[..., 0], values[..., 1])
    half = t.ppf(0.975, freedom) * error
    columns = {"estimate": middle, "error": error, "low": middle - half, "high": middle + half}
    return pd.DataFrame(columns | {"freedom": freedom}, index=pd.Index(names))


# --- spanned ---
#
# `spanned.json`: for which analyses the intervals of copies are right.


RULE = (
    "estimate: the mean of the copies' estimates; T = (1 + 1/m) b - u, at least u, with b the"
    " variance of the estimates and u the mean of their squared standard errors; interval: t with"
    " (m - 1) (1 - 1/r)^2 degrees of freedom, r = (1 + 1/m) b / u, at least 2"
)


def statement(
    posterior: Posterior, spec: ReleaseSpec, targets: Sequence[str] | None = None
) -> dict[str, Any]:
    """What the drawn laws of a posterior are right for, as plain JSON, with regressions on the
    spec's targets, or on `targets`.

    `sets` are the sets of columns whose shares are spanned; `together` has those levels of a column
    that a set does not tell apart, since some of their cells are too rare. `groups` has the levels
    of columns that are counted on groups of levels.
    """
    columns = posterior.known.columns
    names = [column.name for column in columns]
    inside = [c.name for c in columns if c.ranged and widest(c) > 0]

    def named(axes: Iterable[int]) -> list[str]:
        return [names[i] for i in sorted(axes)]

    alone = (frozenset(axes) for size in (1, 2) for axes in combinations(range(len(names)), size))
    return {
        "columns": names,
        "counted_rows": round(posterior.rows),
        "rule": RULE,
        "sets": [
            {"columns": named(axes), "together": _together(blocks, columns)}
            for axes, blocks in posterior.blocks.items()
        ],
        "not_spanned": [
            {"columns": named(axes), "why": "too rare" if axes in posterior.sets else "no table"}
            for axes in alone
            if axes not in posterior.blocks
        ],
        "inside_levels": inside,
        "groups": {c.name: list(c.labels) for c in columns if c.grouped},
        "regressions": [
            _regressions(posterior, names.index(target))
            for target in (spec.evaluation.targets if targets is None else targets)
            if target in names
        ],
        "about": list(_about(spec, inside)),
    }


def _regressions(posterior: Posterior, target: int) -> dict[str, Any]:
    """Columns that a target may be regressed on, with levels taken as one that stand together.

    Linear main effects need the pairs of all columns; logistic ones the pairs with the target, and
    one table of all others. Levels of the target are told apart. Rows that lack a value are left
    out, which is told by a table of all columns alone: so columns that may be missing are regressed
    on one at a time, where missing ones are told apart.
    """
    columns = posterior.known.columns
    names, told = [column.name for column in columns], posterior.blocks

    def with_target(i: int) -> bool:
        pair = told.get(frozenset((i, target)))
        if pair is None:
            return False
        alone = not columns[i].missing or (pair.groups[i] == pair.groups[i][-1]).sum() == 1
        return bool(alone) and pair.sizes[target] == columns[target].levels

    def whole(*axes: int) -> bool:
        return frozenset(axes) in told and not any(columns[i].missing for i in (*axes, target))

    one = [i for i in range(len(names)) if i != target and with_target(i)]
    pairs = list(combinations(one, 2))
    more = [
        tuple(sorted(axes))
        for axes in told
        if len(axes) > 2 and axes <= {*one} and whole(*sorted(axes))
    ]
    together = [*((i,) for i in one), *(pair for pair in pairs if whole(*pair)), *more]
    return {
        "target": names[target],
        "linear": [names[i] for i in one],
        "not_both": [[names[i], names[j]] for i, j in pairs if not whole(i, j)],
        "logistic": [[names[i] for i in axes] for axes in together],
    }


def _together(blocks: Blocks, columns: tuple[ColumnDomain, ...]) -> dict[str, list[list[str]]]:
    """The levels of each column that a set does not tell apart, group by group."""
    found = {}
    for axis, labels in blocks.groups.items():
        groups = [np.flatnonzero(labels == group) for group in range(blocks.sizes[axis])]
        several = [
            [columns[axis].labels[i] for i in levels] for levels in groups if len(levels) > 1
        ]
        if several:
            found[columns[axis].name] = several
    return found


def _about(spec: ReleaseSpec, inside: list[str]) -> Iterator[str]:
    yield (
        "run one analysis on each copy, and combine the results by the rule; a copy alone tells"
        " nothing of the noise"
    )
    yield (
        "the intervals are right for shares, and for means by group, of the columns of one set,"
        " with levels that stand `together` taken as one; for all else they are not"
    )
    yield (
        "linear main effects of a target are right on any columns of `linear` of which no two are"
        " `not_both`; logistic ones on the columns of one list of `logistic`; levels that stand"
        " `together` in any set of these columns are taken as one"
    )
    yield "sums and counts of rows say nothing: the number of rows was chosen"
    if inside:
        yield (
            f"numbers of {', '.join(inside)} are drawn inside their level, whatever the other"
            " columns are: what is said holds for levels, and for means up to that"
        )
    unit = spec.dataset.privacy_unit
    if unit.whom is not None:
        yield unit.whom + ("; the copies allow for it" if unit.max_rows > 1 else "")
    if spec.dataset.out_of_domain == "clamp":
        yield "what lay outside of a column's range or categories counts as declared in spec.yaml"
    if spec.constraints:
        yield "the spec's constraints are not enforced: that would change the counts"


def copies_of_visits(
    asked: VisitQuestions,
    m: int,
    *,
    columns: Sequence[str] | None,
    rows: int | None,
    rng: np.random.Generator,
) -> Copies:
    """`m` copies of some columns of a bundle, as questions name them. `rows` are those of each.

    Raises:
        OutputError: the columns cannot be served: the message says why.
        VerifyError: a file was changed, or cannot be read, or the tables do not agree.
    """
    kind, named = _kind(asked, columns)
    own, groups = [*named.values()], groups_of([*kind.tables, *kind.later], kind.domain)
    check_size(len(own), groups.coarse.cells(own))
    known = (
        kind.both(own)
        if kind.later
        else measured(kind.tables, kind.domain, own, grouped=True, groups=groups)
    )
    shown = (replace(c, name=n) for c, n in zip(known.columns, named, strict=True))
    posterior = posterior_of(
        Measured(tuple(shown), known.margins), asked.bundle, per_unit=kind.most
    )
    domain = Domain(tuple(replace(kind.domain[n], name=shown) for shown, n in named.items()))
    starts = {shown: groups.starts[n] for shown, n in named.items() if n in groups.starts}
    frame, inside = asked.stated.frame, dict[str, Floats]()
    if starts:
        laws = level_laws(frame, asked.stated.measured)
        inside = {n: laws[bare(frame, named[n])][1][: domain[n].levels] for n in starts}
    found = _drawn(
        *(posterior, m, rows, rng, asked.stated.spec),
        {shown: kind.columns[name] for shown, name in named.items()},
        LevelGroups(domain, starts),
        inside,
        law=kind.law,
    )
    about = [
        f"rows are {kind.law}; they have no key: no row belongs to one of another file, or to"
        " another row, so that nothing is right that follows a person over several visits"
    ]
    if kind.most > 1:
        about.append(
            "persons are the sample, and visits of one may be alike: the intervals allow for"
            f" {kind.most} of one person that are the same, which is more than there is"
        )
    about += found.spanned["about"]
    if inside:
        names = ", ".join(inside)
        about.append(f"inside groups, {names} have the law of first and last visits")
    found.spanned["about"] = about
    return found


def _kind(asked: VisitQuestions, columns: Sequence[str] | None) -> tuple[Asked, dict[str, str]]:
    """The kind of rows that has the columns, and their names in it by what they are called."""
    every = sorted({name for kind in asked.rows.values() for name in kind.columns})
    if not columns or len({*columns}) < len(columns):
        raise OutputError(
            "copies of linked tables are of the columns of one analysis, each named once",
            hint="name them with --columns, as questions do, such as " + ", ".join(every[:3]),
        )
    text, refused = ", ".join(columns), list[str]()
    best: tuple[int, Asked, dict[str, str]] | None = None
    frame = asked.stated.frame
    for name in names_of_rows(places(frame, text), asked.rows, frame):
        kind = asked.rows[name]
        named = {
            c.replace("`", ""): written(frame, c, kind.columns).strip("`").replace("``", "`")
            for c in columns
        }
        if unknown := [shown for shown, n in named.items() if n not in kind.columns]:
            refused = refused or unknown
            continue
        together = sum(len({*s} & {*named.values()}) > 1 for s in kind.joint())
        if best is None or together > best[0]:
            best = together, kind, named
    if best is None:
        raise OutputError(
            f"no rows that were counted have {refused[0]} with {text}",
            hint=nearest(refused[0], every) or f"of {', '.join(every)}",
        )
    _, kind, named = best
    return kind, named
