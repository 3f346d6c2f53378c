"""Every way to spoil a bundle is found, and the problem is named - also when the checksums were
mended.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.bundle import DEPLOYMENT, FILES, render
from synthdp.bundle.certificate import FORMAT, Certificate
from synthdp.errors import VerifyError
from synthdp.files import SUMS
from synthdp.ledger import entry_hash
from synthdp.privacy import accounting
from synthdp.verify import Reader, checks, verify_bundle
from tests.builders import audit_record
from tests.bundle.conftest import edit_json, problems, written

CERTIFICATE, LEDGER = "privacy/certificate.json", "privacy/ledger.json"
ROW = "{kind: row, meaning: one visit}"
ID = "{kind: id, column: person, max_rows: 2, meaning: one patient}"


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_good_bundle_passes(made: Path) -> None:
    heard: list[tuple[int, int]] = []
    report = verify_bundle(made, progress=lambda done, total: heard.append((done, total)))
    assert heard == [(i, len(report.checks)) for i in range(1, len(report.checks) + 1)]
    assert (
        report.ok and report.delta == 1e-5 and report.epsilon is not None and 1 < report.epsilon < 3
    )
    assert len(report.checks) == 27 and {"waves", "innovations"} <= {*report.checks}


@pytest.mark.check
def test_checks_take_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where products are small, those that wait spin: `verify` took half as much again for them."""
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads(reader: Reader) -> Iterator[str]:
        yield from (str(pool["num_threads"]) for pool in threadpool_info())

    monkeypatch.setattr(checks, "CHECKS", {"folder": (".", threads)})
    with threadpool_limits(limits=2):
        found = checks.inspect_bundle(tmp_path).problems
        assert {pool["num_threads"] for pool in threadpool_info()} == {2}
    assert found and {*found} == {"1"}


def test_a_bundle_of_an_id_unit_passes(
    build: Callable[..., Any], tmp_path: Path, spec_text: str
) -> None:
    text = spec_text.replace(ROW, ID).replace("epsilon: 3\n", "epsilon: 8\n")
    assert verify_bundle(written(build(tmp_path, text))).ok


def test_a_bundle_of_an_earlier_looser_accountant_passes(
    build: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it states is above what its events compose to now: all its bounds still hold."""
    epsilon, profile = accounting.epsilon, accounting.delta_profile
    with monkeypatch.context() as earlier:
        earlier.setattr(accounting, "epsilon", lambda *a, **k: 1.01 * epsilon(*a, **k))
        earlier.setattr(
            accounting,
            "delta_profile",
            lambda *a, **k: tuple((e, min(1.0, 1.01 * d)) for e, d in profile(*a, **k)),
        )
        folder = written(build(tmp_path))
    assert verify_bundle(folder).ok


class TestFolder:
    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(VerifyError, match="is not a folder") as caught:
            verify_bundle(tmp_path / "nothing")
        assert caught.value.exit_code == 6

    @pytest.mark.parametrize("name", [*FILES, DEPLOYMENT])
    def test_any_changed_file(self, bundle: Path, name: str) -> None:
        with (bundle / name).open("ab") as file:
            file.write(b"\n")
        assert f"{name}: was changed" in problems(bundle, mended=False)

    def test_swapped_files(self, bundle: Path) -> None:
        a, b = bundle / "marginals.json", bundle / "graph.json"
        a.rename(bundle / "x"), b.rename(a), (bundle / "x").rename(b)
        found = problems(bundle, mended=False)
        assert "marginals.json: was changed" in found and "graph.json: was changed" in found
        assert "marginals.json: is not what it should be" in found
        assert "graph.json: not a graph" in found

    def test_missing_and_extra(self, bundle: Path) -> None:
        (bundle / "spec.yaml").unlink()
        (bundle / "notes.txt").write_text("x")
        (bundle / "sub").mkdir()
        found = problems(bundle, mended=False)
        assert "spec.yaml: is missing" in found
        assert "'notes.txt': does not belong" in found
        assert "'sub': a folder that does not belong" in found

    def test_links_and_devices_are_not_followed(self, bundle: Path) -> None:
        (bundle / "README.md").unlink()
        (bundle / "README.md").symlink_to("/etc/passwd")
        (bundle / "graph.json").unlink()
        os.mkfifo(bundle / "graph.json")
        found = problems(bundle, mended=False)
        assert "'README.md': is a link or a device" in found
        assert "'graph.json': is a link or a device" in found

    def test_linked_subfolder(self, bundle: Path, tmp_path: Path) -> None:
        shutil.move(bundle / "privacy", tmp_path / "elsewhere")
        (bundle / "privacy").symlink_to(tmp_path / "elsewhere")
        assert "'privacy': is a link" in problems(bundle, mended=False)

    @pytest.mark.parametrize(
        ("line", "match"),
        [
            ("0" * 64 + "  ../../etc/passwd", "'../../etc/passwd' is not a file of a bundle"),
            ("0" * 64 + "  /etc/passwd", "'/etc/passwd' is not a file of a bundle"),
            ("hello", "is not '<sha256>  <file>'"),
            ("0" * 64 + "  spec.yaml", "'spec.yaml' is listed twice"),
        ],
    )
    def test_checksum_lines(self, bundle: Path, line: str, match: str) -> None:
        with (bundle / SUMS).open("a") as file:
            file.write(line + "\n")
        assert match in problems(bundle, mended=False)

    def test_unlisted_file(self, bundle: Path) -> None:
        lines = (bundle / SUMS).read_text().splitlines()
        (bundle / SUMS).write_text("\n".join(x for x in lines if "graph.svg" not in x) + "\n")
        assert "graph.svg is not listed" in problems(bundle, mended=False)

    def test_all_problems_at_once(self, bundle: Path) -> None:
        replace(bundle / "synthetic.csv", "female", "martian")
        edit_json(bundle / CERTIFICATE, lambda c: c.update(epsilon=0.1))
        (bundle / "model.safetensors").write_bytes(b"\x80\x04x.")
        problems(bundle)
        with pytest.raises(VerifyError) as caught:
            verify_bundle(bundle)
        for words in (
            "synthetic.csv",
            "epsilon does not follow",
            "looks like a pickle",
            "do not use this bundle",
        ):
            assert words in str(caught.value)


def forge(content: Any) -> None:
    """A training with more noise than was added, and a hash that fits."""
    entry = content["entries"][2]
    entry["body"]["event"]["of"]["of"]["noise_multiplier"] = 50.0
    entry["hash"] = entry_hash(**{k: v for k, v in entry.items() if k != "hash"})


UNUSED = {
    "purpose": "graph: round 2",
    "mechanism": "tables",
    "event": {"event": "gaussian", "noise_multiplier": 3.0},
}
TOO_LITTLE = {"event": "gaussian", "noise_multiplier": 0.03}
DEARER = "epsilon 2.9 is more than that of the whole plan"
# What is changed in the certificate, and what is found.
FACTS: dict[str, tuple[Callable[[Any], object], tuple[str, ...]]] = {
    "epsilon above the spec": (
        lambda c: c.update(epsilon=7.0),
        ("epsilon 7 is more than the spec allows, 3",),
    ),
    # A search for the noise that it allows would not end.
    "a delta of one": (lambda c: c.update(delta=1), ("delta: Input should be less than 1",)),
    "a delta above one": (lambda c: c.update(delta=2.5), ("delta: Input should be less than 1",)),
    "more spent than all": (
        lambda c: c.update(epsilon_spent=2.9),
        (f"certificate.json: epsilon_spent: {DEARER}",),
    ),
    "a part that costs more than all": (
        lambda c: c["purposes"][-1].update(epsilon=2.9),
        (f"certificate.json: purpose 'train': {DEARER}",),
    ),
    "the epsilon of a purpose lowered": (
        lambda c: c["purposes"][0].update(epsilon=0.01),
        ("purposes does not follow",),
    ),
    "less than a test can reach": (
        lambda c: c.update(advantage=0.01),
        ("advantage does not follow from the spec, the plan and the ledger: says 0.01",),
    ),
    "other releases left out": (
        lambda c: c.update(balance=[1.5, 1e-5]),
        ("balance does not follow",),
    ),
    "a forecast made afterwards": (
        lambda c: c["expected"].update(tv1=0.01),
        ("expected does not follow",),
    ),
    "a forecast left out": (lambda c: c.pop("expected"), ("expected does not follow",)),
    "a forecast that is none": (lambda c: c["expected"].update(tv1=2), ("expected.tv1",)),
    "group bound lowered": (
        lambda c: c["groups"][2].update(joint_epsilon=1.5),
        ("groups of 3: epsilon 1.5 is below",),
    ),
    "group of one left out": (
        lambda c: c["groups"].pop(0),
        ("groups do not begin with one unit",),
    ),
    "unknown format": (lambda c: c.update(format=99), (f"format must be {FORMAT}",)),
    "extra fact": (lambda c: c.update(iso_certified=True), ("iso_certified: Extra inputs",)),
    "an audit on real rows": (
        lambda c: c.update(audit=audit_record(rows="real").model_dump(mode="json")),
        ("audit: was made on real rows", "audit: is of other spends than were planned"),
    ),
    "receipt missing": (
        lambda c: c["released"][0].update(receipts=[]),
        ("DATACARD.md has no receipt",),
    ),
    "receipt invented": (
        lambda c: c["released"][0].update(receipts=["f" * 64]),
        ("DATACARD.md has a receipt that is no charge",),
    ),
    # It lists less than was charged: its epsilon is above what is left.
    "planned look left out": (
        lambda c: c["planned"].pop(),
        (
            "ledger.json: 'train' is charged and was not planned",
            "ledger.json: the reservation was made for another plan",
            "purposes does not follow",
        ),
    ),
    "unused look must count": (
        lambda c: c["planned"].append(UNUSED),
        (
            "epsilon does not follow from the spec, the plan and the ledger: says 1.049",
            "epsilon_told does not follow from the spec, the plan and the ledger: says 1.22",
            "purposes does not follow",
            "groups of 1: epsilon 1.049",
            "is below what the planned events give",
            "ledger.json: the reservation was made for another plan",
        ),
    ),
    "a look planned twice": (
        lambda c: c["planned"].append(c["planned"][0]),
        ("ledger.json: a purpose is planned twice",),
    ),
    "a plan that cannot be composed": (
        lambda c: c["planned"][0].update(event=TOO_LITTLE),
        ("certificate.json: its charges spend far more than the spec allows",),
    ),
    **{
        f"another {key}": (
            lambda c, key=key, value=value: c.update({key: value}),  # type: ignore[misc]
            (f"certificate.json: {key} does not follow",),
        )
        for key, value in (
            ("delta", 1e-9),
            ("unit_meaning", "one person"),
            ("adjacency", "replace_one"),
            ("outside_gates", []),
            ("run", "run-2"),
            ("source", "sql"),
        )
    },
}
ENTRIES: dict[str, tuple[Callable[[Any], object], tuple[str, ...]]] = {
    "edited": (
        lambda c: c["entries"][1]["body"]["event"].update(count=2),
        ("entry 4 (charge) was changed",),
    ),
    "edited, with a fitting hash": (
        forge,
        (
            "entry 7 does not follow entry 6",
            "ledger.json: 'train' is charged with another event than was planned",
            "has a receipt that is no charge",
        ),
    ),
    "charge left out": (
        lambda c: c["entries"].pop(2),
        ("certificate.json: charges does not follow",),
    ),
    # Other runs leave gaps in a run's chain, so the settlement's count is what tells.
    "charge taken out": (
        lambda c: c["entries"].pop(1),
        ("the settlement counts 2 charges, and 1 are listed",),
    ),
    "reservation left out": (
        lambda c: (c["entries"].pop(2), c["entries"].pop(0)),
        ("a run is one reservation",),
    ),
    "of another run": (
        lambda c: c["entries"][0].update(run="run-9"),
        ("entry 3 is of another run",),
    ),
}
SPEC: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "mistakes": ("adjacency: add_remove", "adjacency: none_at_all", ("spec.yaml: 1 mistake",)),
    "places": (
        "path: visits.csv",
        "path: /home/steward/visits.csv",
        ("spec.yaml: holds paths",),
    ),
    "a unit charged for fewer rows": (
        "    kind: row\n",
        "    kind: id\n    column: person\n    max_rows: 3\n",
        (
            "measure: a table was planned for 1 rows of a unit; it may have 3",
            "train: training was planned for one row of a unit; it may have 3",
        ),
    ),
}


class TestPrivacyClaims:
    @pytest.mark.parametrize("name", FACTS)
    def test_a_changed_certificate(self, bundle: Path, name: str) -> None:
        change, says = FACTS[name]
        edit_json(bundle / CERTIFICATE, change)
        found = problems(bundle)
        assert all(words in found for words in says), found

    @pytest.mark.parametrize("name", ENTRIES)
    def test_a_changed_ledger(self, bundle: Path, name: str) -> None:
        change, says = ENTRIES[name]
        edit_json(bundle / LEDGER, change)
        found = problems(bundle)
        assert all(words in found for words in says), found

    @pytest.mark.parametrize("name", SPEC)
    def test_a_changed_spec(self, bundle: Path, name: str) -> None:
        old, new, says = SPEC[name]
        replace(bundle / "spec.yaml", old, new)
        found = problems(bundle)
        assert all(words in found for words in says), found

    def test_epsilon_lowered_in_the_certificate_and_its_text(self, bundle: Path) -> None:
        edit_json(bundle / CERTIFICATE, lambda c: c.update(epsilon=0.5))
        text = render(Certificate.model_validate_json((bundle / CERTIFICATE).read_text()))
        (bundle / "privacy/certificate.md").write_text(text)
        assert (
            "certificate.json: epsilon does not follow from the spec, the plan and the ledger: says"
            " 0.5, should be 1.049" in problems(bundle)
        )

    def test_more_spent_than_allowed(
        self, build: Callable[..., Any], tmp_path: Path, spec_text: str
    ) -> None:
        release = build(tmp_path, spec_text.replace("epsilon: 3\n", "epsilon: 0.98\n"))
        assert "its planned events compose to epsilon 1.049" in problems(written(release))

    @pytest.mark.parametrize("kind", ["discrete_gaussian", "rounded_gaussian"])
    def test_tables_of_units_of_several_rows_charged_as_one(
        self, kind: str, build: Callable[..., Any], tmp_path: Path, spec_text: str
    ) -> None:
        """The charge itself states one row: a plan that forgets the others is refused, whatever its
        noise.
        """
        folder = written(build(tmp_path, spec_text.replace(ROW, ID)))
        verify_bundle(folder)
        own = {"event": kind, "sensitivity": 1}
        edit_json(folder / CERTIFICATE, lambda c: c["planned"][0]["event"]["of"].update(own))
        says = "measure: a table was planned for 1 rows of a unit; it may have 2"
        assert says in problems(folder)


class TestContent:
    @pytest.mark.parametrize(
        ("old", "new", "column"),
        [
            ("female,", "martian,", "sex"),
            ("female,", ",", "sex"),
            (",yes,", ",true,", "smoker"),
            (",19,", ",41,", "visits"),
            (",19,", ",19.0,", "visits"),
            (",172.0,", ",1e9,", "weight"),
            (",172.0,", ",nan,", "weight"),
            (",1966-12-04,", ",1812-12-04,", "born"),
            (",1966-12-04,", ",04.12.1966,", "born"),
            (",1966-12-04,", ",,", "born"),
        ],
    )
    def test_value_outside_the_domain(self, bundle: Path, old: str, new: str, column: str) -> None:
        path = bundle / "synthetic.csv"
        line = "female,1,I,yes,19,172.0,1966-12-04,\n"
        rows = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*rows[:5], line, *rows[6:]]))
        assert "synthetic.csv: " not in problems(bundle)
        path.write_text("".join([*rows[:5], line.replace(old, new), *rows[6:]]))
        assert (
            f"synthetic.csv: column {column!r}: 1 values are not in the declared domain"
            in problems(bundle)
        )

    def test_rows_and_header(self, bundle: Path) -> None:
        path = bundle / "synthetic.csv"
        rows = path.read_text().splitlines(keepends=True)
        path.write_text("".join(rows[:-1]))
        assert "synthetic.csv: has 199 rows; the spec says 200" in problems(bundle)
        path.write_text("".join(["grade,sex,smoker,visits,weight,born,seen\n", *rows[1:]]))
        assert "synthetic.csv: its header is not the spec's columns" in problems(bundle)
        for surplus in (",surplus", "," * 200_000):  # the second took verify 8 seconds
            path.write_text("".join([rows[0], rows[1].rstrip() + surplus + "\n", *rows[2:]]))
            assert "synthetic.csv: a row has more fields than the header" in problems(bundle)
        path.write_text("".join([*rows[:2], rows[2].rstrip() + ",surplus\n", *rows[3:]]))
        assert problems(bundle)

    @pytest.mark.parametrize(
        "content", [b"", b"\xff\xfe\x00", b"\x00" * 100, b'"' * 50, b"a\n" * 10]
    )
    def test_table_that_is_none(self, bundle: Path, content: bytes) -> None:
        (bundle / "synthetic.csv").write_bytes(content)
        assert "synthetic.csv: " in problems(bundle)

    def test_cyclic_graph(self, bundle: Path) -> None:
        back = {"from": "visits", "to": "sex", "directed": True, "provenance": "given"}
        edit_json(bundle / "graph.json", lambda c: c["edges"].append(back))
        assert "graph.json: " in problems(bundle) and "cycle" in problems(bundle)

    def test_other_graph(self, bundle: Path) -> None:
        edit_json(bundle / "graph.json", lambda c: c["edges"].pop())
        found = problems(bundle)
        assert "graph.json: its arrows are not the spec's" in found
        assert "model.json: the parents of 'smoker'" in found
        edit_json(bundle / "graph.json", lambda c: c["nodes"].append("x"))
        assert "graph.json: its nodes are not the spec's columns" in problems(bundle)

    @pytest.mark.parametrize(
        "code",
        [
            "<script>alert(1)</script>",
            '<a href="https://x">',
            '<g onload="x()"/>',
            '<!DOCTYPE a [<!ENTITY b "c">]>',
        ],
    )
    def test_picture_with_code(self, bundle: Path, code: str) -> None:
        replace(bundle / "graph.svg", "</svg>", f"{code}</svg>")
        assert "graph.svg: holds a script" in problems(bundle)

    def test_noisy_counts(self, bundle: Path) -> None:
        path = bundle / "marginals.json"
        edit_json(path, lambda c: c["tables"][0].update(sigma=1.0))
        assert "marginals.json: claims less noise than" in problems(bundle)
        edit_json(path, lambda c: c["tables"][0].update(sigma=0))
        assert "sigma must be above 0" in problems(bundle)
        edit_json(path, lambda c: c["tables"][0].update(columns=["age"]))
        assert "marginals.json: table age: is not over the spec's columns" in problems(bundle)
        edit_json(path, lambda c: c["tables"][1]["counts"].pop())
        assert "marginals.json: table grade, smoker: its shape is not [4, 2]" in problems(bundle)

    @pytest.mark.parametrize(
        "text",
        [
            '{"tables": [NaN]}',
            '{"tables": [], "tables": []}',
            "[" * 100_000,
            "",
            "[]",
            '{"tables": 3}',
        ],
    )
    def test_json_that_is_none(self, bundle: Path, text: str) -> None:
        (bundle / "marginals.json").write_text(text)
        assert "marginals.json: is not what it should be" in problems(bundle)

    def test_pickle_posing_as_model_never_runs(self, bundle: Path, tmp_path: Path) -> None:
        proof = tmp_path / "it-ran"
        (bundle / "model.safetensors").write_bytes(f"cos\nsystem\n(S'touch {proof}'\ntR.".encode())
        assert "model.safetensors: is not a safetensors file; it looks like a pickle" in problems(
            bundle
        )
        assert not proof.exists()

    def test_model_with_other_tensors(self, bundle: Path) -> None:
        from safetensors.numpy import load_file, save_file

        weights = load_file(bundle / "model.safetensors")
        name = sorted(weights)[0]
        save_file({**weights, name: weights[name][:-1].copy()}, bundle / "model.safetensors")
        assert f"tensors and shapes are not those of model.json: {name}" in problems(bundle)
        save_file(
            {**weights, name: np.full_like(weights[name], np.nan)}, bundle / "model.safetensors"
        )
        assert f"model.safetensors: {name} holds NaN" in problems(bundle)

    def test_model_of_another_domain(self, bundle: Path) -> None:
        edit_json(bundle / "model.json", lambda c: c["architecture"]["sizes"].reverse())
        assert "model.json: columns or levels are not the spec's" in problems(bundle)
