"""What the desk's page shows of a draft, in plain JSON: parts of fields, tables and lines; and what
becomes of the text where a field is changed.

The words are here and in what a spec's checks say; the page's script has none. A field is shown at
its path in the spec. Two stand for several: `levels` of a column for its categories, codes and
labels, and `bins` for its edges too.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from synthdp.api import drafts
from synthdp.desk.draft import CHANGED, SETTINGS, Draft, Text
from synthdp.errors import OutputError, SpecError, SpecProblem

Loc = tuple[str | int, ...]
Json = dict[str, Any]
Notes = list[tuple[str, SpecProblem]]
CELLS = ("type", "lower", "upper", "bins", "spikes", "missing", "levels", "unit")
STANDS_FOR = {"bins": ("bins", "edges"),
              "levels": ("categories", "codes", "value_labels", "false", "true")}  # fmt: skip
MODES = (
    ("predict", "predict: no knowledge; which columns depend on each other is measured"),
    ("given", "given: the arrows below are taken as they are"),
    ("validate", "validate: they are tested, for a share of the budget"),
    ("learn", "learn: arrows are searched for, beside those below"),
    ("none", "none: no graph"),
)
NAMED = {"tiers": "Tier {}, names parted by commas; no arrow goes back to an earlier one",
         "latent": "Unseen cause {}: the columns that it acts on"}  # fmt: skip
YES_NO, TYPES = (("", "no"), ("yes", "yes")), [(name, name) for name in ("", *drafts.FIELDS)]
DROP = ("dataset", "source", "drop")
ROWS = (("", ""), ("approximate", "approximate: the exact one is used nowhere"),
        ("public", "public: exact, and may be known"))  # fmt: skip
UNITS = (("row", "each row: right only if nobody can have two rows"),
         ("id", "everything of one id: all rows of a person, a household, a school"))  # fmt: skip
TEXTS = {"unit", "meaning", "column", "description", "justification", "intended_use", "region",
         "false", "true"}  # fmt: skip
WANTED = "Half-width that an interval should have at most: what reaches it? Not written anywhere"
FROM_KNOWLEDGE = (
    "Bounds, bins and levels come from a codebook, a questionnaire or common knowledge, never from"
    " the rows. A block of cells can be pasted from a spreadsheet. Levels stand one a line, a code"
    " with its label as 1 = never; of two truth values that of false first. Several bins, parted by"
    " commas, are their left edges."
)


def _take(left: Notes, *loc: str | int) -> Notes:
    """What is left to tell of a place and below it, which is told there and nowhere else."""
    taken = [one for one in left if one[1].loc[: len(loc)] == loc]
    left[:] = [one for one in left if one not in taken]
    return taken


def _note(kind: str, problem: SpecProblem, *, named: str = "") -> Json:
    text = f"{named}: {problem.message}" if named else problem.message
    if problem.message.startswith("still to be filled in"):  # with an editor's hint
        return {"tone": "open", "text": text, "hint": ""}
    return {"tone": kind, "text": text, "hint": problem.hint or ""}


def shown(draft: Draft) -> Json:
    """The whole page of a draft as it stands."""
    now = draft.now
    notes, told = now.found.told, draft.told()
    facts = (told[0] if told else {}).get("plan", {})
    unit = _at(now.content, ("dataset", "privacy_unit", "kind"))
    known = (draft, notes, facts)
    parts = [("unit", "Unit", _unit(*known)), ("columns", "Columns", _columns(draft, notes)),
             ("causes", "Causes", _causes(*known)), ("budget", "Budget", _budget(*known)),
             ("file", "File, and what next", _file(*known))]  # fmt: skip
    shut = "" if unit in ("row", "id") else "First say who is protected."
    stale, count = draft.stale(), len(now.found.mistakes)
    if now.found.spec is None:
        status = [f"not a spec yet: {count} {'mistake' if count == 1 else 'mistakes'}"]
    elif told is None:
        most = len(now.found.spec.content.modelled)
        status = [f"counting {len(draft.counted())} of {most} columns"]
    else:
        status = told[1].split("\n")
    tools = [{"label": "read it again", "do": "read"}] * stale
    tools += [{"label": "undo", "do": "undo"}] * bool(draft.past)
    return {
        "seen": now.seen,
        "name": draft.path.name,
        "status": [*status, "no row was read, nothing was spent"],
        "counting": sum(draft.told(step) is None for step in draft.steps()),
        "said": f"{CHANGED}." if stale else "",
        "tools": tools,
        "sections": [{"id": name, "title": title, "parts": of, "shut": shut * (name != "unit")}
                     for name, title, of in parts],
    }  # fmt: skip


# --- parts ---


def _unit(draft: Draft, notes: Notes, facts: Json) -> list[Json]:
    now, unit = draft.now, "privacy_unit"

    def ask(label: str, *loc: str, **more: Any) -> Json:
        return _field(now, notes, ("dataset", *loc), label, **more)

    fields = [ask("Who is protected?", unit, "kind", how="radio", options=UNITS)]
    if fields[0]["value"] == "id":
        fields.append(ask("The column with the ids, which is not released", unit, "column"))
        fields.append(ask("Rows of one id that are used, most", unit, "max_rows"))
    if _at(now.content, ("dataset", unit)):
        fields.append(ask("What is one unit? E.g. one patient", unit, "meaning"))
    fields.append(ask("How many rows? A constant that may be published", "rows", "value"))
    fields.append(ask("That number is", "rows", "kind", how="select", options=ROWS))
    parts: list[Json] = [{"kind": "fields", "of": fields}]
    if choices := facts.get("rows_of_one"):
        means = [f"kept, of {mean} rows an id" for mean in choices[0]["kept"]]
        rows = [(str(c["max_rows"]), [f"x {c['noise']}", *(f"{p:.0%}" for p in c["kept"].values())])
                for c in choices]  # fmt: skip
        caption = "What other numbers of rows of one id would cost and keep"
        parts.append(grid(caption, ["rows of one id", "noise of a table", *means], rows))
    return [*parts, *_others(_take(notes, "dataset"))]


def _columns(draft: Draft, notes: Notes) -> list[Json]:
    quality = {told.column: told for told in draft.counted()}
    now, columns, rows = draft.now, draft.now.content.get("columns"), []
    for name, column in (columns if isinstance(columns, Mapping) else {}).items():
        loc, told = ("columns", name), quality.get(name)
        figure = "" if told is None else f"{1000 * told.tv1:.0f}"
        cells = [figure, *(_cell((*loc, key), column) for key in CELLS)]
        below = _below(now, _take(notes, *loc), cells)
        if told is not None and told.noisy_levels:
            noisy = f"{told.noisy_levels} of {told.levels} levels are lost in noise"
            below.append({"tone": "warning", "text": noisy, "hint": "fewer bins, a narrower range"})
        drop = {"label": "drop", "name": f"drop column {name}", "do": "drop", "loc": list(loc)}
        rows.append((name, [*cells, drop], below))
    head = ["column", "wrong of 1,000", *CELLS, ""]
    table, left = grid("What each column may hold", head, rows), _others(_take(notes, "columns"))
    return [{"kind": "text", "text": FROM_KNOWLEDGE}, table, *left]


def _cell(loc: Loc, column: Any) -> Json | str:
    """A cell of a column, empty where its type has no such field; `levels` and `bins` stand for
    what the column has of several fields.
    """
    name, key, kind = f"{loc[1]}: {loc[2]}", str(loc[2]), _text(_at(column, ("type",)))
    if key == "type":
        return field(loc, name, "select", options=TYPES, value=kind)
    if not {key, *STANDS_FOR.get(key, ())} & {*drafts.FIELDS.get(kind, ())}:
        return ""
    if key == "missing":
        return field(loc, name, "select", options=YES_NO, value="yes" if column.get(key) else "")
    if key != "levels":
        shown = column.get("edges", column.get("bins")) if key == "bins" else column.get(key)
        return field(loc, name, value=_text(shown))
    levels, labels = column.get("categories", column.get("codes")), column.get("value_labels")
    if kind == "boolean":
        levels = [column.get(truth, truth) for truth in ("false", "true")]
    plain = isinstance(levels, list | None) and isinstance(labels, dict | None)
    if not plain or any(" = " in str(level) for level in levels or ()):
        return field(loc, name, "shut", value="in the file")
    known = labels or {}
    lines = (f"{x} = {known[str(x)]}" if str(x) in known else str(x) for x in levels or ())
    return field(loc, name, "area", value="\n".join(lines))


def _below(now: Text, found: Iterable[tuple[str, SpecProblem]], cells: Sequence[Any]) -> list[Json]:
    """What is wrong with a column, its cells marked; with a field where none of them is for it."""
    below = []
    for kind, problem in found:
        field = str(problem.loc[2]) if len(problem.loc) > 2 else ""
        cell = next((n for n, of in STANDS_FOR.items() if field in of), field)
        note = _note(kind, problem, named=field)
        own = [c for c in cells if isinstance(c, dict) and c["loc"][-1] == cell]
        for one in own:
            one["bad"] = one["bad"] or kind == "mistake"
        listed = isinstance(_at(now.content, problem.loc[:3]), list | dict)
        if field and not own and kind == "mistake" and not listed:
            note["field"] = _field(now, [], problem.loc[:3], f"{problem.loc[1]}: {field}")
        if note["tone"] != "open" or not own:  # an empty cell says as much
            below.append(note)
    return below


def _causes(draft: Draft, notes: Notes, facts: Json) -> list[Json]:
    now, graph, known = draft.now, ("graph",), "What is known of the causes?"
    mode, columns = _at(now.content, (*graph, "mode")), _at(now.content, ("columns",))
    asked = _field(now, notes, (*graph, "mode"), known, "select", options=MODES)
    parts: list[Json] = [{"kind": "fields", "of": [asked]}]
    if mode in ("given", "validate", "learn") and isinstance(columns, dict):
        for key, label in NAMED.items():
            held = _at(now.content, (*graph, key))
            for i in range(len(held) + 1 if isinstance(held, list) else 1):
                field = _field(now, notes, (*graph, key, i), label.format(i + 1))
                parts[0]["of"].append(field)
        groups = _at(now.content, (*graph, "groups"))
        parts.append(_matrix(now, [*columns, *(groups if isinstance(groups, dict) else ())]))
        parts += _claims(draft, mode, facts)
    return [*parts, *_others(_take(notes, "graph"))]


def _matrix(now: Text, names: Sequence[str]) -> Json:
    tiers = _at(now.content, ("graph", "tiers"))
    lists = [tier for tier in tiers if isinstance(tier, list)] if isinstance(tiers, list) else []
    tier = {str(name): i for i, held in enumerate(lists) for name in held}
    arrows = {(a, b) for _, causes, effects in drafts.arrows(now.text)
              for a in causes for b in effects}  # fmt: skip

    def cell(a: str, b: str) -> Json | str:
        if a == b:
            return ""
        on = (a, b) in arrows
        back = tier.get(a, -1) > tier.get(b, len(tier)) and not on
        shut = f": no, back from tier {tier[a] + 1} to {tier[b] + 1}" if back else ""
        told = {"label": "/" if back else "x" * on, "name": f"{a} acts on {b}{shut}"}
        return told | {"on": on, "shut": back, "do": "arrow", "loc": [a, b]}

    caption = "What acts on what: the row is the cause, the column the effect"
    rows = ((a, [cell(a, b) for b in names]) for a in names)
    return grid(caption, ["", *names], rows) | {"kind": "matrix"}


def _claims(draft: Draft, mode: str, facts: Json) -> Iterable[Json]:
    """What the arrows claim, whether anybody will test it, and their picture."""
    told = draft.told()
    if told is None or "claims" not in told[0]:
        return
    claims, svg = told[0]["claims"]
    count = f"{len(claims)} {'independence' if len(claims) == 1 else 'independences'}"
    said = f"The arrows claim {count}. The rows will obey them, true or not; in mode {mode} none is"
    said += " tested: validate would, for a share of the budget."
    seen = [(claim, least) for claim, least in facts.get("quality", {}).get("claims", ())]
    if mode == "validate" and seen:
        few = sum(least is not None and least <= 0.3 for _, least in seen)
        said = f"The arrows claim {count}; a test sees a medium effect in {few} of {len(seen)}."
    yield {"kind": "text", "text": said}
    least = {claim: "any" if w is None else f"{w:.2f}" for claim, w in seen}
    if claims:
        rows = [(claim, [least.get(claim, "not tested")]) for claim in claims[: SETTINGS.claims]]
        yield grid(f"Of {len(claims)} claims the first", ["claim", "effects seen from"], rows)
    yield {"kind": "picture", "svg": svg, "alt": "The arrows of the table above, drawn"}


def _budget(draft: Draft, notes: Notes, facts: Json) -> list[Json]:
    now, shares = draft.now, _at(draft.now.content, ("privacy", "shares"))
    labels: dict[Loc, str] = {
        ("privacy", "epsilon"): "Epsilon: the most that all of this release may cost",
        ("privacy", "delta"): "Delta: well below 1 / rows",
    }
    for name in shares if isinstance(shares, dict) else ():
        labels["privacy", "shares", name] = f"Share for {name}"
    if _at(now.content, ("privacy", "cap")) or (facts and facts["ledger"]["cap"] is None):
        for part in ("epsilon", "delta"):
            labels["privacy", "cap", part] = f"Cap: the most {part} of all releases of this table"
    labels["publication", "justification"] = "Why this epsilon? Published with the bundle"
    fields = [_field(now, notes, *one) for one in labels.items()]
    if facts.get("estimands"):
        fields.append(field(("half-width",), WANTED, value=draft.half_width))
    parts: list[Json] = [{"kind": "fields", "of": fields}]
    options = list(facts.get("what_if", ()))
    for step in draft.steps()[1:] if options else ():
        told = draft.told(step)
        if isinstance(step, float):
            options += [told[0].get("option", {})] if told else [{"epsilon": step}]
        else:
            lines = told[1].split("\n") if told else ["counting ..."]
            parts += [{"kind": "text", "text": line} for line in lines]
    options = list(filter(None, options))
    if options:
        options.sort(key=lambda option: option["epsilon"])
        head, rows = drafts.figures(options)
        for row in rows:
            row[1:] = ["counting" if len(option) == 1 else cell
                       for option, cell in zip(options, row[1:], strict=True)]  # fmt: skip
        caption = "What other epsilons would give, each planned by itself"
        parts.append(grid(caption, head, [(first, cells) for first, *cells in rows]))
    others = [one for name in ("privacy", "estimands", "publication") for one in _take(notes, name)]
    return [*parts, *_others(others)]


def _file(draft: Draft, notes: Notes, facts: Json) -> list[Json]:
    start, now = draft.start.splitlines(), draft.now.text.splitlines()
    lines = list[str]()
    matcher = difflib.SequenceMatcher(a=start, b=now, autojunk=False)
    for what, i1, i2, j1, j2 in matcher.get_opcodes():
        same = what == "equal"
        lines += [] if same else [f"- {line}" for line in start[i1:i2]]
        lines += [f"{' ' if same else '+'} {line}" for line in now[j1:j2]]
    parts = _others(_take(notes))
    if ledger := facts.get("ledger"):
        left = ledger["spent_after"] - ledger["spent_before"]
        cap = "no cap" if ledger["cap"] is None else f"cap {ledger['cap']:g}"
        told = f"It spends {left:.4g} of the ledger ({ledger['spent_before']:.4g} spent, {cap})."
        parts.append({"kind": "text", "code": f"synthdp release {draft.path.name}", "text": told})
    caption = f"{draft.path.name}, against the start"
    return [*parts, {"kind": "lines", "caption": caption, "of": lines}]


def grid(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Json:
    """A table; a row is its head, its cells and perhaps notes below."""
    told = [{"head": first, "cells": cells, "notes": notes[0] if notes else []}
            for first, cells, *notes in rows]  # fmt: skip
    return {"kind": "grid", "caption": caption, "head": head, "rows": told}


def _others(found: Iterable[tuple[str, SpecProblem]]) -> list[Json]:
    notes = list[Json]()
    for kind, problem in found:
        notes.append(_note(kind, problem, named=problem.field))
        if problem.message.startswith("missing;"):
            notes[-1]["field"] = field(problem.loc, problem.field)
    return [{"kind": "notes", "of": notes}] if notes else []


def _field(now: Text, notes: Notes, loc: Loc, label: str, how: str = "text", **more: Any) -> Json:
    found = [_note(*one) for one in _take(notes, *loc)]
    bad = any(note["tone"] in ("mistake", "open") for note in found)
    told = {"value": _text(_at(now.content, loc)), "notes": found, "bad": bad}
    return field(loc, label, how, **told | more)


def field(loc: Loc, label: str, how: str = "text", **more: Any) -> Json:
    """A field of a page, as a text, an area, a list or a choice."""
    plain = {"options": (), "value": "", "notes": [], "bad": False}
    return {"loc": [*loc], "label": label, "how": how, **plain, **more}


def _at(content: Any, loc: Loc) -> Any:
    """What a text says at a place; None where it says nothing there."""
    for key in loc:
        if isinstance(content, list):
            content = dict(enumerate(content))
        content = content.get(key) if isinstance(content, dict) else None
    return content


def _text(value: Any) -> str:
    """A value as a cell has it."""
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# --- changes ---


def act(draft: Draft, asked: Json) -> None:
    """Do what a page asks for, having `seen` a text.

    Raises:
        SynthdpError: it cannot be done; nothing is written.
    """
    seen, do, path = str(asked.get("seen")), asked.get("do"), str(draft.path)
    edits: dict[Any, Callable[[str], str]] = {
        "drop": lambda text: _without(text, str(asked["loc"][1]), path),
        "arrow": lambda text: _turned(text, *map(str, asked["loc"]), path=path),
        "set": lambda text: _with(text, asked["values"], path),
        "paste": lambda text: _pasted(text, asked["loc"], asked["text"], path),
    }
    if do == "read":
        draft.read()
    elif do == "set" and asked["values"][0][0] == ["half-width"]:
        draft.want(str(asked["values"][0][1]))
    elif do == "undo":
        draft.change(seen, lambda text: [text, *draft.past][-1], undo=True)
    elif do in edits:
        draft.change(seen, edits[do])
    else:
        raise OutputError("the desk has no such button", hint="load the page again")


def _with(text: str, values: Sequence[tuple[list[Any], str]], path: str) -> str:
    """The text with other values in some of its fields."""
    for given, cell in values:
        loc, content = tuple(given), drafts.said(text)
        for place, value in _meant(loc, cell.strip(), content):
            if value is not None:
                if _there(content, place[:-1]) and _at(content, place[:-1]) is None:  # a blank
                    place, value = place[:-1], {place[-1]: value}
                text = drafts.set_value(text, place, value, path=path)
            elif _there(content, place):
                text = drafts.drop(text, place, path=path)
    return text


def _pasted(text: str, loc: Sequence[str], block: str, path: str) -> str:
    """The text with a block of a spreadsheet in its cells from the one at `loc` on. Its levels may
    stand in one cell, as "1=never; 2=daily", or parted by line breaks.
    """
    names = [*drafts.said(text)["columns"]]
    fields = CELLS[CELLS.index(loc[2]) :] if loc[2] in CELLS else (loc[2],)
    lines = csv.reader(io.StringIO(block, newline=""), delimiter="\t")
    for name, line in zip(names[names.index(loc[1]) :], lines, strict=False):
        for key, given in zip(fields, line, strict=False):
            place, value = ["columns", name, key], given.strip()
            held = _cell((*place,), drafts.said(text)["columns"][name])
            if key == "levels":
                value = re.sub(" *[;|\r\n] *", "\n", value)
                value = re.sub(r"(?m)^([^=\n]*[^= \n]) *= *(?=[^ \n])", r"\1 = ", value)
            if isinstance(held, dict) and held["how"] != "shut":
                text = _with(text, [(place, value)], path)
    return text


def _meant(loc: Loc, cell: str, content: Any) -> Iterable[tuple[Loc, Any]]:
    """The places that a field stands for, and what a cell says of each; None to take it out."""
    field, column = loc[-1], _at(content, loc[:-1])
    if loc[0] == "columns" and field == "type":
        own = drafts.FIELDS.get(cell, ())
        yield from (((*loc[:2], key), None) for key in column if cell and key not in own)
    if field == "levels" and isinstance(column, dict):
        yield from _levels((*loc[:2],), str(column.get("type")), cell.split("\n") if cell else [])
        return
    emptied = isinstance(column, dict) and [*column] == [field]
    if loc[0] in ("privacy", "publication") and not cell and emptied:
        yield loc[:-1], None
        return
    if loc == ("dataset", "privacy_unit", "kind") and cell == "row":
        yield from (((*loc[:2], key), None) for key in ("column", "max_rows"))
    dropped = _at(content, DROP) if loc == ("dataset", "privacy_unit", "column") else None
    if isinstance(dropped, list) and cell in dropped:  # ids are read, and so cannot be
        yield DROP, [name for name in dropped if name != cell] or None
    if loc[0] == "graph" and loc[1] in NAMED:
        lists = [*(_at(content, loc[:2]) or ()), None]
        lists[int(loc[2])] = [name.strip() for name in cell.split(",") if name.strip()]
        yield loc[:2], [held for held in lists if held] or None
        return
    listed = [_value(part) for part in cell.split(",") if part.strip()]
    if field == "bins":
        edges = "," in cell
        yield (*loc[:2], "edges"), listed if edges else None
        yield loc, None if edges or not cell else _value(cell)
    elif field == "spikes":
        yield loc, listed or None
    elif field == "missing":
        yield loc, True if cell == "yes" else None
    else:
        yield loc, (cell if field in TEXTS else _value(cell)) if cell else None


def _levels(loc: Loc, kind: str, lines: Sequence[str]) -> Iterable[tuple[Loc, Any]]:
    parted = [line.strip().partition(" = ") for line in lines if line.strip()]
    names = [name.strip() for name, _, _ in parted]
    if kind == "boolean":
        if len(names) != 2:
            raise SpecError([SpecProblem("the desk", 1, 1, "levels", "two texts are needed",
                                         "one a line, that of false first")])  # fmt: skip
        yield from zip(((*loc, "false"), (*loc, "true")), names, strict=True)
        return
    labels = {name.strip(): label.strip() for name, mark, label in parted if mark}
    yield (*loc, "codes" if kind == "text-code" else "categories"), names or None
    if kind != "text-code":
        yield (*loc, "value_labels"), labels or None


def _value(cell: str) -> Any:
    """What a cell says: a number (commas may part thousands), a list or a map in YAML, or text."""
    plain = cell.strip()
    if plain[:1] in ("[", "{"):
        return drafts.said(f"value: {plain}").get("value", plain)
    if re.fullmatch(r"[-+]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?", plain):
        plain = plain.replace(",", "")
    number = re.fullmatch(r"[-+.eE0-9]+", plain)
    for kind in (int, float) if number else ():
        with suppress(ValueError):
            return kind(plain)
    return plain


def _there(content: Any, loc: Loc) -> bool:
    held = _at(content, loc[:-1])
    return isinstance(held, dict) and loc[-1] in held


def _turned(text: str, cause: str, effect: str, *, path: str) -> str:
    """The text with an arrow that it has not, or without one that it has."""
    held = any(cause in causes and effect in effects for _, causes, effects in drafts.arrows(text))
    edit = drafts.drop_arrow if held else drafts.add_arrow
    made = edit(text, cause, effect, path=path)
    drafts.check_graph(made, path)
    return made


def _without(text: str, name: str, path: str) -> str:
    """The text without a column, which is dropped from the source too, unless it has the ids."""
    text = drafts.drop(text, ("columns", name), path=path)
    ids = _at(drafts.said(text), ("dataset", "privacy_unit", "column")) == name
    return text if ids else drafts.add_item(text, DROP, name, path=path)
