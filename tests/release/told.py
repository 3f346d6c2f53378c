"""Of what a table is, by a spec, which room is told what: rows of `test_settings`."""

from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import ANY

import pytest

from synthdp.data import Domain
from synthdp.inference import Rows
from synthdp.model import Total, total_slack
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.spec.model import ReleaseSpec
from tests.builders import skeleton
from tests.release import seams

BASE: dict[str, Any] = {
    **skeleton(1000),
    "columns": {
        "sex": {"type": "categorical", "categories": ["f", "m"]},
        "old": {"type": "boolean"},
        "visits": {"type": "integer", "lower": 0, "upper": 30, "bins": 6},
    },
    "graph": {"mode": "given", "edges": ["sex -> visits"]},
    "synthesizer": {"steps": 20, "batch": 64, "hidden": 8, "latent": 2, "checkpoint_every": 5},
    "evaluation": {"targets": ["sex"]},
}
ID = {"kind": "id", "column": "who", "max_rows": 3, "meaning": "one household"}
SOME = {"measure": 0.2, "train": 0.5, "estimands": 0.3}
COUNT = {"kind": "question", "ask": "count(old)"}
PUBLISHED = {
    "curators": [{"name": "Curator of it", "type": "Industry"}],
    "intended_use": "Use of it",
    "region": "Region of it",
    "sector": "Finance",
    "justification": "Reason of it",
    "consulted": "Board of it",
    "until": "End of it",
    "authors": ["Author of it"],
}
FOUND = {"run": "20261124-0123456789ab", "epsilon": 0.25, "delta": 3e-7}


def laid_over(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`, section by section; what has a kind is replaced as a whole."""
    out = dict(base)
    for key, value in changes.items():
        deep = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        out[key] = laid_over(out[key], value) if deep and "kind" not in value else value
    return out


def spec_of(changes: Mapping[str, Any]) -> ReleaseSpec:
    return ReleaseSpec.model_validate(laid_over(BASE, changes))


Seam = Callable[[ReleaseSpec], Any]
Told = tuple[Mapping[str, Any], Mapping[str, Any], tuple[tuple[Seam, Any, Any], ...]]
"""A spec, one in which a setting has another value, and for each room what it has by both."""
OTHER = object()
"""In place of what a room has with the setting: something else than without it."""


def told(
    changes: Mapping[str, Any],
    *rooms: tuple[Seam, Any, Any],
    base: Mapping[str, Any] | None = None,
) -> Told:
    return base or {}, changes, rooms


def of(seam: Seam, name: str) -> Seam:
    """One of the things that a room is handed, or that it makes."""

    def one(spec: ReleaseSpec) -> Any:
        found = seam(spec)
        for step in name.split("/"):
            found = found[step] if isinstance(found, Mapping) else getattr(found, step)
        return found

    return one


def says(file: str, words: str) -> tuple[Seam, bool, bool]:
    """A file of the bundle says something that it does not without the setting."""
    return lambda spec: words in seams.published(file)(spec), False, True


def slack(spec: ReleaseSpec) -> float:
    """Rows by which a noiseless total may be off."""
    return total_slack(Total(0.0, 0.0), spec, 100.0)


def in_words(words: str) -> tuple[Seam, bool, bool]:
    return lambda spec: words in seams.words(spec), False, True


def noise(purpose: str) -> tuple[Seam, Any, Any]:
    return seams.noise_of(purpose), ANY, OTHER


def asked(estimand: Mapping[str, Any], *rooms: tuple[Seam, Any, Any], **changes: Any) -> Told:
    """An estimand, and another in which something is changed: other sums are paid for."""
    first, other = (
        {"privacy": {"shares": SOME}, "estimands": [{**estimand, **more}]} for more in ({}, changes)
    )
    return told(other, (seams.sums, ANY, OTHER), *rooms, base=first)


def tried(seen: str, after: Any, *, before: Any = ANY, **changes: Any) -> Told:
    """A column, and what its domain is when something of it is changed."""
    first = {"columns": {"tried": {k: v for k, v in changes.pop("of").items()}}}
    other = {"columns": {"tried": {**first["columns"]["tried"], **changes}}}
    return told(other, (of(seams.column, seen), before, after), base=first)


ALL = ("sex", "old", "visits")
MEAN = {"kind": "question", "ask": "mean(visits)"}
EFFECT = {"kind": "effect", "treated": "old", "outcome": "visits", "adjust": []}
LINE = {"kind": "regression", "outcome": "visits", "terms": ["old"]}
EFFECTS = of(seams.judged, "effects")
WHOLE = {"type": "integer", "lower": 0, "upper": 9}
REAL = {"type": "number", "lower": 0, "upper": 9}
DAY = {"type": "datetime", "lower": "2020-01-01", "upper": "2020-01-09"}
OF_THE_TABLE: dict[str, Told] = {
    "Described.id": told(
        {"dataset": {"id": "other"}},
        (of(seams.reserved, "dataset"), "d", "other"),
        (of(seams.facts, "dataset"), "d", "other"),
        (of(seams.read, "dataset/id"), "d", "other"),
    ),
    "Described.title": told(
        {"dataset": {"title": "Title of it"}},
        (of(seams.facts, "title"), None, "Title of it"),
        *(says(f, "Title of it") for f in ("README.md", "croissant.json", "datapackage.json")),
    ),
    "Described.description": told(
        {"dataset": {"description": "Words about it"}},
        *(says(f, "Words about it") for f in ("README.md", "croissant.json", "datapackage.json")),
    ),
    "Described.licence": told(
        {"dataset": {"licence": "CC0-1.0"}},
        *(says(f, "CC0-1.0") for f in ("README.md", "croissant.json", "datapackage.json")),
    ),
    "Described.citation": told(
        {"dataset": {"citation": "Author (2020)"}}, says("datapackage.json", "Author (2020)")
    ),
    "Described.contact": told(
        {"dataset": {"contact": "Desk of it"}},
        *(says(f, "Desk of it") for f in ("README.md", "croissant.json", "datapackage.json")),
    ),
    "Dataset.out_of_domain": told(
        {"dataset": {"out_of_domain": "clamp"}},
        (of(seams.read, "dataset/out_of_domain"), "refuse", "clamp"),
        (of(seams.facts, "out_of_domain"), "refuse", "clamp"),
        in_words("visits of 0 to 30: what lies beyond counts as the nearer end"),
    ),
    "RowUnit.meaning": told(
        {"dataset": {"privacy_unit": {"kind": "row", "meaning": "one bed"}}},
        (of(seams.reserved, "unit"), "one person", "one bed"),
        (of(seams.facts, "unit_meaning"), "one person", "one bed"),
        says("certificate.md", "one bed"),
    ),
    "IdUnit.meaning": told(
        {"dataset": {"privacy_unit": ID}},
        (of(seams.reserved, "unit"), "one person", "one household"),
        (of(seams.facts, "unit_meaning"), "one person", "one household"),
        in_words("at most 3 random rows of each id (one household)"),
    ),
    "IdUnit.max_rows": told(
        {"dataset": {"privacy_unit": ID}, "estimands": [COUNT], "privacy": {"shares": SOME}},
        (seams.rows, Rows(0.2), Rows(0.2, 3)),
        (seams.per_unit, 1, 3),
        (of(seams.limits, "rows"), 1, 3),
        (of(seams.plan, "rows_per_unit"), 1, 3),
        (of(seams.facts, "unit_rows"), 1, 3),
        (slack, pytest.approx(4 * 20**0.5), pytest.approx(4 * 60**0.5)),
        in_words(
            "an id with more counts as 3, and a share or a mean of all rows may differ; the"
            " interval allows for it"
        ),
    ),
    "DeclaredRows.value": told(
        {"dataset": {"rows": {"kind": "public", "value": 2000}}},
        (expected_fit_rows, 800, 1600),
        (seams.trained("rate"), 0.08, 0.04),
        (of(seams.facts, "rows"), 1000, 2000),
        (lambda spec: seams.pool(spec)[0], 1000, 2000),
        says("README.md", "2,000"),
    ),
    "DeclaredRows.kind": told(
        {"dataset": {"rows": {"kind": "approximate", "value": 1000}}},
        (of(seams.read, "dataset/rows/kind"), "public", "approximate"),
        (of(seams.facts, "rows_kind"), "public", "approximate"),
    ),
    "DomainFrom.run": told(
        {"dataset": {"domain_from": FOUND}},
        *(says(f, FOUND["run"]) for f in ("certificate.md", "spec.yaml")),
    ),
    "DomainFrom.epsilon": told(
        {"dataset": {"domain_from": FOUND}},
        (of(seams.facts, "domain_from"), None, OTHER),
        says("certificate.md", "0.25"),
    ),
    "DomainFrom.delta": told(
        {"dataset": {"domain_from": FOUND}},
        (of(seams.facts, "domain_from"), None, OTHER),
        says("certificate.md", "3e-07"),
    ),
    "AskedEstimand.ask": asked(MEAN, (seams.told, "mean(visits)", "share(old)"), ask="share(old)"),
    "AskedEstimand.clip": asked(
        MEAN,
        (of(seams.sums, "number/upper"), 30.0, 9.0),
        (seams.told, "mean(visits)", "mean(visits) (visits clipped to 1 to 9, of 0 to 30)"),
        clip=[1, 9],
    ),
    "EffectEstimand.clip": asked(
        EFFECT,
        (of(seams.sums, "number/upper"), 30.0, 9.0),
        (lambda spec: "clipped to 1 to 9" in seams.told(spec), False, True),
        clip=[1, 9],
    ),
    "Effect.treated": asked(EFFECT, (EFFECTS, ANY, OTHER), treated="sex == 'f'"),
    "Effect.control": asked(
        EFFECT | {"treated": "sex == 'f'"}, (EFFECTS, ANY, OTHER), control="sex == 'm'"
    ),
    "Effect.outcome": asked(
        EFFECT,
        (of(seams.sums, "number/column"), "visits", "sex"),
        (EFFECTS, ANY, OTHER),
        outcome="sex",
    ),
    "Effect.adjust": asked(
        EFFECT, (of(seams.sums, "by"), (), ("sex",)), (EFFECTS, ANY, OTHER), adjust=["sex"]
    ),
    "EffectEstimand.adjust": asked(
        {**EFFECT, "outcome": "sex", "adjust": ["visits"]},
        (of(seams.sums, "cuts"), (), (("visits", (0.0, 7.0)),)),
        adjust={"visits": [0, 7]},
    ),
    "RegressionEstimand.outcome": asked(LINE, (seams.told, ANY, OTHER), outcome="sex"),
    "RegressionEstimand.terms": asked(LINE, (seams.told, ANY, OTHER), terms=["old", "sex"]),
    "RegressionEstimand.where": asked(LINE, (seams.told, ANY, OTHER), where="sex == 'f'"),
    "RegressionEstimand.clips": asked(
        LINE,
        (lambda spec: "visits clipped to 1 to 9" in seams.told(spec), False, True),
        clips={"visits": [1, 9]},
    ),
    "TableEstimand.columns": asked(
        {"kind": "table", "columns": ["sex", "old"]},
        (of(seams.sums, "tables"), (("sex", "old"),), (("sex", "visits"),)),
        (of(seams.limits, "tables"), ANY, seams.limits(spec_of({})).tables + 1),
        columns=["sex", "visits"],
    ),
    "ColumnBase.missing": tried("levels", 3, of={"type": "boolean"}, before=2, missing=True),
    "ColumnBase.missing_codes": tried(
        "missing_codes", ("9",), of={"type": "boolean", "missing": True}, missing_codes=["9"]
    ),
    "ColumnBase.description": told(
        {"columns": {"old": {"description": "Words of it"}}},
        says("datapackage.json", "Words of it"),
        says("croissant.json", "Words of it"),
    ),
    "ColumnBase.unit": told(
        {"columns": {"visits": {"unit": "furlongs"}}},
        says("datapackage.json", "furlongs"),
        says("croissant.json", "furlongs"),
    ),
    "Labelled.value_labels": told(
        {"columns": {"sex": {"value_labels": {"f": "Label of it"}}}},
        says("datapackage.json", "Label of it"),
    ),
    "Categorical.categories": tried(
        "labels",
        ("a", "c"),
        of={"type": "categorical", "categories": ["a", "b"]},
        categories=["a", "c"],
    ),
    "Ordinal.categories": tried(
        "labels",
        ("a", "c"),
        of={"type": "ordinal", "categories": ["a", "b"]},
        categories=["a", "c"],
    ),
    "Boolean.false": tried("labels", ("no", "true"), of={"type": "boolean"}, false="no"),
    "Boolean.true": tried("labels", ("false", "yes"), of={"type": "boolean"}, true="yes"),
    "Integer.lower": tried("lower", 2.0, of=WHOLE, before=0.0, lower=2),
    "Integer.upper": tried("upper", 8.0, of=WHOLE, before=9.0, upper=8),
    "Integer.bins": tried("levels", 2, of=WHOLE, bins=2),
    "Integer.edges": tried("edges", (0.0, 4.0), of=WHOLE, edges=[0, 4]),
    "Integer.spikes": tried("spikes", (3.0,), of=WHOLE, before=(), spikes=[3]),
    "Number.lower": tried("lower", 2.0, of=REAL, before=0.0, lower=2),
    "Number.upper": tried("upper", 8.0, of=REAL, before=9.0, upper=8),
    "Number.bins": tried("levels", 2, of=REAL, bins=2),
    "Number.edges": tried("edges", (0.0, 4.0), of=REAL, edges=[0, 4]),
    "Number.spikes": tried("spikes", (3.0,), of=REAL, before=(), spikes=[3]),
    "Number.decimals": tried("decimals", 1, of=REAL, before=4, decimals=1),
    "Datetime.lower": tried("lower", 18264.0, of=DAY, before=18262.0, lower="2020-01-03"),
    "Datetime.upper": tried("upper", 18269.0, of=DAY, before=18270.0, upper="2020-01-08"),
    "Datetime.bins": tried("levels", 2, of=DAY, bins=2),
    "Datetime.edges": tried(
        "edges", (18262.0, 18264.0), of=DAY, edges=["2020-01-01", "2020-01-03"]
    ),
    "Datetime.spikes": tried("spikes", (18264.0,), of=DAY, before=(), spikes=["2020-01-03"]),
    "Datetime.resolution": tried("resolution", "hour", of=DAY, before="day", resolution="hour"),
    "TextCode.codes": tried(
        "labels", ("I1",), of={"type": "text-code", "codes": ["E11"], "prefix": 2}, codes=["I10"]
    ),
    "TextCode.prefix": tried(
        "labels", ("E",), of={"type": "text-code", "codes": ["E11"], "prefix": 2}, prefix=1
    ),
    **{
        f"{kind}.derived": told(
            {"columns": {"both": {**of_kind, "derived": "visits + 1"}}},
            (of(seams.facts, "derived"), (), (("both", "visits + 1"),)),
            (lambda spec: Domain.from_spec(spec.columns).names, ALL, ALL),
            says("certificate.md", "visits + 1"),
        )
        for kind, of_kind in (("Integer", WHOLE | {"upper": 31}), ("Number", REAL | {"upper": 31}))
    },
    **{
        f"{owner}.{name}": told({"publication": PUBLISHED}, says("deployment.yaml", words))
        for owner, name, words in (
            ("Curator", "name", "Curator of it"),
            ("Curator", "type", "Industry"),
            ("Publication", "intended_use", "Use of it"),
            ("Publication", "region", "Region of it"),
            ("Publication", "sector", "Finance"),
            ("Publication", "justification", "Reason of it"),
            ("Publication", "authors", "Author of it"),
        )
    },
    **{
        f"Publication.{name}": told({"publication": PUBLISHED}, says("certificate.md", words))
        for name, words in (("consulted", "Board of it"), ("until", "End of it"))
    },
}
