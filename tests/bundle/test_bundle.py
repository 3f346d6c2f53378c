"""What may cross into a bundle, how it is written, and that other tools accept it."""

import csv
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.bundle import (
    DEPLOYMENT,
    FILES,
    WrittenFile,
    check_target,
    csv_lines,
    descriptor,
    public_spec,
    spec_yaml,
    write_bundle,
    write_csv,
)
from synthdp.errors import BoundaryError, OutputError, VerifyError
from synthdp.files import SUMS
from synthdp.graph import CausalGraph
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.private import _KERNEL_KEY, Confidential, Receipt, Released
from synthdp.spec import load_spec, parse_spec
from synthdp.spec.model import Categorical, ReleaseSpec


def _write(release: Any, *, force: bool = False, **changes: Any) -> Path:
    return write_bundle(
        release.folder / "bundle",
        replace(release.content, **changes),
        ledger=release.ledger,
        force=force,
    )


def test_bundle_holds_exactly_its_files_and_sha256sum_accepts_them(made: Path) -> None:
    found = {p.relative_to(made).as_posix() for p in made.rglob("*") if p.is_file()}
    assert found == {*FILES, DEPLOYMENT, SUMS}  # no key, hence no statement
    checked = subprocess.run(
        ["sha256sum", "-c", "--strict", SUMS], cwd=made, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0 and checked.stdout.count(": OK") == len(FILES) + 1
    assert not [
        p for p in made.parent.iterdir() if p.name.startswith(".bundle")
    ]  # no draft is left behind
    assert all(p.stat().st_mode & 0o444 == 0o444 for p in made.rglob("*"))


class TestBoundary:
    """Nothing is written unless everything from rows was paid for."""

    def _refused(
        self, release: Any, match: str, error: type[Exception] = BoundaryError, **changes: Any
    ) -> None:
        with pytest.raises(error, match=match):
            _write(release, **changes)
        assert not (release.folder / "bundle").exists()

    def test_confidential_is_refused(self, release: Any) -> None:
        confidential = Confidential(release.content.synthetic.value, "utility", key=_KERNEL_KEY)
        self._refused(release, "synthetic is Confidential, not Released", synthetic=confidential)

    @pytest.mark.parametrize("name", ["synthetic", "model", "tables"])
    def test_bare_values_are_refused(self, release: Any, name: str) -> None:
        self._refused(
            release, f"{name} is .*not Released", **{name: getattr(release.content, name).value}
        )

    def test_confidential_inside_released_is_refused(self, release: Any) -> None:
        hidden = release.content.synthetic.map(
            lambda frame: Confidential(frame, "x", key=_KERNEL_KEY)
        )
        self._refused(release, "synthetic holds Confidential", synthetic=hidden)
        self._refused(
            release, "must be NoisyTable", tables=release.content.tables.map(lambda t: (*t, hidden))
        )

    def test_look_alike_of_released_is_refused(self, release: Any) -> None:
        class Fake:
            value, receipts = release.content.synthetic.value, release.content.synthetic.receipts

        self._refused(release, "is Fake, not Released", synthetic=Fake())

    def test_no_receipt(self, release: Any) -> None:
        self._refused(
            release,
            "carries no receipt",
            model=Released(release.content.model.value, frozenset(), key=_KERNEL_KEY),
        )

    @pytest.mark.parametrize(
        ("receipt", "match"),
        [
            (Receipt("run-1", "f" * 64), "no such charge"),
            (Receipt("run-0", "f" * 64), "of run run-0"),
        ],
    )
    def test_receipt_not_in_the_ledger(self, release: Any, receipt: Receipt, match: str) -> None:
        self._refused(
            release,
            match,
            tables=Released(release.content.tables.value, frozenset({receipt}), key=_KERNEL_KEY),
        )

    def test_receipt_of_an_entry_that_is_no_charge(self, release: Any) -> None:
        reserve = next(e for e in release.ledger.run_entries("run-1") if e.kind == "reserve")
        receipts = frozenset({Receipt("run-1", reserve.hash)})
        self._refused(
            release,
            "no such charge",
            tables=Released(release.content.tables.value, receipts, key=_KERNEL_KEY),
        )

    def test_edited_ledger_on_disk(self, release: Any) -> None:
        import sqlite3

        with sqlite3.connect(release.folder / "ledger.db") as database:
            database.execute(
                "UPDATE synthdp_ledger SET body = replace(body, '12.0', '99.0') WHERE kind ="
                " 'charge'"
            )
        database.close()
        self._refused(release, "tampered", VerifyError)

    def test_scores_must_be_charged_and_released(self, release: Any) -> None:
        scores = Released((), release.content.synthetic.receipts, key=_KERNEL_KEY)
        self._refused(
            release, "scores must be there where .* charged, and nowhere else", scores=scores
        )
        spec = release.spec.model_copy(
            update={
                "evaluation": release.spec.evaluation.model_copy(update={"disclosure": "private"})
            }
        )
        self._refused(release, "scores must be there where", spec=spec)
        self._refused(
            release,
            "scores is Confidential, not Released",
            spec=spec,
            scores=Confidential((), "judging", key=_KERNEL_KEY),
        )
        exact = scores.map(lambda none: ({"name": "tv1", "value": 0.01},))
        self._refused(release, "must be ChargedScore", spec=spec, scores=exact)

    def test_learned_graph_must_be_released(self, release: Any) -> None:
        text = (
            spec_yaml(release.spec)
            .replace("mode: given", "mode: learn")
            .replace("graph: 0.0", "graph: 0.1")
            .replace("train: 0.8", "train: 0.7")
        )
        spec = parse_spec(text, path="s")
        self._refused(release, "graph is CausalGraph, not Released", spec=spec)
        graph = Released(release.content.graph, release.content.synthetic.receipts, key=_KERNEL_KEY)
        folder = _write(release, spec=spec, graph=graph)
        released = json.loads((folder / "privacy" / "certificate.json").read_text())["released"]
        assert {"graph.json", "graph.svg"} <= {r["file"] for r in released}

    def test_graph_with_arrows_from_data_is_refused_as_plain(self, release: Any) -> None:
        edges = release.content.graph.edges
        learned = CausalGraph(
            release.content.graph.nodes, (replace(edges[0], provenance="learned"), *edges[1:])
        )
        self._refused(release, "graph is CausalGraph, not Released", graph=learned)

    def test_rows_other_than_the_specs(self, release: Any) -> None:
        self._refused(
            release, "200 rows", synthetic=release.content.synthetic.map(lambda f: f.iloc[:-1])
        )
        self._refused(
            release,
            "exactly the spec's columns",
            synthetic=release.content.synthetic.map(lambda f: f.assign(secret=1)),
        )


class TestFolder:
    """Whole or not at all, and never over something else."""

    def test_existing_bundle_needs_force(self, release: Any) -> None:
        folder = _write(release)
        before = (folder / "synthetic.csv").read_bytes()
        with pytest.raises(OutputError, match=r"already holds a bundle[\s\S]*--force"):
            _write(release)
        assert (folder / "synthetic.csv").read_bytes() == before
        _write(release, force=True)
        assert (folder / "synthetic.csv").read_bytes() != before  # rows are in another order
        assert sorted(p.name for p in release.folder.iterdir()) == ["bundle", "ledger.db"]

    def test_force_never_replaces_what_is_no_bundle(self, release: Any) -> None:
        (release.folder / "bundle").mkdir()
        (release.folder / "bundle" / "thesis.tex").write_text("years of work")
        with pytest.raises(OutputError, match="not a bundle"):
            _write(release, force=True)
        assert (release.folder / "bundle" / "thesis.tex").exists()

    def test_file_or_link_as_target(self, release: Any) -> None:
        (release.folder / "bundle").write_text("x")
        with pytest.raises(OutputError, match="not a folder"):
            _write(release, force=True)
        (release.folder / "bundle").unlink()
        (release.folder / "bundle").symlink_to(release.folder)
        with pytest.raises(OutputError, match="not a folder"):
            _write(release, force=True)

    def test_failure_midway_leaves_nothing(
        self, release: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("synthdp.bundle.write.as_json", full)
        with pytest.raises(OutputError, match="No space left"):
            _write(release)
        assert [p.name for p in release.folder.iterdir()] == ["ledger.db"]

    def test_failed_replacement_keeps_the_old_bundle(
        self, release: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = _write(release)
        real = os.replace

        def fails(source: Any, target: Any) -> None:
            if ".partial-" in str(source):
                raise OSError(5, "Input/output error")
            real(source, target)

        monkeypatch.setattr(os, "replace", fails)
        with pytest.raises(OutputError, match="Input/output error"):
            _write(release, force=True)
        assert (folder / SUMS).exists()
        assert sorted(p.name for p in release.folder.iterdir()) == [
            "bundle",
            "ledger.db",
        ]

    def test_unwritable_parent(self, release: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            os, "access", lambda *_: False
        )  # root may write anywhere, so ask as someone who may not
        with pytest.raises(OutputError, match="cannot be written"):
            check_target(release.folder / "bundle", force=False)

    def test_parent_that_is_a_file(self, release: Any) -> None:
        with pytest.raises(OutputError, match="cannot be written"):
            write_bundle(
                release.folder / "ledger.db" / "bundle",
                release.content,
                ledger=release.ledger,
                force=False,
            )

    def test_model_that_writes_more_is_refused(self, release: Any) -> None:
        class Greedy:
            def save(self, folder: Path) -> None:
                (folder / "model.pkl").write_bytes(b"x")

        with pytest.raises(BoundaryError, match=r"model wrote model\.pkl"):
            _write(release, model=release.content.model.map(lambda _: Greedy()))
        assert not (release.folder / "bundle").exists()


class TestContent:
    """The files say what the release says, and no more."""

    def test_csv_is_the_frame_in_another_order(
        self, made: Path, build: Callable[..., Any], tmp_path: Path
    ) -> None:
        frame = build(tmp_path).content.synthetic.value
        read = pd.read_csv(
            made / "synthetic.csv",
            dtype={"grade": "str"},
            keep_default_na=False,
            na_values=[""],
            parse_dates=["born", "seen"],
        )
        assert list(read.columns) == list(frame.columns)
        assert not read["weight"].equals(frame["weight"])
        key = ["weight", "born", "sex"]
        a, b = (t.sort_values(key).reset_index(drop=True) for t in (read, frame))
        for name in frame.columns:
            same = (a[name].astype(object) == b[name].astype(object)) | (
                a[name].isna() & b[name].isna()
            )
            assert same.all(), name
        raw = (made / "synthetic.csv").read_bytes()
        assert b"\r" not in raw and raw.endswith(b"\n")

    def test_csv_quotes_what_must_be(self, tmp_path: Path) -> None:
        labels = ("a,b", 'say "x"', "'", " space ", "é", ";")
        column = Categorical(type="categorical", categories=labels, missing=True)
        frame = pd.DataFrame({"x, y": [*labels, None]}, dtype="str")
        write_csv(frame, {"x, y": column}, tmp_path / "t.csv")
        with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
            assert list(csv.reader(file)) == [["x, y"], *([v] for v in labels), [""]]

    @pytest.mark.parametrize("columns", [["text"], ["whole", "real", "some", "yes", "text"]])
    def test_csv_is_to_the_byte_what_pandas_writes(self, columns: list[str]) -> None:
        texts = ("a", "b, c", 'd "e"', "f\ng", "h", " ", "é", None)
        frame = pd.DataFrame(
            {
                "whole": range(-4, 4),
                "real": [0.1, -0.0, 1e-7, 1e16, 123456.75, 5e-324, 2.0, None],
                "some": pd.array([1, None] * 4, dtype="Int64"),
                "yes": [True, False, None, True] * 2,
                "text": pd.Series(texts, dtype="str"),
            }
        )[columns]
        for rows in (frame, frame[:1], frame[:0]):
            assert csv_lines(rows) == rows.to_csv(index=False, header=False, lineterminator="\n")

    def test_spec_reloads_to_the_public_spec_and_leaves_secrets_out(
        self, made: Path, release: Any
    ) -> None:
        text = (made / "spec.yaml").read_text()
        assert parse_spec(text, path="spec.yaml") == public_spec(release.spec)
        everything = b"".join(p.read_bytes() for p in made.rglob("*") if p.is_file())
        private = (
            b"secret-folder",
            b"/home",
            b"ledger.db",
            b"password",
            b"tracking.internal",
            b"CLINIC_SIGNING_KEY",
        )
        for secret in (*private, str(release.folder).encode()):
            assert secret not in everything

    @pytest.mark.parametrize(
        ("source", "published"),
        [
            (
                '{kind: sql, url_env: CLINIC_DB, query: "SELECT * FROM secret"}',
                {"kind": "sql", "url_env": "WITHHELD", "query": "withheld"},
            ),
            (
                r"{kind: parquet, path: 'C:\data\v.parquet\', drop: [name], rename: {s: sex}}",
                {
                    "kind": "parquet",
                    "path": "v.parquet",
                    "levels_only": False,
                    "drop": (),
                    "rename": {},
                },
            ),
            ("{kind: builtin, name: synthetic}", {"kind": "builtin", "name": "synthetic"}),
        ],
    )
    def test_sources_are_published_without_places(
        self, release: Any, source: str, published: dict[str, object]
    ) -> None:
        text = spec_yaml(release.spec)
        start, end = text.index("  source:"), text.index("  privacy_unit:")
        public = public_spec(
            parse_spec(f"{text[:start]}  source: {source}\n{text[end:]}", path="s")
        )
        assert public.dataset.source.model_dump() == published
        assert parse_spec(spec_yaml(public), path="s") == public == public_spec(public)

    def test_marginals_are_the_noisy_tables(self, made: Path, release: Any) -> None:
        written = json.loads((made / "marginals.json").read_text())["tables"]
        for stated, table in zip(written, release.content.tables.value, strict=True):
            assert tuple(stated["columns"]) == table.columns and stated["sigma"] == table.sigma
            np.testing.assert_array_equal(
                np.reshape(stated["counts"], stated["shape"]), table.counts
            )

    def test_averaged_tables_keep_their_fractions(self, release: Any) -> None:
        tables = release.content.tables.map(
            lambda _: (NoisyTable(("sex",), np.array([1.5, -2.0, 3.0]), 12.0),)
        )
        folder = _write(release, tables=tables)
        assert json.loads((folder / "marginals.json").read_text())["tables"][0]["counts"] == [
            1.5,
            -2,
            3,
        ]


def test_frictionless_accepts_the_package(made: Path) -> None:
    import frictionless

    package = frictionless.Package(str(made / "datapackage.json"))
    report = package.validate()
    assert report.valid, report.flatten(["rowNumber", "fieldName", "note"])[:5]
    assert report.stats["tasks"] == 1 and package.resources[0].schema.field_names[0] == "sex"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        rows = package.resources[0].read_rows()
    assert len(rows) == 200 and isinstance(rows[0]["smoker"], bool)


@pytest.mark.parametrize(("old", "new"), [(b"female", b"martian"), (b",yes,", b",maybe,")])
def test_frictionless_refuses_a_value_outside_the_domain(
    made: Path, tmp_path: Path, old: bytes, new: bytes
) -> None:
    import frictionless

    shutil.copytree(made, tmp_path / "b")
    table, package = tmp_path / "b" / "synthetic.csv", tmp_path / "b" / "datapackage.json"
    table.write_bytes(table.read_bytes().replace(old, new, 1))
    content = json.loads(package.read_text())
    del content["resources"][0]["hash"], content["resources"][0]["bytes"]
    package.write_text(json.dumps(content))
    errors = frictionless.Package(str(package)).validate().flatten(["note"])
    assert len(errors) == 1 and ("enum" in errors[0][0] or "boolean" in errors[0][0])


def test_spec_yaml_roundtrips_awkward_texts() -> None:
    text = """
synthdp: 1
dataset:
  id: x
  title: "a: b #c"
  source: {kind: builtin, name: synthetic}
  privacy_unit: {kind: id, column: "no", max_rows: 3, meaning: "yes"}
  rows: {kind: approximate, value: 5000}
columns:
  "null": {type: categorical, categories: ["no", "1e-5", "~", "2020-01-01", "é \\" '", " x", "a,b", "1_000"]}
  "1": {type: number, lower: -1e-7, upper: 1e22, spikes: [0.1], decimals: 12}
  y: {type: datetime, lower: 2020-01-01, upper: 2021-01-01, edges: [2020-01-01, 2020-06-01]}
privacy: {epsilon: 1, delta: 1e-7}
"""  # noqa: E501
    spec: ReleaseSpec = public_spec(parse_spec(text, path="s"))
    assert parse_spec(spec_yaml(spec), path="s") == spec


@pytest.mark.parametrize(
    ("title", "told"),
    [
        ("Adult", "Adult (synthetic)"),
        ("Adult, synthetic", "Adult, synthetic"),
        ("Adult (Synthetic)", "Adult (Synthetic)"),
        (None, "adult (synthetic)"),
    ],
)
def test_a_title_says_once_that_the_table_is_synthetic(title: str | None, told: str) -> None:
    spec = load_spec(Path(__file__).parents[2] / "specs" / "adult.yaml")
    dataset = spec.dataset.model_copy(update={"title": title})
    assert (
        descriptor(
            spec.model_copy(update={"dataset": dataset}), run="r", csv=WrittenFile("table", 1, "0")
        )["title"]
        == told
    )
