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
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from synthdp.api import drafts
from synthdp.desk.draft import CHANGED, Draft, Json, Text
from synthdp.errors import OutputError, SpecProblem

Loc = tuple[str | int, ...]
Notes = list[tuple[str, SpecProblem]]
UNIT, DROP = ("dataset", "privacy_unit"), ("dataset", "source", "drop")
CELLS = ("type", "lower", "upper", "bins", "spikes", "missing", "levels", "unit")
STANDS_FOR: dict[Any, Loc] = {
    "bins": ("bins", "edges"),
    "levels": ("categories", "codes", "value_labels", "false", "true"),
}
OWN = {"row": ("kind",), "id": ("kind", "column", "max_rows"), **drafts.FIELDS}
MODES = [(told.partition(":")[0], told) for told in drafts.MODES.split("; ")]
NAMED = {"tiers": "Tier {}, names parted by commas; no arrow goes back to an earlier one",
         "latent": "Unseen cause {}: the columns that it acts on"}  # fmt: skip
CHOICES = {"type": [(name, name) for name in ("", *drafts.FIELDS)],
           "missing": [("", "no"), ("true", "yes")]}  # fmt: skip
ROWS = [(name, name) for name in ("", "approximate", "public")]
UNITS = (("row", "each row: right only if nobody can have two"),
         ("id", "all rows of one id, such as a person or a school"))  # fmt: skip
TEXTS = {"unit", "meaning", "column", "description", "justification", "intended_use", "region"}
MOST = "Most rows of one id that are used: 1, unless most ids have several that are needed"
FROM_KNOWLEDGE = (
    "Never from the rows: bounds, bins and levels come from a codebook or common knowledge. A level"
    " a line, as 1 = never; that of false first. Several bins are left edges, parted by commas."
    " Blocks can be pasted from a spreadsheet."
)


def shown(draft: Draft) -> Json:
    """The whole page of a draft as it stands."""
    now, told, stale = draft.now, draft.now.told.get(0.0, {}), draft.stale()
    notes, facts, unit = now.found.told, told.get("plan", {}), _at(now.content, UNIT)
    parts = [("unit", "Unit", _unit(now, notes)), ("columns", "Columns", _columns(now, notes)),
             ("causes", "Causes", _causes(now, notes, told)),
             ("budget", "Budget", _budget(now, notes, facts)),
             ("file", "File, and what next", _file(draft, notes))]  # fmt: skip
    shut = "" if _at(unit, ("kind",)) in ("row", "id") else "First say who is protected."
    if now.found.spec is None:
        status = [f"not a spec yet; mistakes: {len(now.found.mistakes)}"]
    else:
        rows = f"rows of one {unit.get('column')}, at most {unit.get('max_rows')}"
        status = [f"protected: {unit['meaning']}, {'one row' if unit['kind'] == 'row' else rows}"]
        status += ["doubtful: see Unit"] * any(one.loc == UNIT for _, one in now.found.told)
        counting = f"counting {len(now.columns)} of {len(now.found.spec.content.modelled)} columns"
        status += told["said"].split("\n") if told else [counting]
    tools = [{"label": "read it again", "do": "read"}] * stale
    return {
        "seen": now.seen,
        "name": draft.path.name,
        "status": [*status, "no row was read, nothing was spent"],
        "counting": len(now.steps) - len(now.told),
        "said": f"{CHANGED}." if stale else "",
        "tools": [*tools, *[{"label": "undo", "do": "undo"}] * bool(draft.past)],
        "sections": [{"id": name, "title": title, "parts": of, "shut": shut * (name != "unit")}
                     for name, title, of in parts],
    }  # fmt: skip


# --- parts ---


def _unit(now: Text, notes: Notes) -> list[Json]:
    kind, rows, many = (*UNIT, "kind"), ("dataset", "rows"), "has the table"
    asked: list[tuple[Any, ...]] = [(kind, "Who is protected?", "radio", UNITS)]
    if _at(now.content, kind) == "id":
        asked.append(((*UNIT, "column"), "Column of the ids, which is never released"))
        asked.append(((*UNIT, "max_rows"), MOST))
        many = "are used, not all that the table has"
    if _at(now.content, UNIT):
        asked.append(((*UNIT, "meaning"), "What is one unit? E.g. one patient"))
    asked.append(((*rows, "value"), f"How many rows {many}? A number that may be published"))
    asked.append(((*rows, "kind"), "Is it exact (public) or round (approximate)?", "select", ROWS))
    return _told(now, _take(notes, "dataset"), [field(now.content, *one) for one in asked])


def _columns(now: Text, notes: Notes) -> list[Json]:
    columns, quality = now.content.get("columns"), {told.column: told for told in now.columns}
    rows, below = list[Any](), Json()
    for name in columns if isinstance(columns, dict) else ():
        cells = [_cell(now.content, ("columns", name, key)) for key in CELLS]
        fields = [cell for cell in cells if isinstance(cell, dict)]
        below[name] = _told(now, _take(notes, "columns", name), fields)[0]["of"]
        below[name] += [note | {"text": f"{cell['loc'][2]}: {note['text']}"} for cell in fields
                        for note in cell["notes"] if note["tone"] != "open"]  # fmt: skip
        told = quality.get(name)
        figure = f"{1000 * told.tv1:.0f}" if told else ""
        if told and told.noisy_levels:
            noisy = f"{told.noisy_levels} of {told.levels} levels drown in noise: take fewer bins"
            below[name].append({"tone": "warning", "text": noisy})
        drop = {"label": "drop", "name": f"drop column {name}", "do": "drop", "loc": [name]}
        rows.append([name, figure, *cells, drop])
    head = ["column", "wrong of 1,000", *CELLS, ""]
    rest = _told(now, _take(notes, "columns"), [])
    text = {"kind": "text", "text": FROM_KNOWLEDGE}
    return [*rest, text, grid("What each column may hold", head, rows, below)]


def _cell(content: Any, loc: Loc) -> Json | str:
    """A cell of a column, empty where its type has no such field."""
    column, key, label = _at(content, loc[:2]), str(loc[2]), f"{loc[1]}: {loc[2]}"
    kind = _text(_at(column, ("type",)))
    if key != "type" and not {*STANDS_FOR.get(key, (key,))} & {*drafts.FIELDS.get(kind, ())}:
        return ""
    if key in CHOICES:
        return field(content, loc, label, "select", CHOICES[key])
    if key == "bins" and "edges" in column:
        return field(content, loc, label, value=_text(column["edges"]))
    if key != "levels":
        return field(content, loc, label)
    levels, labels = column.get("categories", column.get("codes")), column.get("value_labels", {})
    if kind == "boolean":
        levels = [column.get(truth, truth) for truth in ("false", "true")]
    plain = isinstance(levels, list | None) and isinstance(labels, dict)
    if not plain or any(" = " in str(level) for level in levels or ()):
        return field(content, loc, label, "shut", value="in the file")
    lines = (f"{x} = {labels[str(x)]}" if str(x) in labels else str(x) for x in levels or ())
    return field(content, loc, label, "area", value="\n".join(lines))


def _causes(now: Text, notes: Notes, told: Json) -> list[Json]:
    mode, columns = _at(now.content, ("graph", "mode")), _at(now.content, ("columns",))
    fields = [field(now.content, ("graph", "mode"), "What causes are known?", "select", MODES)]
    parts = list[Json]()
    if mode in ("given", "validate", "learn") and isinstance(columns, dict):
        for key, label in NAMED.items():
            held = _at(now.content, ("graph", key))
            for i in range(len(held) + 1 if isinstance(held, list) else 1):
                fields.append(field(now.content, ("graph", key, i), label.format(i + 1)))
        groups = _at(now.content, ("graph", "groups"))
        names = [*columns, *(groups if isinstance(groups, dict) else ())]
        parts = [_matrix(now, names), *_claims(mode, told)]
    return [*_told(now, _take(notes, "graph"), fields), *parts]


def _matrix(now: Text, names: list[str]) -> Json:
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
        told = {"label": "/" if back else "x" * on, "name": f"{a} acts on {b}{shut}", "on": on}
        reached = 0 if [a, b] == names[:2] else -1  # by Tab; the others by arrow keys
        return told | {"shut": back, "do": "arrow", "loc": [a, b], "tab": reached}

    caption = "What acts on what: the row is the cause, the column the effect"
    rows = [[a, *(cell(a, b) for b in names)] for a in names]
    return grid(caption, ["", *names], rows) | {"kind": "matrix"}


def _claims(mode: str, told: Json) -> list[Json]:
    """What the arrows claim, whether anybody will test it, and their picture."""
    if "claims" not in told:
        return []
    claims, svg = told["claims"]
    seen = dict(told.get("plan", {}).get("quality", {}).get("claims", ()))
    least = {claim: "any" if w is None else f"{w:.2f}" for claim, w in seen.items()}
    rows = [[claim, least.get(claim, "not tested")] for claim in claims[:20]]
    tested = "" if mode == "validate" else f"; mode {mode} tests none"
    caption = f"Claimed independences: {len(claims)}. Rows will obey them, true or not{tested}"
    picture = {"kind": "picture", "svg": svg, "alt": "The arrows of the table above, drawn"}
    return [grid(caption, ["claim", "effects seen from"], rows), *[picture] * bool(svg)]


def _budget(now: Text, notes: Notes, facts: Json) -> list[Json]:
    content, shares = now.content, _at(now.content, ("privacy", "shares"))
    labels: dict[Loc, str] = {
        ("privacy", "epsilon"): "Epsilon: the most that all of this release may cost",
        ("privacy", "delta"): "Delta: well below 1 / rows",
    }
    for name in shares if isinstance(shares, dict) else ():
        labels["privacy", "shares", name] = f"Share for {name}"
    if _at(content, ("privacy", "cap")) or (facts and facts["ledger"]["cap"] is None):
        for part in ("epsilon", "delta"):
            labels["privacy", "cap", part] = f"Cap: the most {part} of all releases of this table"
    labels["publication", "justification"] = "Why this epsilon? Published with the bundle"
    found = [one for name in ("privacy", "estimands", "publication") for one in _take(notes, name)]
    parts = _told(now, found, [field(content, *one) for one in labels.items()])
    if own := facts.get("what_if"):
        told = [now.told.get(e, {}).get("option", {"epsilon": e}) for e in now.steps[1:]]
        options = sorted([*own, *told], key=lambda option: option["epsilon"])
        head, rows = drafts.figures(options)
        caption = "Other epsilons, each planned by itself; -: none, or not counted yet"
        parts.append(grid(caption, head, rows))
    return parts


def _file(draft: Draft, notes: Notes) -> list[Json]:
    start, now = draft.start.splitlines(), draft.now.text.splitlines()
    lines = list(difflib.unified_diff(start, now, n=len(now), lineterm=""))[3:]
    lines = lines or [f" {line}" for line in now]
    code, told = f"synthdp release {draft.path.name}", "releases it, and spends what stands beside."
    caption = f"{draft.path.name}, against the start"
    return [*_told(draft.now, _take(notes), []), {"kind": "text", "code": code, "text": told},
            {"kind": "lines", "caption": caption, "of": lines}]  # fmt: skip


def grid(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]],
         notes: Json | None = None) -> Json:  # fmt: skip
    """A table; a row begins with its head, which may have notes below."""
    told = [{"head": first, "cells": cells, "notes": (notes or {}).get(first, [])}
            for first, *cells in rows]  # fmt: skip
    return {"kind": "grid", "caption": caption, "head": head, "rows": told}


def field(content: Any, loc: Loc, label: str, how: str = "text", options: Any = (),
          value: str | None = None) -> Json:  # fmt: skip
    """A field of a page for what stands at a place: a text, an area, a list or a choice."""
    value = _text(_at(content, loc)) if value is None else value
    if how == "select" and value not in dict(options):
        options = [(value, value), *options]
    places = [(*loc[:-1], name) for name in STANDS_FOR.get(loc[-1], loc[-1:])]
    told = {"loc": [*loc], "label": label, "how": how, "options": options, "value": value}
    return told | {"places": places, "notes": [], "bad": False}


def _take(left: Notes, *loc: str | int) -> Notes:
    """What is left to tell of a place and below it, which is told there and nowhere else."""
    taken = [one for one in left if one[1].loc[: len(loc)] == loc]
    left[:] = [one for one in left if one not in taken]
    return taken


def _told(now: Text, found: Notes, fields: list[Json]) -> list[Json]:
    """Fields with what is found wrong with each; above them what is of none, and where one value
    mends it, a field for that.
    """
    rest = list[Json]()
    for kind, problem in found:
        note = {"tone": kind, "text": problem.message, "hint": problem.hint}
        if problem.message.startswith("still to be filled in"):
            note |= {"tone": "open", "hint": None}  # which is for an editor
        own = [one for one in fields if problem.loc[: len(one["loc"])] in one["places"]]
        for one in own:
            one["notes"].append(note)
            one["bad"] |= kind == "mistake"
        if not own:
            rest.append(note | {"text": f"{problem.field}: {problem.message}"})
            if kind == "mistake" and not isinstance(_at(now.content, problem.loc), list | dict):
                rest[-1]["field"] = field(now.content, problem.loc, problem.field)
    return [{"kind": "notes", "of": rest}, {"kind": "fields", "of": fields}]


def _at(content: Any, loc: Sequence[Any]) -> Any:
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
    do, path = asked.get("do"), str(draft.path)
    edits: dict[Any, Callable[[str], str]] = {
        "undo": lambda text: [text, *draft.past][-1],
        "drop": lambda text: _without(text, *asked["loc"], path=path),
        "arrow": lambda text: _turned(text, *asked["loc"], path=path),
        "set": lambda text: _with(text, asked["values"], path),
        "paste": lambda text: _pasted(text, asked["loc"], asked["text"], path),
    }
    if do == "read":
        draft.read()
    elif do in edits:
        draft.change(asked["seen"], edits[do], undo=do == "undo")
    else:
        raise OutputError("the desk has no such button", hint="load the page again")


def _with(text: str, values: Iterable[tuple[Iterable[Any], str]], path: str) -> str:
    """The text with other values in some of its fields."""
    for loc, cell in values:
        content = drafts.said(text)
        for place, value in _meant((*loc,), cell.strip(), content):
            held = _at(content, place[:-1])
            if value is not None:
                text = drafts.set_value(text, place, value, path=path)
            elif isinstance(held, dict) and place[-1] in held:
                emptied = len(held) == 1 and place[0] != "columns"
                text = drafts.drop(text, place[:-1] if emptied else place, path=path)
    return text


def _pasted(text: str, loc: Sequence[str], block: str, path: str) -> str:
    """The text with a block of a spreadsheet in its cells from the one at `loc` on. Its levels may
    stand in one cell, as "1=never; 2=daily", or parted by line breaks.
    """
    names = [*drafts.said(text)["columns"]]
    lines = csv.reader(io.StringIO(block, newline=""), delimiter="\t")
    for name, line in zip(names[names.index(loc[1]) :], lines, strict=False):
        for key, value in zip(CELLS[CELLS.index(loc[2]) :], line, strict=False):
            if key == "levels":
                value = re.sub(" *[;|\r\n] *", "\n", value.strip())
                value = re.sub(r"(?m)^([^=\n]*[^= \n]) *= *(?=[^ \n])", r"\1 = ", value)
            place = ("columns", name, key)
            held = _cell(drafts.said(text), place)
            if isinstance(held, dict) and held["how"] != "shut":
                text = _with(text, [(place, value)], path)
    return text


def _meant(loc: Loc, cell: str, content: Any) -> Iterable[tuple[Loc, Any]]:
    """The places that a field stands for, and what a cell says of each; None to take it out."""
    key, held = loc[-1] if len(loc) > 2 else "", _at(content, loc[:-1])
    parts = [part.strip() for part in cell.split(",") if part.strip()]
    if key in ("type", "kind") and cell in OWN:
        yield from (((*loc[:-1], name), None) for name in held or () if name not in OWN[cell])
    if loc == (*UNIT, "kind") and cell == "id" and not _at(content, (*UNIT, "column")):
        names = [*(_at(content, DROP) or ()), *(_at(content, ("columns",)) or ())]
        yield from _meant((*UNIT, "column"), drafts.likely_id(map(str, names)) or "", content)
    if loc == (*UNIT, "column") and cell in (_at(content, DROP) or ()):  # ids are read
        yield DROP, [name for name in _at(content, DROP) if name != cell] or None
    if key == "levels":
        yield from _levels(loc[:-1], _text(held.get("type")), cell.split("\n") if cell else [])
    elif key == "bins":
        yield (*loc[:-1], "edges"), [_value(part) for part in parts] if "," in cell else None
        yield loc, _value(cell) if cell and "," not in cell else None
    elif key == "spikes":
        yield loc, [_value(part) for part in parts] or None
    elif key == "missing":
        yield loc, cell in ("true", "yes") or None
    elif loc[0] == "graph" and loc[1] in NAMED:
        lists = [*(_at(content, loc[:2]) or ()), None]
        lists[int(loc[2])] = parts
        yield loc[:2], [names for names in lists if names] or None
    else:
        yield loc, (cell if loc[-1] in TEXTS else _value(cell)) if cell else None


def _levels(loc: Loc, kind: str, lines: Sequence[str]) -> Iterable[tuple[Loc, Any]]:
    parted = [line.strip().partition(" = ") for line in lines if line.strip()]
    names = [name.strip() for name, _, _ in parted]
    if kind == "boolean":
        if len(names) != 2:
            raise OutputError("two levels are needed, that of false first; nothing was written")
        yield from zip(((*loc, "false"), (*loc, "true")), names, strict=True)
    else:
        yield (*loc, "codes" if kind == "text-code" else "categories"), names or None
        labels = {name.strip(): label.strip() for name, mark, label in parted if mark}
        yield (*loc, "value_labels"), labels or None


def _value(cell: str) -> Any:
    """What a cell says as YAML, where commas may part thousands; else its text."""
    if re.fullmatch(r"[-+]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?", cell):
        cell = cell.replace(",", "")
    found = drafts.said(f"value: {cell}").get("value")
    return cell if found is None or "#" in cell else found


def _turned(text: str, cause: str, effect: str, *, path: str) -> str:
    """The text without an arrow, or with one that it has not."""
    made = drafts.drop_arrow(text, cause, effect, path=path)
    if made == text:
        made = drafts.add_arrow(text, cause, effect, path=path)
    drafts.check_graph(made, path)
    return made


def _without(text: str, name: str, *, path: str) -> str:
    """The text without a column, which is dropped from the source too, unless it has the ids."""
    text = drafts.drop(text, ("columns", name), path=path)
    ids = _at(drafts.said(text), (*UNIT, "column")) == name
    return text if ids else drafts.add_item(text, DROP, name, path=path)
