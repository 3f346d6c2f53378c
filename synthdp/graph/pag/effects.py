"""Whether a partial ancestral graph settles what an intervention on a column does.

It does in the simple sense: each link of the column x is p -> x, or an arrow x -> y that is
`visible`. The p then block every back door of x. A path into x passes a p, from which an arrow
leads to x, so that p blocks it. A path out of x that is not directed has an effect of x where
arrows meet, which is no cause of a p, since arrows form no cycle. An unseen common cause of x and
an effect would be a path of neither kind, and no visible arrow has one [generalised adjustment:
Perković, Textor, Kalisch, Maathuis 2018, JMLR 18(220), of which this is a special case].
"""

from __future__ import annotations

from collections.abc import Iterable

from synthdp.graph.pag.marks import PagLink


def unsettled(links: Iterable[PagLink], column: str) -> tuple[PagLink, ...]:
    """Links of a column that an unseen common cause may join so that effects of it are open.

    >>> age = PagLink("age", "dose", "tail", "arrow")
    >>> known = [age, PagLink("dose", "pain", "circle", "arrow")]
    >>> [str(link) for link in unsettled(known, "dose")]
    ['dose o-> pain']
    """
    return tuple(
        link
        for link in links
        if column in (link.a, link.b) and not (link.visible or _into(link, column))
    )


def causes(links: Iterable[PagLink], column: str) -> frozenset[str]:
    """The columns from which an arrow leads to `column`."""
    into = (link for link in links if column in (link.a, link.b) and _into(link, column))
    return frozenset(link.a if link.b == column else link.b for link in into)


def _into(link: PagLink, column: str) -> bool:
    """Whether the link is an arrow to the column."""
    here, there = (link.at_b, link.at_a) if link.b == column else (link.at_a, link.at_b)
    return (here, there) == ("arrow", "tail")
