"""The certificate as Markdown: what was released, what is guaranteed, and what is not.

The text is a function of a `Certificate` alone, so that `verify` can write it again and compare.
The guarantee is worded as in Tschantz, Sen and Datta, "SoK: Differential Privacy as a Causal
Property" (arXiv:1710.05899, as in the version published at IEEE S&P 2020): a bound on the causal
effect of one data point, with no assumption about correlations.

The prose stands in `templates/`; here is what a template calls. In a template a line that ends in a
backslash goes on in the next one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from synthdp.bundle.audit_record import SANITY, AuditRecord
from synthdp.bundle.certificate import Certificate, ReleasedFile
from synthdp.drawing import safe, shortened
from synthdp.errors import BudgetError
from synthdp.evaluate.dp_scores import LEVEL, ChargedScore, headline
from synthdp.privacy.events import kinds
from synthdp.privacy.noise import NoiseKind
from synthdp.privacy.plan import SCORES
from synthdp.report.prose import estimated, right
from synthdp.spec.load.wording import many, up
from synthdp.spec.model import Column, Dataset, Gate, derived_of


def render(certificate: Certificate) -> str:
    """The certificate as Markdown, for people."""
    c = certificate
    number = {charge.entry: i for i, charge in enumerate(c.charges, start=1)}
    planned = [x.event for x in c.planned]
    stated = list(map(kinds.event_from_json, planned))

    def paid(file: ReleasedFile) -> str:
        entries = sorted(file.receipts, key=lambda entry: number.get(entry, 0))
        return ", ".join(str(number.get(entry, entry)) for entry in entries)

    return template("certificate.md.j2").render(
        **_promise(c),
        factor=math.exp(c.epsilon),
        unused=[plain(p.purpose) for p in c.purposes if not p.used],
        released=[(file.file, paid(file)) for file in c.released],
        scored=next((p.epsilon for p in c.purposes if p.purpose == SCORES), None),
        rates={event.rate for event in stated if isinstance(event, kinds.SecretSampleDpEvent)},
        charged=[plain(gate_words(gate, c.scores)) for gate in c.charged_gates],
        noises=noises_of(planned),
        lattice=on_lattice(planned),
        sanity=SANITY,
    )


def for_people(certificate: Certificate) -> str:
    """What the guarantee means, for those whom the table is about, as Markdown."""
    return template("people.md.j2").render(**_promise(certificate))


def _promise(c: Certificate) -> dict[str, Any]:
    """What both pages say of whom is promised what, and by whom."""
    own, most = c.domain_from, getattr(c, "at_most", None)  # visits of a person
    whose = {"row": "one row", "id": "all rows of one id together", "person": "one person"}
    return {
        "c": c,
        "unit": plain(
            c.unit_meaning if most is None else f"{c.unit_meaning}, the first {most} of them"
        ),
        "whose": whose[c.unit],
        "added": c.adjacency == "add_remove",
        "own": own,
        "right": right(c.advantage, (own.epsilon, own.delta) if own else None),
        "publication": c.publication,
    }


def audit_markdown(record: AuditRecord | None) -> str:
    """The section "Audits"; says so where there was none."""
    text = template("audits.md.j2").render(record=record, sanity=SANITY)
    return text.removesuffix("\n")


def template(name: str) -> Template:
    return environment().get_template(name)


def template_text(name: str) -> str:
    """The text of a template, its continued lines joined."""
    text = files("synthdp.bundle").joinpath("templates", name).read_text(encoding="utf-8")
    return re.sub(r"\\\n *", "", text)


@cache
def environment() -> Environment:
    """What templates are made with. It escapes nothing: each value is quoted by a filter."""
    made = Environment(
        loader=FunctionLoader(template_text),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "bound": lambda value: "no bound" if value is None else up(value),
        "code": code,
        "event": describe_event,
        "fmt": format,
        "g": lambda value: f"{value:g}",
        "many": many,
        "one_in": lambda value: f"1 in {math.floor(1 / value * (1 + 1e-9)):,}",
        "plain": plain,
        "quoted": quoted,
        "shortened": shortened,
        "stopped": lambda text: text if text.endswith((".", "!", "?")) else f"{text}.",
        "up": up,
        "xml": safe,
    }
    spoken = ("fitting", "gate", "interval", "score", "what")
    made.filters |= {name: partial(in_words, name=name) for name in spoken}
    made.globals["estimated"] = estimated
    made.globals["level"] = f"{LEVEL:.0%}"
    return made


def describe_event(event: Mapping[str, Any]) -> str:
    """One event in words, with its noise scale."""
    try:
        return kinds.kind_of(kinds.event_from_json(event)).words()
    except BudgetError:
        return plain(str(event.get("event", "unknown")).replace("_", " "))


def noises_of(events: Iterable[Mapping[str, Any]]) -> set[NoiseKind]:
    """The kinds of noise inside `events`."""
    parts = (leaf for event in events for leaf in kinds.leaves(kinds.event_from_json(event)))
    return {leaf.noise for leaf in parts if leaf.noise is not None}


def on_lattice(events: Iterable[Mapping[str, Any]]) -> str:
    """What inside `events` has Gaussian noise on a lattice: a training, sums, both; empty: none."""
    parts = (leaf for event in events for leaf in kinds.leaves(kinds.event_from_json(event)))
    trained = {leaf.name in kinds.OF_BATCHES for leaf in parts if leaf.noise == "lattice"}
    if len(trained) == 2:
        return "the noise of training and of sums"
    return "the training's noise" if True in trained else "noise on sums" if trained else ""


def gate_words(gate: Gate, scores: Sequence[ChargedScore]) -> str:
    """A gate of a bundle that was published, with its figure where that is a published score."""
    if (found := headline(scores).get(gate.metric)) is None:
        return f"{gate.metric} {gate.bound}: passed"
    got, ends = estimated(*found), (found.low, found.high)
    return f"{gate.metric} {gate.bound}: {got}, {gate.outcome(found.value, ends)}"


def effects_svg(certificate: Certificate) -> str:
    """The causal diagram: effects of a data point, a status, and a group, jointly and in total.

    Sections 5 and 6.3 of Tschantz, Sen and Datta, with the bounds of this release.
    """
    joint = dict.fromkeys((1, 2), "not tabulated")
    joint |= {g.size: _words(g.joint_epsilon, g.joint_delta) for g in certificate.groups}
    total = {g.size: _words(g.total_epsilon, g.total_delta) for g in certificate.groups}
    bounds = {"point": joint[1], "status": joint[2], "joint": joint[2]}
    return template("effects.svg.j2").render(
        title=f"What the guarantee of {certificate.title or certificate.dataset} bounds",
        bounds=bounds | {"total": total.get(2, "not tabulated")},
    )


def _words(epsilon: float | None, delta: float) -> str:
    return "no bound" if epsilon is None else f"at most {up(epsilon)}, at delta {delta:g}"


# --- words ---


def in_words(value: object, name: str = "score") -> str:
    """A score with its interval as a sentence, or what another macro of `words.md.j2` says."""
    return str(getattr(template("words.md.j2").module, name)(value)).strip()


def plain(text: str) -> str:
    """A steward's words on one line, safe inside a Markdown table or sentence.

    No markup, link or picture in them is drawn.
    """
    words = " ".join(text.split()).replace("\\", "\\\\").replace("<", "&lt;").replace("`", "'")
    return re.sub(r"([|*_\[\]~])", r"\\\1", words)


def unquoted(text: str) -> str:
    """What a text of `plain` says, for a page that is not Markdown.

    >>> unquoted(plain("a_b < c"))
    'a_b < c'
    """
    return re.sub(r"\\(.)", r"\1", text).replace("&lt;", "<")


def quoted(text: str | None) -> list[str]:
    """Lines of a Markdown quotation: a publisher's words cannot pass for what the page states."""
    return [f"> {plain(line)}".rstrip() for line in (text or "").strip().splitlines()]


def code(text: str) -> str:
    """A line of a Markdown code block, where nothing is markup."""
    return "    " + " ".join(text.split())


def title_of(dataset: Dataset) -> str:
    """The synthetic table's title, which says once that it is synthetic."""
    title = dataset.title or dataset.id
    return title if title.rstrip(" .)").lower().endswith("synthetic") else f"{title} (synthetic)"


def about_column(column: Column) -> str:
    """What a column holds, and what it is computed from; empty where neither was stated."""
    derived = derived_of(column)
    said = [
        column.description,
        None if derived is None else f"computed from other columns: {derived}",
    ]
    return "; ".join(filter(None, said))
