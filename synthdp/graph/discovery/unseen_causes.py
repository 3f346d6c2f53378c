"""What a search shows though causes may be unseen: marks on its links (`graph.pag`).

The marks come from the tables that the search paid for. The spec's knowledge counts as follows:

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

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from synthdp.graph.causal import CausalGraph
from synthdp.graph.ci_tests.chi_square import Query, Verdict
from synthdp.graph.discovery.skeleton import Skeleton
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.meek import Collider
from synthdp.graph.pag import Mark, Pag


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
