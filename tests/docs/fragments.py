"""Parts of specs, as guides show them: allowed if they can be laid over a whole spec."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docs.site.reference import flow
from synthdp.spec import parse_spec, read
from synthdp.spec.model import ReleaseSpec

REPLACED = ("graph", "synthesizer")  # sections that a fragment shows as a whole


def laid_over(base: Path, fragment: str) -> str:
    """The spec `base` with the sections of `fragment` laid over its own, as YAML; a fragment that
    is a whole spec stays as it is.
    """
    part = _value(fragment)
    if "synthdp" in part:
        return fragment
    whole = _merged(_value(base.read_text(encoding="utf-8")), part)
    used = {
        "pairs": whole["privacy"].get("pairs"),
        "targets": whole.get("synthesizer", {}).get("targets"),
    }
    if "shares" not in part.get(
        "privacy", {}
    ):  # a page that talks of one part leaves the others out
        own = {name: 0.2 for name, names in used.items() if names}
        whole["privacy"]["shares"] = {
            "measure": 0.2,
            **own,
            "train": round(0.8 - sum(own.values()), 1),
        }
    elif used["targets"] and "targets" not in part["privacy"]["shares"]:
        del whole["synthesizer"]["targets"]
    return "\n".join(f"{name}: {flow(value)}" for name, value in whole.items())


def load_laid_over(base: Path, fragment: str) -> ReleaseSpec:
    """What `laid_over` gives, loaded; raises SpecError where it is not allowed."""
    return parse_spec(laid_over(base, fragment), path="fragment")


def _value(text: str) -> dict[str, Any]:
    tree, mistakes = read(text)
    assert tree is not None and not mistakes, mistakes
    value = tree.value()
    assert isinstance(value, dict)
    return value


def _merged(base: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Section by section: the fields that `part` has, and the others of `base`."""
    out = dict(base)
    for name, value in part.items():
        out[name] = (
            {**out.get(name, {}), **value}
            if isinstance(value, Mapping) and name not in REPLACED
            else value
        )
    return out
