"""Directions and marks of a search's links, from the tables that it paid for.

A second opinion on its directions comes from the tables of pairs. Tables of all pairs hold the
covariance of all indicators of levels: a Gram matrix, with noise. A score of graphs follows from
it, for which no budget is spent [post-processing]. A search over orders then moves columns of the
first graph's order while that raises the score (best order score search: Andrews, Ramsey,
Sanchez-Romero, Camchong, Kummerfeld 2023, arXiv:2310.17679), along the links that were found: it
turns arrows, and it neither adds nor removes links.

Score. Let R be the covariance after each column is whitened, so that its own block is the identity.
The score of a graph is -n/2 times the sum over columns of log det(I - R_jS R_SS^-1 R_Sj), with S
the parents of column j, less a penalty for each link. The sum is the likelihood of a Gaussian with
covariance R and that graph [Lauritzen, "Graphical Models" (1996), Section 5.1]. The determinants
telescope along an order, and the penalty of a link has no direction, so that graphs of one
equivalence class have one score [derived here].

Noise. Let D be the covariance of a column's indicators in contrasts, with eigenvalues d. If columns
i and j are independent, an entry of their block has about the variance

    1 / n + s^2 / (n^2 d_iu d_jv),

of sampling and of noise s per cell: a rotation leaves white noise white, and whitening divides it
by the roots of the eigenvalues [derived here]. So n times the squared norm of the block is a
weighted sum of chi-squares, whose upper quantile at `level` is found by its mean and variance
[Satterthwaite 1946]. Half of it is the penalty of the link: a link between independent columns
gains more with probability about `level`. Given other columns, noise of their tables comes on top:
`spread` times the variance is counted. Levels of less than `rare` of the rows become one, since
noise divided by their share would drown the rest.

The score sees dependence that adds up over parents. Where parents interact it errs, and by an
amount that grows like the rows. So the links stay those of the tests, the search begins at their
graph, and a move must gain `clear` for each row. Two starts break ties in the order of the columns
and against it; the better score wins.

V-structures by the evidence on their ends: the rule of Measured PC and of PC on moments.

A v-structure a -> b <- c is claimed only if sets without b explain the independence of a and c
much better than sets with b, by the ratio of their largest p-values (after PC-max: Ramsey 2016).
The ratio scales with the noise by itself, so that one threshold serves high and low budgets.

Two paths between a and c may nearly cancel, so that a and c look independent until one of them
is closed. If b closes only one, the other is then seen, and b looks like the middle of a
v-structure. Sets of b and one more column close both. So such sets have a veto: a v-structure
stays only if sets without b explain the independence better than they do, too.

What a search shows though causes may be unseen: marks on its links (`graph.pag`). The spec's
knowledge counts as follows:

    required a -> b   a is a cause of b
    tiers, forbidden  a is no cause of b where no chain of allowed arrows leads from a to b. An
                      arrow that is forbidden alone says less than here: a may act through others
    groups            nothing about columns of one group
    latent            the pair is linked, and neither end follows from that

Arrows of a chain may join linked pairs and undecided ones: a pair that a test found independent has
no arrow. Undecided pairs separate nothing, and say nothing about triples that they close.

From separating sets to marks, with no assumption that all common causes are seen.

No row is looked at: links, separating sets and further answers come from tables that were
released. There are no Possible-D-SEP questions, so links may be left that FCI would remove, as
in the anytime FCI (Spirtes 2001) and RFCI (Colombo, Maathuis, Kalisch, Richardson 2012,
arXiv:1104.5617). A mark is sound all the same, if the answers are right: it says who is an
ancestor of whom, whether or not the link would stay. Each mark follows by one of these, where a
and c are independent given Y:

    collider      b not in Y, and a - b and b - c dependent given Y: b is no ancestor of a or c.
                  Otherwise paths a..b and b..c would join to one that Y leaves open [RFCI, lemma
                  3.1; Spirtes, Meek, Richardson 1999].
    non-collider  b in Y, and no member of Y can be left out: each is an ancestor of a or c.
    R1            a *-> b o-* c, non-collider: b is an ancestor of c, and so b -> c.
    R2            a -> b *-> c or a *-> b -> c: an arrowhead at c of a *-o c.
    R3            a *-> b <-* c, and a - d - c a non-collider: an arrowhead at b of d *-o b.
    R8            a -> b -> c: a tail at a of a o-> c.
    R9, R10       m - a - n a non-collider, and m and n lead from a to c: a tail at a of a -* c.
                  n leads from a to c if n is c or a cause of it, or if a - n - o is a
                  non-collider
                  and o leads from n to c. If a is a cause of n, then n is none of a, and so n is
                  one of o, and so on to c. And a is a cause of m or of n.

These are Zhang's rules (2008, "On the completeness of orientation rules", Artificial
Intelligence 172) with the RFCI's checks; R9 and R10 as one, for triples that were tested. R4 is
left out: it asks about sets of a whole path's columns, for which there are no tables. Fewer ends
get a mark, none a false one. R5 to R7 matter only where rows were selected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from scipy.stats import gamma

from synthdp.data.domain import Domain
from synthdp.graph.causal import CausalGraph
from synthdp.graph.chi_square import Answer, Query, Verdict
from synthdp.graph.discovery import Evidence, Skeleton
from synthdp.graph.knowledge import (
    Collider,
    Knowledge,
    Pair,
    Pdag,
    colliders,
    extend,
    meek,
    orient_colliders,
    orient_known,
    unshielded,
)
from synthdp.graph.pag import Mark, Pag
from synthdp.graph.tables import NoisyTables

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class OrientSettings:
    """Tuning of the second opinion, and of v-structures.

    `level`: probability that a link between independent columns raises the score; `spread`:
    variance of noise that is counted, in that of one table; `rare`: share of rows below which
    levels are joined; `least`: least eigenvalue of R, to which what noise makes smaller is raised;
    `clear`: nats per row by which a move must raise the score; `max_parents`: of a column in the
    score.

    `odds`: how much better sets without the middle column of a v-structure must explain
    independence, and `veto` the same against sets of that column and one more. It was chosen on the
    network insurance, on alarm and on random networks (seeds 401 to 424): where a v-structure is
    true, such sets often come near, since the average of its effect over their strata may be small.
    """

    level: float = 1e-5
    spread: float = 3.0
    rare: float = 0.01
    least: float = 0.01
    clear: float = 0.008
    max_parents: int = 6
    odds: float = 20.0
    veto: float = 3.0


SETTINGS = OrientSettings()


class Gram:
    """The whitened covariance of all columns, `matrix`, and the penalty of each pair of columns.

    `matrix` is `[coordinates, coordinates]`, and `places` has each column's coordinates;
    `penalty` is `[columns, columns]`.
    """

    def __init__(self, tables: NoisyTables, domain: Domain) -> None:
        """Raises `KeyError` with a pair that no table has."""
        names = domain.names
        self.rows, shares = _shares(tables, domain)
        whitened = list(map(_whitened, shares))
        starts = np.cumsum([0, *(len(axes) for axes, _ in whitened)])
        self.places = [np.arange(a, b) for a, b in pairwise(starts)]
        self.matrix = np.eye(starts[-1])
        self.penalty = np.zeros((len(names), len(names)))
        for i, j in combinations(range(len(names)), 2):
            view = tables.margin((names[i], names[j]))
            if view is None:
                raise KeyError((names[i], names[j]))
            (left, noise_left), (right, noise_right) = whitened[i], whitened[j]
            residual = view[0] / self.rows - np.outer(shares[i], shares[j])
            block = left @ residual @ right.T
            self.matrix[np.ix_(self.places[i], self.places[j])] = block
            self.matrix[np.ix_(self.places[j], self.places[i])] = block.T
            noise = view[1] ** 2 / self.rows * np.outer(noise_left, noise_right)
            weights = 1 + SETTINGS.spread * noise  # of a sum of chi-squares: its upper quantile
            mean, variance = weights.sum(), 2 * (weights**2).sum()
            quantile = gamma.isf(SETTINGS.level, mean**2 / variance, scale=variance / mean)
            self.penalty[i, j] = self.penalty[j, i] = float(quantile) / 2
        short = max(SETTINGS.least - np.linalg.eigvalsh(self.matrix)[0], 0.0)
        self.matrix = (self.matrix + short * np.eye(starts[-1])) / (1 + short)

    def gain(self, column: int, parents: frozenset[int]) -> float:
        """What these parents add to the score of a column without parents, less their penalty."""
        if not parents:
            return 0.0
        chosen = sorted(parents)
        own, given = self.places[column], np.concatenate([self.places[p] for p in chosen])
        cross = self.matrix[np.ix_(given, own)]
        explained = cross.T @ np.linalg.solve(self.matrix[np.ix_(given, given)], cross)
        _, left = np.linalg.slogdet(np.eye(len(own)) - explained)
        return float(-self.rows / 2 * left - self.penalty[column, chosen].sum())


def _shares(tables: NoisyTables, domain: Domain) -> tuple[float, list[Floats]]:
    """The number of rows and the shares of each column's levels: means over all tables."""
    counts = {name: np.zeros(domain[name].levels) for name in domain.names}
    precision = [1 / (t.sigma**2 * t.counts.size + 1e-9) for t in tables.tables]
    for table, weight in zip(tables.tables, precision, strict=True):
        for axis, name in enumerate(table.columns):
            rest = tuple(i for i in range(table.counts.ndim) if i != axis)
            counts[name] += weight * table.counts.sum(rest)
    positive = [np.maximum(c, 1e-9) for c in counts.values()]
    total = np.average([t.counts.sum() for t in tables.tables], weights=precision)
    return max(float(total), 1.0), [c / c.sum() for c in positive]


def _whitened(shares: Floats) -> tuple[Floats, Floats]:
    """Axes `[coordinates, levels]` of unit covariance, and white noise's variance on each."""
    rare = shares < SETTINGS.rare
    joined = rare.astype(np.float64)[None][: int(rare.any())]
    groups = np.concatenate([np.eye(len(shares))[~rare], joined])
    share = groups @ shares
    values, vectors = np.linalg.eigh(np.diag(share) - np.outer(share, share))
    axes = (vectors[:, 1:] / np.sqrt(np.maximum(values[1:], 1e-4))).T @ groups
    return axes, (axes**2).sum(1)


class _Orders:
    """Scores of orders of columns along links, which are the pairs that may be parents."""

    def __init__(
        self, gram: Gram, names: Sequence[str], links: Iterable[Pair], known: Knowledge
    ) -> None:
        self.gram = gram
        place = {name: i for i, name in enumerate(names)}
        self.around, self.before, self.after = ([set[int]() for _ in names] for _ in range(3))
        for a, b in links:
            for x, y in ((a, b), (b, a)):
                i, j = place[x], place[y]
                self.around[i].add(j)
                if not known.allows(y, x):
                    self.after[i].add(j)
                    self.before[j].add(i)
        self.gain = cache(gram.gain)
        self.best = cache(self._best)

    def _best(self, column: int, earlier: frozenset[int]) -> float:
        """What the best of the earlier columns add: they grow one by one, and then shrink."""
        chosen: frozenset[int] = frozenset()
        while len(chosen) < SETTINGS.max_parents:
            more = [chosen | {c} for c in sorted(earlier - chosen)]
            grown = max(more, key=lambda s: self.gain(column, s), default=chosen)
            if self.gain(column, grown) <= self.gain(column, chosen):
                break
            chosen = grown
        while chosen:
            less = [chosen - {c} for c in sorted(chosen)]
            fewer = max(less, key=lambda s: self.gain(column, s))
            if self.gain(column, fewer) <= self.gain(column, chosen):
                break
            chosen = fewer
        return self.gain(column, chosen)

    def score(self, order: Sequence[int]) -> float:
        """The score of the best graph along the links that has this order."""
        earlier = ({*order[:k]} for k in range(len(order)))
        return sum(
            self.best(column, frozenset(self.around[column] & seen))
            for column, seen in zip(order, earlier, strict=True)
        )

    def improved(self, order: Sequence[int]) -> list[int]:
        """The order after each column was moved where the score is best, until none moves."""
        found, moved = list(order), True
        while moved:
            moved = False
            for column in order:
                place = self._best_place(column, found)
                if place is not None:
                    found.remove(column)
                    found.insert(place, column)
                    moved = True
        return found

    def _best_place(self, column: int, order: Sequence[int]) -> int | None:
        """Where a column raises the score most, among the others; None if it stands best."""
        rest = [other for other in order if other != column]
        near = self.around[column]
        first = max((k + 1 for k, c in enumerate(rest) if c in self.before[column]), default=0)
        last = min((k for k, c in enumerate(rest) if c in self.after[column]), default=len(rest))
        seen: set[int] = set()
        passed, scores = 0.0, []
        for k in range(len(rest) + 1):
            scores.append(passed + self.best(column, frozenset(near & seen)))
            if k < len(rest):
                other = rest[k]
                if other in near:
                    earlier = frozenset(self.around[other] & seen)
                    passed += self.best(other, earlier) - self.best(other, earlier | {column})
                seen.add(other)
        now = order.index(column)
        place = max(range(first, last + 1), key=scores.__getitem__, default=now)
        return place if scores[place] > scores[now] + SETTINGS.clear * self.gram.rows else None


def second_opinion(graph: Pdag, tables: NoisyTables, domain: Domain, knowledge: Knowledge) -> Pdag:
    """The CPDAG of the best order near `graph`'s; `graph` itself where a pair has no table."""
    try:
        gram = Gram(tables, domain)
    except KeyError:
        return graph
    links = [*graph.directed(), *graph.undirected()]
    orders = _Orders(gram, graph.nodes, links, knowledge)
    found = [orders.improved(_order(graph, nodes)) for nodes in (graph.nodes, graph.nodes[::-1])]
    best = max(found, key=orders.score)
    rank = {graph.nodes[c]: i for i, c in enumerate(best)}
    arrows = [(a, b) if rank[a] < rank[b] else (b, a) for a, b in links]
    dag = Pdag(graph.nodes, directed=arrows, shielded=graph.shielded)
    opinion = Pdag(graph.nodes, undirected=links, shielded=graph.shielded)
    orient_known(opinion, knowledge)
    orient_colliders(opinion, colliders(dag), knowledge)
    meek(opinion, knowledge)
    return opinion


def _order(graph: Pdag, nodes: Sequence[str]) -> list[int]:
    """Positions of columns, causes first; ties and undirected links by the order of `nodes`."""
    links = {"directed": graph.directed(), "undirected": graph.undirected()}
    dag = extend(Pdag(nodes, **links, shielded=graph.shielded))
    rank = {name: i for i, name in enumerate(graph.nodes)}
    order: list[str] = []
    while len(order) < len(nodes):
        ready = (n for n in nodes if n not in order and dag.parents[n] <= set(order))
        order.append(next(ready))
    return [rank[name] for name in order]


Tests = Mapping[tuple[str, ...], Answer]
"""Answers of one pair by conditioning set."""


def tested_triples(graph: Pdag, evidence: Evidence) -> list[Collider]:
    """Unshielded triples whose ends were tested; the ends are in node order."""
    return [(a, b, c) for a, b, c in unshielded(graph) if evidence.get((a, c))]


def surest_colliders(
    triples: Sequence[Collider],
    tests: Mapping[Pair, Tests],
    larger: Mapping[Pair, Tests] = MappingProxyType({}),
) -> list[Collider]:
    """The surest v-structures first; `larger` are tests given the middle column and one more."""
    odds = {(a, b, c): collider_odds(tests[a, c], b) for a, b, c in triples}
    sure = [triple for triple, value in odds.items() if value > np.log(SETTINGS.odds)]
    kept = [
        (a, b, c)
        for a, b, c in sure
        if collider_odds({**tests[a, c], **larger.get((a, c), {})}, b) > np.log(SETTINGS.veto)
    ]
    return sorted(kept, key=lambda triple: -odds[triple])


def collider_odds(tests: Tests, middle: str) -> float:
    """Log ratio of the largest p-values of tests given sets without and with the middle column."""
    able = {given: answer for given, answer in tests.items() if np.isfinite(answer.detectable)}
    without = max((a.p_value for given, a in able.items() if middle not in given), default=0.0)
    within = max((a.p_value for given, a in able.items() if middle in given), default=1.0)
    tiny = np.finfo(np.float64).tiny
    return float(np.log(max(without, tiny)) - np.log(max(within, tiny)))


def with_marks(
    graph: CausalGraph,
    skeleton: Skeleton,
    knowledge: Knowledge,
    sure: Collection[Collider],
    ask: Ask,
) -> CausalGraph:
    """`graph` with its `pag`; without one where the spec decides every pair.

    `sure` are the v-structures with enough evidence; arrowheads meet in no other.
    """
    if not skeleton.evidence:
        return graph
    apart = {
        frozenset(pair): [given for given, answer in tests if answer.verdict == "independent"]
        for pair, tests in skeleton.evidence.items()
        if pair not in skeleton.linked and skeleton.absent(pair)
    }
    links = {*map(frozenset, skeleton.linked), *map(frozenset, knowledge.confounded)}
    pairs = [p for p in combinations(graph.nodes, 2) if frozenset(p) in links]
    pag = Pag(graph.nodes, pairs)
    for a, b in sorted(knowledge.required):
        pag.put("tail", at=a, other=b)
        pag.put("arrow", at=b, other=a)
    place = {name: i for i, name in enumerate(pag.nodes)}
    reach = _reached(pag.nodes, skeleton, knowledge)
    for a in pag.nodes:
        for b in sorted(pag.around[a]):
            if not reach[place[a]] >> place[b] & 1:
                pag.put("arrow", at=a, other=b)
    clear = {(frozenset((a, c)), b) for a, b, c in sure}
    orient(pag, apart, ask, lambda a, b, c: (frozenset((a, c)), b) in clear)
    return replace(graph, pag=pag.links(apart))


def _reached(nodes: Sequence[str], skeleton: Skeleton, knowledge: Knowledge) -> list[int]:
    """The places of the columns that each column may be a cause of, as bits [Warshall 1962]."""
    inner = {*knowledge.inner, *((b, a) for a, b in knowledge.inner)}
    sure = knowledge.required | inner
    reach = [0] * len(nodes)
    for (i, a), (j, b) in combinations(enumerate(nodes), 2):
        tested = (a, b) in skeleton.evidence
        apart = tested and (a, b) not in skeleton.linked and skeleton.absent((a, b))
        for cause, effect, k, m in ((a, b, i, j), (b, a, j, i)):
            allowed = knowledge.allows(cause, effect) and (a, b) not in knowledge.confounded
            if (cause, effect) in sure or (allowed and not apart):
                reach[k] |= 1 << m
    for k in range(len(nodes)):
        for i in range(len(nodes)):
            if reach[i] >> k & 1:
                reach[i] |= reach[k]
    return reach


Ask = Callable[[Query], Verdict]
"""Answers from tables that were released; `undecided` where they do not tell."""
Triple = tuple[str, str, str]
Separators = Mapping[frozenset[str], Sequence[tuple[str, ...]]]
"""Sets by which a test found a pair independent, the smallest first. No other pair has an entry."""


def orient(
    pag: Pag,
    separators: Separators,
    ask: Ask,
    clear: Callable[[str, str, str], bool] = lambda a, b, c: True,
) -> None:
    """Set the marks that follow. Those that are set before, by what is known, stay.

    `clear` says of a, b and c whether arrowheads may meet in b. Where a pair has several separating
    sets, they must agree about the column between [Ramsey, Spirtes, Zhang 2006, arXiv:1206.6843].

    >>> pag = Pag("abc", [("a", "b"), ("b", "c")])
    >>> orient(pag, {frozenset("ac"): [()]}, lambda query: "dependent")
    >>> pag.arrow_at("b", "a"), pag.arrow_at("b", "c"), pag.mark(at="a", other="b")
    (True, True, 'circle')
    """
    passing: set[Triple] = set()

    def depend(*queries: Query) -> bool:
        return all(ask(query) == "dependent" for query in queries)

    for b in pag.nodes:
        for a, c in combinations(sorted(pag.around[b]), 2):
            sets = separators.get(frozenset((a, c)), ())
            if not sets or c in pag.around[a]:
                continue
            if all(b in given for given in sets):
                # The ends depend on each other once any one member is left out.
                rests = ([(a, c, tuple(n for n in s if n != left)) for left in s] for s in sets)
                if any(depend(*queries) for queries in rests):
                    passing |= {(a, b, c), (c, b, a)}
            # Both ends depend on the column between. That they depend on each other once it is
            # given is no need of the proof: it keeps out what is too weak to be seen.
            elif (
                clear(a, b, c)
                and any(depend((a, b, s), (c, b, s), (a, c, (*s, b))) for s in sets)
                and not any(b in given for given in sets)
            ):
                pag.put("arrow", at=b, other=a)
                pag.put("arrow", at=b, other=c)

    def changes(rule: Rule) -> bool:
        return any([pag.put(mark, at=at, other=other) for mark, at, other in rule(pag, passing)])

    rules: tuple[Rule, ...] = (_along, _closed, _between, _led)
    while any(map(changes, rules)):
        pass


Rule = Callable[[Pag, Collection[Triple]], Iterator[tuple[Mark, str, str]]]
"""Yields marks that follow, each with the column at it and the other one: they are put at once."""


def _along(pag: Pag, passing: Collection[Triple]) -> Iterator[tuple[Mark, str, str]]:
    """R1."""
    for a, b, c in sorted(passing):
        if pag.arrow_at(b, a):
            yield "tail", b, c
            yield "arrow", c, b


def _closed(pag: Pag, _: Collection[Triple] = ()) -> Iterator[tuple[Mark, str, str]]:
    """R2 and R8."""
    for a in pag.nodes:
        for c in sorted(pag.around[a]):
            for b in sorted(pag.around[a] & pag.around[c]):
                first, second = pag.arrow(a, b), pag.arrow(b, c)
                if (first and pag.arrow_at(c, b)) or (second and pag.arrow_at(b, a)):
                    yield "arrow", c, a
                if first and second:
                    yield "tail", a, c


def _between(pag: Pag, passing: Collection[Triple]) -> Iterator[tuple[Mark, str, str]]:
    """R3."""
    for a, d, c in sorted(passing):
        for b in sorted(pag.around[a] & pag.around[c] & pag.around[d]):
            if pag.arrow_at(b, a) and pag.arrow_at(b, c):
                yield "arrow", b, d


def _led(pag: Pag, passing: Collection[Triple]) -> Iterator[tuple[Mark, str, str]]:
    """R9 and R10."""
    after: dict[Pair, list[str]] = {}
    for a, b, c in sorted(passing):
        after.setdefault((a, b), []).append(c)
    for m, a, n in sorted(passing):
        for c in sorted(pag.around[a]):
            if pag.mark(at=a, other=c) == "circle" and all(
                _leads(pag, after, (a, end), c) for end in (m, n)
            ):
                yield "tail", a, c


def _leads(pag: Pag, after: Mapping[Pair, Sequence[str]], step: Pair, target: str) -> bool:
    """Whether the second column of a `step` is a cause of `target` if the first is one of it."""
    seen, stack = {step}, [step]
    while stack:
        before, node = stack.pop()
        if node == target or (
            target in pag.around[node] and pag.mark(at=node, other=target) == "tail"
        ):
            return True
        new = {(node, further) for further in after.get((before, node), ())} - seen
        seen |= new
        stack.extend(new)
    return False
