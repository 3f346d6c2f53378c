"""Rules for what a spec leaves out of its synthesizer: public, and overruled by whatever the file
says.
"""

from __future__ import annotations

import pytest

from synthdp.bundle.metadata.readme import public_spec, spec_yaml
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec, SynthesizerSettings, rules
from synthdp.spec.model.rules import batch

ROWS = """\
synthdp: 1
dataset:
  id: people
  source: {{kind: csv, path: people.csv}}
  privacy_unit: {{kind: row, meaning: one person}}
  rows: {{kind: public, value: {rows}}}
columns:
{columns}
privacy: {{epsilon: 1, delta: 1e-8, shares: {shares}}}
graph: {graph}
synthesizer: {own}
attacks: {{membership: {{enabled: false}}}}
"""


def read(
    *,
    rows: int = 50_000,
    columns: int = 3,
    graph: str = "{mode: given, edges: [c0 -> c1]}",
    own: str = "{}",
    targets: bool = False,
) -> ReleaseSpec:
    names = "\n".join(
        f"  c{i}: {{type: integer, lower: 0, upper: 99, bins: 40}}" for i in range(columns)
    )
    shares = "{measure: 0.2, targets: 0.2, train: 0.6}" if targets else "{measure: 0.2, train: 0.8}"
    return parse_spec(
        ROWS.format(rows=rows, columns=names, graph=graph, own=own, shares=shares), path="spec.yaml"
    )


def of(**asked: object) -> tuple[int, int, int, int]:
    own = read(**asked).synthesizer  # type: ignore[arg-type]
    return own.latent, own.hidden, own.steps, own.batch


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, (2, 32, 800, 1024)),
        ({"graph": "{mode: none}"}, (4, 32, 800, 1024)),
        ({"rows": 1_000}, (2, 32, 300, 100)),
        ({"rows": 5_000, "columns": 222}, (2, 16, 300, 500)),
        ({"rows": 2_950, "columns": 948}, (1, 8, 200, 295)),
        ({"rows": 5_000_000}, (2, 32, 800, 4096)),
        ({"rows": 3}, (2, 32, 300, 1)),
        ({"own": "{targets: [c1]}", "targets": True}, (2, 40, 800, 1024)),
    ],
)
def test_what_is_left_out_follows_the_declared_shape(
    asked: dict[str, object], found: tuple[int, int, int, int]
) -> None:
    assert of(**asked) == found


@pytest.mark.parametrize("setting", ["latent", "hidden", "steps", "batch"])
def test_what_the_file_says_stays_whatever_the_rules_would_say(setting: str) -> None:
    plain, own = read(rows=1_000), read(rows=1_000, own=f"{{{setting}: 33}}")
    assert getattr(own.synthesizer, setting) == 33
    assert plain.synthesizer.model_copy(update={setting: 33}) == own.synthesizer


def test_a_published_spec_holds_what_the_rules_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that other rules, of a later version, change nothing of a bundle."""
    spec = read(rows=1_000)
    monkeypatch.setattr(rules, "FEW_ROWS", 10)
    assert read(rows=1_000).synthesizer.steps != spec.synthesizer.steps
    assert (
        parse_spec(spec_yaml(public_spec(spec)), path="spec.yaml").synthesizer == spec.synthesizer
    )


def test_the_reference_says_what_the_rules_do() -> None:
    said = {
        name: str(field.description) for name, field in SynthesizerSettings.model_fields.items()
    }
    assert (
        f"{rules.FEW_ROWS:,} rows" in said["steps"] and f"{rules.WIDEST} columns" in said["steps"]
    )
    assert (
        f"{rules.WIDE} columns" in said["hidden"]
        and f"beyond {rules.WIDEST}" in said["hidden"]
        and f"{rules.WIDEST} columns" in said["latent"]
    )
    assert (
        f"below {10 * rules.SMALL_BATCH:,}" in said["batch"]
        and f"most {rules.LARGE_BATCH:,}" in said["batch"]
    )


def test_a_batch_is_a_part_of_the_rows() -> None:
    sizes = [batch(rows) for rows in range(1, 400_000, 7)]
    assert all(0 < size < max(2, 7 * i + 1) for i, size in enumerate(sizes)) and sizes == sorted(
        sizes
    )
