"""The registry's record, the causal diagram and the profile: valid, true to the certificate, and
found when edited.
"""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from synthdp.bundle import (
    DEPLOYMENT,
    DERIVED,
    REPORT,
    Bundle,
    deployment_record,
    deployment_yaml,
    effects_svg,
    public_spec,
    render,
    schema_problems,
)
from synthdp.bundle.certificate import EPSILONS, Certificate, profile_svg
from synthdp.privacy import GaussianSumsDpEvent, RoundedGaussianDpEvent, accounting
from synthdp.privacy.events.gaussian import unit_sampled_gaussian
from synthdp.privacy.events.kinds import (
    SecretSampleDpEvent,
    event_from_json,
    event_to_json,
    with_holdout,
)
from synthdp.privacy.plan import Spend
from synthdp.spec import load_spec
from synthdp.verify import verify_bundle
from tests.bundle.conftest import edit_json, problems, written

PROFILE, PICTURE, DIAGRAM = "privacy/profile.json", "privacy/profile.svg", "privacy/effects.svg"


def certificate(bundle: Path) -> Certificate:
    return Certificate.model_validate_json((bundle / "privacy/certificate.json").read_text())


def record(bundle: Path) -> Any:
    return yaml.safe_load((bundle / DEPLOYMENT).read_text())


class TestRegistryRecord:
    def test_is_valid_and_states_the_guarantee(self, made: Path) -> None:
        content = record(made)
        assert list(schema_problems(content)) == []
        deployment = content["deployment"]
        loss = deployment["privacy_loss"]
        assert loss["privacy_parameters"]["delta"] == 1e-5
        assert 0 <= loss["privacy_parameters"]["epsilon"] - certificate(made).epsilon < 2e-4
        assert deployment["administrative"] == {
            "status": "Draft",
            "registry_authors": ["The Clinic"],
            "tier": 3,
        }
        assert "tv1 was at most 0.2" in deployment["dp_variant"]["unprotected_quantities"]
        assert "discrete Gaussian of sigma 12" in deployment["implementation"]["mechanisms"]
        assert (
            deployment["basic"]["publication_date"]
            == json.loads((made / "privacy/ledger.json").read_text())["entries"][-1]["at"][:10]
        )

    def test_noise_on_sums_is_told_from_that_of_a_training(self, made: Path) -> None:
        """Sums of estimands have noise on a lattice as a training has, and need none."""
        stated, spec = certificate(made), load_spec(made / "spec.yaml")
        steps = unit_sampled_gaussian(noise_multiplier=2.0, rate=0.1, rows=1, steps=9)
        events = {
            "noise on sums": [GaussianSumsDpEvent(9.0, 1.5)],
            "the training's noise": [SecretSampleDpEvent(0.5, steps)],
            "the noise of training and of sums": [GaussianSumsDpEvent(9.0, 1.5), steps],
            "": [RoundedGaussianDpEvent(9.0)],
        }
        for told, planned in events.items():
            spends = tuple(
                Spend(purpose=f"p{i}", mechanism="m", event=event_to_json(event))
                for i, event in enumerate(planned)
            )
            own = stated.model_copy(update={"planned": spends})
            limits = render(own)
            assert (f"{told} is a 64-bit Gaussian rounded to a public lattice" in limits) is bool(
                told
            )
            content: Any = deployment_record(spec, own, day="2026-01-31")
            mechanisms = content["deployment"]["implementation"]["mechanisms"]
            assert ("Opacus" in mechanisms) is ("training" in told)
            assert ("public lattice" in mechanisms) is bool(told)

    def test_is_yaml_as_the_registry_wants_it(self, made: Path) -> None:
        """No folded text, dates as text, and fields in the order of the schema."""
        text = (made / DEPLOYMENT).read_text()
        assert not any(getattr(t, "style", None) == ">" for t in yaml.scan(text))
        content = record(made)["deployment"]
        assert isinstance(content["basic"]["publication_date"], str)
        schema = json.loads(
            (
                Path(__file__).parents[2] / "synthdp/bundle/schemas/deployment.schema.json"
            ).read_text()
        )
        for name, section in content.items():
            order = list(schema["properties"]["deployment"]["properties"][name]["properties"])
            assert list(section) == sorted(section, key=order.index), name

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (
                lambda d: d["deployment"]["administrative"].update(tier=2),
                "administrative.tier: 3 was expected",
            ),
            (
                lambda d: d["deployment"].pop("implementation"),
                "'implementation' is a required property",
            ),
            (
                lambda d: d["deployment"]["implementation"].pop("composition"),
                "'composition' is a required property",
            ),
            (
                lambda d: d["deployment"]["basic"].update(publication_date="1/1/2026"),
                "publication_date: '1/1/2026'",
            ),
            (
                lambda d: d["deployment"]["basic"].update(publication_date="2026-02-31"),
                "'2026-02-31' is not a 'date'",
            ),
            (
                lambda d: d["deployment"]["basic"].update(data_product_type="Surprise"),
                "'Surprise' is not one of",
            ),
            (
                lambda d: d["deployment"]["basic"].update(data_curators=[]),
                "data_curators: [] should be non-empty",
            ),
            (
                lambda d: d["deployment"]["basic"]["data_curators"][0].pop("data_curator_type"),
                "'data_curator_type' is a required property",
            ),
            (
                lambda d: d["deployment"]["privacy_loss"]["privacy_parameters"].clear(),
                "privacy_parameters: {} should be non-empty",
            ),
            (
                lambda d: d["deployment"]["dp_variant"].update(data_domain=""),
                "data_domain: '' should be non-empty",
            ),
            (lambda d: d.update(author="x"), "'author' was unexpected"),
        ],
    )
    def test_schema_refuses(
        self, made: Path, change: Callable[[Any], object], problem: str
    ) -> None:
        content = record(made)
        change(content)
        assert problem in "\n".join(schema_problems(content))

    def test_bomb_is_never_opened(self, bundle: Path) -> None:
        lines = [
            "a0: &a0 [x]",
            *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)),
        ]
        (bundle / DEPLOYMENT).write_text("\n".join(lines))
        assert f"{DEPLOYMENT}: does not say" in problems(bundle)

    def test_missing(self, bundle: Path) -> None:
        (bundle / DEPLOYMENT).unlink()
        assert f"{DEPLOYMENT}: is missing; its spec asks for it" in problems(bundle)

    def test_no_publication_no_record(
        self, build: Any, tmp_path: Path, spec_text: str, made: Path
    ) -> None:
        private = re.sub(r"^publication:\n(?:  .*\n)+", "", spec_text, flags=re.MULTILINE)
        folder = written(build(tmp_path, private))
        assert verify_bundle(folder).ok
        assert not (folder / DEPLOYMENT).exists()
        assert DEPLOYMENT not in (folder / "README.md").read_text()
        shutil.copy(made / DEPLOYMENT, folder / DEPLOYMENT)
        assert "does not belong in this bundle; its spec asks for none" in problems(folder)

    @pytest.mark.parametrize(
        ("old", "new", "expected"),
        [
            (
                "{kind: row, meaning: one visit}",
                "{kind: id, column: person, max_rows: 2, meaning: one patient}",
                "at most 2 (a random choice)",
            ),
            ("kind: public", "kind: approximate", "number_of_privacy_units: 200"),
            ("delta: 1e-5", "delta: 1e-5\n  adjacency: replace_one", "by replacing one row"),
            ("intended_use: Teaching", 'intended_use: "a: b #c | <x> `y`\\n- z"', "a: b #c"),
            (
                "region: Nowhere",
                'region: "Ω – 東京"\n  justification: "As agreed.\\n\\nWith care."',
                "As agreed. With care.",
            ),
            (
                "region: Nowhere",
                "region: Nowhere\n  justification: A.\n  consulted: the board\n  until: spring",
                "A. Who was asked: the board. Until when: spring.",
            ),
        ],
    )
    def test_every_kind_of_release(
        self, made: Path, release: Any, spec_text: str, old: str, new: str, expected: str
    ) -> None:
        from synthdp.spec import parse_spec

        assert old in spec_text
        spec = public_spec(parse_spec(spec_text.replace(old, new), path="s"))
        unit = spec.dataset.privacy_unit
        facts = certificate(made).model_copy(
            update={
                "adjacency": spec.privacy.adjacency,
                "unit": unit.kind,
                "unit_rows": unit.max_rows if unit.kind == "id" else 1,
                "unit_meaning": unit.meaning,
                "rows_kind": spec.dataset.rows.kind,
            }
        )
        content = deployment_record(spec, facts, day="2026-01-31")
        assert content is not None and list(schema_problems(content)) == []
        text = deployment_yaml(content)
        assert yaml.safe_load(text) == content and expected in text


class TestPictures:
    @pytest.mark.parametrize("name", [DIAGRAM, PICTURE])
    def test_is_self_contained_and_says_what_it_shows(self, made: Path, name: str) -> None:
        text = (made / name).read_text()
        root = ET.fromstring(text)
        assert root.get("role") == "img"
        assert len(root.findall("{http://www.w3.org/2000/svg}desc")) == 1
        ids = {e.get("id") for e in root.iter()} - {None}
        assert set((root.get("aria-labelledby") or "").split()) <= ids
        assert set(re.findall(r"url\(#([^)]+)\)", text)) <= ids
        assert not re.search(r"<script|<image|href|@import|on\w+=", text)

    def test_diagram_holds_the_certificates_numbers(self, made: Path) -> None:
        text, groups = (made / DIAGRAM).read_text(), certificate(made).groups
        assert all(
            w in text
            for w in (
                "do(D1)",
                "do(R1)",
                "do(R1, R2)",
                "3 epsilon",
                "at most 1.0492, at delta 1e-05",
                "at most 2.3763, at delta 1e-05",
            )
        )
        assert (
            groups[1].total_delta == 2e-5 and text.count("at delta 2e-05") == 2
        )  # in the panel, and in the words

    @pytest.mark.parametrize(
        "title", ['"><script>alert(1)</script>', "a & b ]]>", "x" * 500, "bell \x07"]
    )
    def test_stewards_words_stay_text(self, made: Path, title: str) -> None:
        facts = certificate(made).model_copy(update={"title": title})
        profile = json.loads((made / PROFILE).read_text())
        for text in (effects_svg(facts), profile_svg(profile, facts)):
            tags = {e.tag.rpartition("}")[2] for e in ET.fromstring(text).iter()}
            assert "script" not in tags and "\x07" not in text
            assert max(len(t) for t in re.findall(r"<text[^>]*>([^<]*)", text)) < 200

    def test_bounds_that_are_not_there(self, made: Path) -> None:
        facts = certificate(made)
        assert "not tabulated" in effects_svg(facts.model_copy(update={"groups": facts.groups[:1]}))
        none = facts.groups[1].model_copy(update={"joint_epsilon": None, "total_epsilon": None})
        assert "no bound" in effects_svg(
            facts.model_copy(update={"groups": (facts.groups[0], none)})
        )


class TestProfile:
    def test_is_the_composition_of_the_ledgers_events(self, made: Path) -> None:
        stated = json.loads((made / PROFILE).read_text())
        points = [(p["epsilon"], p["delta"]) for p in stated["points"]]
        assert tuple(e for e, _ in points) == EPSILONS
        assert all(b[1] <= a[1] for a, b in pairwise(points))
        assert points[0][1] > 0.05
        charged = [event_from_json(c.event) for c in certificate(made).charges]
        events = with_holdout(charged, 0.2, "add_remove")
        for epsilon, delta in points[30:45]:
            assert (
                accounting.epsilon(events, delta=delta * 1.0001, adjacency="add_remove")
                <= epsilon + 1e-9
            )

    def test_passes_through_the_certificate(self, made: Path) -> None:
        facts = certificate(made)
        points = [
            (p["epsilon"], p["delta"]) for p in json.loads((made / PROFILE).read_text())["points"]
        ]
        below, above = (
            max(p for p in points if p[0] <= facts.epsilon),
            min(p for p in points if p[0] >= facts.epsilon),
        )
        assert below[1] >= facts.delta >= above[1]

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (
                lambda p: p["points"][10].update(delta=p["points"][10]["delta"] * 0.99),
                "is below what the planned events give",
            ),
            (
                lambda p: p["points"][0].update(delta=1.01),
                "is no probability",
            ),
            (lambda p: p["points"][10].update(epsilon=0.5), "its epsilons are not the public grid"),
            (lambda p: p["points"].pop(), "its epsilons are not the public grid"),
            (lambda p: p.update(adjacency="replace_one"), "is not the profile of this release"),
            (lambda p: p["points"][10].update(delta="0"), f"{PROFILE}: is not what it should be"),
        ],
    )
    def test_edited(self, bundle: Path, change: Callable[[Any], object], problem: str) -> None:
        edit_json(bundle / PROFILE, change)
        assert problem in problems(bundle)


class TestPublicReport:
    def test_it_is_made_of_the_bundles_own_files(self, made: Path) -> None:
        assert (made / REPORT).read_text() == DERIVED[REPORT].make(Bundle.stated(made))
        receipts = {
            r["file"]: set(r["receipts"])
            for r in json.loads((made / "privacy/certificate.json").read_text())["released"]
        }
        assert receipts[REPORT] >= receipts["synthetic.csv"] | receipts["marginals.json"]

    def test_it_holds_no_part_of_a_path_or_address(self, made: Path) -> None:
        text = (made / REPORT).read_text()
        assert not any(
            word in text for word in ("secret-folder", "password", "ledger.db", "internal.json")
        )
