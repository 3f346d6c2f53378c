"""The graph on both reports, causal or predictive: its sentence, picture and validation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synthdp.graph.validation_words import claim_text, validation_sentences
from synthdp.report.parts import number
from synthdp.report.tables import ReportTable, cut
from synthdp.spec.wording import many

MAX_ROWS = 200
ORDER = ("refuted", "undecided", "supported")
HEADINGS = (
    "claim",
    "status",
    "effect (Cohen's w)",
    "at most",
    "smallest detectable effect",
    "p-value",
)
CAPTIONS = {
    "arrow": "Arrows, held against noisy tables",
    "independence": "Implied independences, held against noisy tables",
}


@dataclass(frozen=True, kw_only=True)
class GraphView:
    """The graph: its picture as an SVG document, its arrows, and their validation.

    `edges` are (cause, effect, where the arrow comes from); in mode predict a column and one that
    it predicts. `validation` is what released tables
    say of each of the graph's claims, as plain JSON values (`graph.validation`).
    """

    mode: str
    svg: str | None = None
    edges: tuple[tuple[str, str, str], ...] = ()
    validation: Mapping[str, Any] | None = None

    @property
    def predictive(self) -> bool:
        """Whether its arrows predict, and claim no cause."""
        return self.mode == "predict"

    @property
    def name(self) -> str:
        """What the graph is."""
        return "Predictive graph" if self.predictive else "Causal graph"

    @property
    def ends(self) -> tuple[str, str]:
        """What an arrow leads from and to."""
        return ("predictor", "predicted") if self.predictive else ("cause", "effect")


PREDICTIVE_SENTENCE = (
    " Predictive arrows keep pairs that depend on each other and on which the search had no answer;"
    " they are no causes."
)


def graph_sentence(view: GraphView) -> str:
    """What kind of graph shaped the model."""
    if view.predictive:
        return (
            f"The model follows {many(len(view.edges), 'arrow')}. They say which columns predict"
            " which, in the order of the spec; they are no causes. Which pairs were measured was"
            " chosen from noisy tables, and paid for (mode predict)."
        )
    if not view.edges:
        return f"The model used no causal arrows (mode {view.mode})."
    kinds = Counter(source for _, _, source in view.edges)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    kind = "" if kinds["predictive"] else "causal "
    return (
        f"The model follows {len(view.edges)} {kind}arrows ({counts}); mode"
        f" {view.mode}.{_validation_sentence(view.validation, len(view.edges))}"
        f"{PREDICTIVE_SENTENCE if kinds['predictive'] else ''}"
    )


def _validation_sentence(validation: Mapping[str, Any] | None, arrows: int) -> str:
    """What released tables say of a given graph."""
    if validation is None:
        return ""
    tested, independences = (
        ", ".join(f"{n} {status}" for status, n in validation["counts"][kind].items())
        for kind in ("arrow", "independence")
    )
    told = ". ".join(s[0].upper() + s[1:] for s in validation_sentences(validation, arrows))
    return (
        f" Held against noisy tables, its arrows: {tested}; the independences that it implies:"
        f" {independences}. {told}."
    )


def unlinked_sentence(view: GraphView) -> str:
    """What the model holds of columns without an arrow between them."""
    given = "the columns that predict it" if view.predictive else "its causes"
    return f"What is not linked, the model holds to be independent given {given}."


def arrow_table(view: GraphView, most: int) -> ReportTable:
    """What each column depends on: a row for each column and provenance that arrows lead to."""
    causes: dict[tuple[str, str], list[str]] = {}
    for cause, effect, source in view.edges:
        causes.setdefault((effect, source), []).append(cause)
    rows = tuple((effect, ", ".join(names), s) for (effect, s), names in causes.items())
    start, end = view.ends
    headings = (end, f"{start}s" if view.predictive else "causes", "where they come from")
    return cut(ReportTable(f"Arrows of the {view.name.lower()}", headings, rows), most)


def finding_tables(validation: Mapping[str, Any] | None) -> list[ReportTable]:
    """One table for arrows and one for independences, refuted ones first.

    There is none without a validation.
    """
    if validation is None:
        return []
    findings = sorted(validation["findings"], key=lambda f: ORDER.index(f["status"]))
    tables = []
    for kind, caption in CAPTIONS.items():
        rows = tuple(_row(finding) for finding in findings if finding["kind"] == kind)
        tables.append(cut(ReportTable(caption, HEADINGS, rows), MAX_ROWS))
    return tables


def _row(finding: Mapping[str, Any]) -> tuple[str, ...]:
    effects = (finding["effect"], finding["effect_upper"], finding["smallest_detectable_effect"])
    return claim_text(finding), finding["status"], *map(number, (*effects, finding["p_value"]))
