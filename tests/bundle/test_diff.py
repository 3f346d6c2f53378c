"""`synthdp diff`: what a second bundle is, compared with a first, and that neither is believed
before it was verified.
"""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.bundle import write_bundle
from synthdp.data import Domain, decode
from synthdp.errors import VerifyError
from synthdp.evaluate.fidelity import nearest_distribution
from synthdp.spec import load_spec
from synthdp.verify.diff import (
    BundleDifference,
    Difference,
    Distance,
    PooledTable,
    Sides,
    _noise_of,
    apart,
    common_levels,
    compare,
    distances,
    references,
)


def finding(found: BundleDifference, what: str) -> Difference:
    (one,) = [f for f in found.findings if what in f.what]
    return one


@pytest.fixture
def other(
    build: Callable[..., Any], tmp_path: Path, spec_text: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """A second bundle: of a changed spec, with other noise in its tables, or with other content."""

    def write(*changes: tuple[str, str], sigma: float | None = None, **content: Any) -> Path:
        text = spec_text
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        if sigma is not None:
            monkeypatch.setitem(build.__globals__, "SIGMA", sigma)  # type: ignore[attr-defined]
        release = build(tmp_path, text)
        new = dataclasses.replace(
            release.content, **{k: make(release) for k, make in content.items()}
        )
        return write_bundle(tmp_path / "other", new, ledger=release.ledger, force=False)

    return write


def nearer(release: Any) -> Any:
    """Rows that are drawn from the noisy one-way table of visits."""
    domain = Domain.from_spec(release.spec.columns)
    (table,) = [t for t in release.content.tables.value if t.columns == ("visits",)]
    shares = np.clip(table.counts, 0, None) / np.clip(table.counts, 0, None).sum()

    def drawn(frame: Any) -> Any:
        rng = np.random.default_rng(1)
        codes = np.column_stack([rng.integers(0, size, 200) for size in domain.sizes]).astype(
            np.uint16
        )
        codes[:, domain.index("visits")] = rng.choice(len(shares), 200, p=shares)
        return decode(domain, codes, rng=rng)

    return release.content.synthetic.map(drawn)


class TestVerdicts:
    def test_a_bundle_is_the_same_as_itself(self, made: Path) -> None:
        found = compare(made, made)
        assert {f.verdict for f in found.findings} == {"same"} and found.graph.same
        assert {f.topic for f in found.findings} == {"budget", "graph", "table", "quality"}

    @pytest.mark.check
    def test_more_noise_is_a_better_guarantee(self, made: Path, other: Callable[..., Path]) -> None:
        found = compare(made, other(sigma=24.0))
        assert (
            finding(found, "delta at epsilon").verdict
            == finding(found, "groups of 3").verdict
            == "better"
        )
        epsilon = next(f for f in found.findings if f.what == "epsilon")
        assert epsilon.verdict == "better" and float(epsilon.b or 9) < float(epsilon.a or 0)
        turned = compare(found.b, made)
        assert (
            next(f for f in turned.findings if f.what == "epsilon").verdict
            == finding(turned, "delta at epsilon").verdict
            == "worse"
        )

    def test_other_promises_are_not_compared(self, made: Path, other: Callable[..., Path]) -> None:
        found = compare(made, other(("meaning: one visit", "meaning: one person")))
        assert finding(found, "unit meaning").verdict == "different"
        told = {f.why for f in found.findings if f.verdict == "not comparable"}
        assert finding(found, "delta at epsilon").verdict == "not comparable"
        assert told == {"another unit is protected"}
        assert next(f for f in found.findings if f.what == "epsilon").verdict == "not comparable"

    def test_other_deltas_leave_the_whole_trade_off(
        self, made: Path, other: Callable[..., Path]
    ) -> None:
        found = compare(made, other(("delta: 1e-5", "delta: 1e-6")))
        assert next(f for f in found.findings if f.what == "epsilon").verdict == "not comparable"
        assert finding(found, "delta at epsilon").verdict == "same"

    def test_graph(self, made: Path, other: Callable[..., Path]) -> None:
        found = compare(made, other(('"smoker -> visits"', '"visits -> weight"')))
        links = finding(found, "links")
        assert links.verdict == "different"
        assert links.why == "1 added, 1 removed, 0 turned; 2 in common"
        assert found.to_json()["graph"]["added"][0]["from"] == "visits"

    def test_quality_is_held_to_what_was_measured(
        self,
        made: Path,
        other: Callable[..., Path],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(
            "synthdp.verify.diff.verify_bundle", lambda bundle, **rest: None
        )  # so near are no rows of this model
        second = other(synthetic=nearer)
        found = compare(made, second)
        assert finding(found, "noisy 1-way").verdict == "better"
        assert finding(compare(second, made), "noisy 1-way").verdict == "worse"
        assert finding(found, "between the two").verdict == "different"
        assert 0 < float(finding(found, "between the two").b or 0) < 0.2
        folders = [
            Path(shutil.copytree(b, tmp_path / name)) for b, name in ((made, "a"), (second, "b"))
        ]
        for folder in folders:  # the same tables, as if they were hardly measured
            text = (folder / "marginals.json").read_text()
            (folder / "marginals.json").write_text(text.replace('"sigma": 12.0', '"sigma": 200.0'))
        domain = Domain.from_spec(load_spec(made / "spec.yaml").columns)
        assert [
            next(distances(Sides.read(*pair, domain))).verdict for pair in (folders, folders[::-1])
        ] == [
            "same",
            "same",
        ]

    def test_columns_with_other_bounds_are_left_out(
        self, made: Path, other: Callable[..., Path]
    ) -> None:
        found = compare(made, other(("upper: 40", "upper: 50")))
        assert finding(found, "columns").why == "declared otherwise: visits"
        near = finding(found, "noisy 1-way")
        assert "only of columns with the same levels" in near.why and "1 tables" in near.why
        assert "left out, other levels: visits" in finding(found, "between the two").why

    def test_other_bins_are_compared_on_those_that_both_have(
        self, made: Path, other: Callable[..., Path]
    ) -> None:
        second = other(("edges: [0, 5, 10]", "edges: [0, 5, 7, 20]"))
        between = finding(compare(made, second), "between the two")
        assert "on the bins that both have: visits" in between.why
        domains = [Domain.from_spec(load_spec(b / "spec.yaml").columns) for b in (made, second)]
        common = common_levels(*domains)
        assert common.merged == ("visits",) and not common.apart
        assert common.starts["visits"] == ((0, 1, 2, 4), (0, 1, 2, 5))  # 0, 1-4, 5-40, missing
        counted = []
        for folder in (made, second):
            visits = pd.read_csv(folder / "synthetic.csv", keep_default_na=False)["visits"]
            group = visits.map(lambda v: "missing" if v == "" else v if v == "0" else int(v) >= 5)
            counted.append(group.value_counts(normalize=True))
        own = float(counted[0].sub(counted[1], fill_value=0).abs().sum()) / 2
        alone = [
            dataclasses.replace(d, columns=tuple(c for c in d.columns if c.name == "visits"))
            for d in domains
        ]
        assert apart(Sides.read(made, second, *alone)) == pytest.approx(own)

    def test_bounds_that_differ_by_less_than_a_thousandth_are_the_same(self, made: Path) -> None:
        from synthdp.verify import diff

        opened = diff.open_verified(made)
        for factor, verdict in ((0.9995, "same"), (1.0005, "same"), (0.99, "better")):
            stated = opened.certificate.model_copy(
                update={"epsilon": opened.certificate.epsilon * factor}
            )
            changed = dataclasses.replace(opened, certificate=stated)
            (epsilon,) = [f for f in diff._budget(opened, changed) if f.what == "epsilon"]
            assert epsilon.verdict == verdict


class TestDistances:
    def test_pooling_is_by_inverse_variance(self) -> None:
        a, b = (
            {("x",): PooledTable(np.array([10.0, 0.0]), 1.0)},
            {("x",): PooledTable(np.array([0.0, 10.0]), 2.0), ("y",): PooledTable(np.ones(3), 1.0)},
        )
        pooled = references(a, b)
        np.testing.assert_allclose(pooled["x",].counts, [8, 2])
        assert pooled["x",].sigma == pytest.approx(0.8**0.5) and pooled["y",] is b["y",]

    def test_the_noise_of_a_difference_is_that_of_measuring_again(self) -> None:
        rng, n, sigma = np.random.default_rng(5), 1000, 40.0
        true, shares = (
            np.array([0.4, 0.3, 0.2, 0.1]),
            [{("x",): np.full(4, 0.25)}, {("x",): np.array([0.3, 0.35, 0.2, 0.15])}],
        )
        noisy = [nearest_distribution(n * true + rng.normal(0, sigma, 4)) for _ in range(4000)]
        spread = np.std(
            [
                np.abs(shares[1]["x",] - t).sum() / 2 - np.abs(shares[0]["x",] - t).sum() / 2
                for t in noisy
            ]
        )
        assert _noise_of(shares, {("x",): PooledTable(n * true, sigma)}) == pytest.approx(
            spread, rel=0.3
        )

    def test_a_difference_within_the_noise_is_none(self) -> None:
        verdicts = [
            Distance(1, 5, 0.10, 0.10 + d, 0.01).verdict for d in (-0.03, -0.019, 0.0, 0.019, 0.03)
        ]
        assert verdicts == ["better", "same", "same", "same", "worse"]

    def test_distance_by_hand(self, made: Path) -> None:
        spec = load_spec(made / "spec.yaml")
        (one_way, two_way) = distances(Sides.read(made, made, Domain.from_spec(spec.columns)))
        assert (one_way.tables, two_way.tables, two_way.ways) == (2, 1, 2)
        tables = {
            tuple(t["columns"]): t
            for t in json.loads((made / "marginals.json").read_text())["tables"]
        }
        counts = np.clip(
            np.array(tables["sex",]["counts"], float), 0, None
        )  # none of it is below 0, so that no projection is needed
        frame = pd.read_csv(made / "synthetic.csv", keep_default_na=False)
        share = [(frame["sex"] == v).mean() for v in ("female", "male", "no")]
        sex = np.abs(counts / counts.sum() - share).sum() / 2
        assert min(tables["sex",]["counts"]) > 0
        assert one_way.a == one_way.b
        assert sex / 2 <= one_way.a <= (sex + 1) / 2


class TestCommand:
    def test_text_and_json(self, made: Path, synthdp: Any) -> None:
        text = synthdp("diff", made, made).out
        assert "both verified; the verdict is of B" in text
        assert "distance to noisy 1-way tables" in text
        assert "same" in text
        facts = json.loads(synthdp("diff", made, made, "--json").out)
        assert facts["a"] == str(made)
        assert {f["verdict"] for f in facts["findings"]} == {"same"}
        assert facts["graph"]["same"]

    @pytest.mark.parametrize("which", [0, 1])
    def test_a_spoiled_bundle_is_not_compared(
        self, made: Path, tmp_path: Path, which: int, synthdp: Any
    ) -> None:
        spoiled = Path(shutil.copytree(made, tmp_path / "spoiled"))
        path = spoiled / "privacy/certificate.json"
        path.write_text(path.read_text().replace('"epsilon": 1.', '"epsilon": 0.', 1))
        pair = [spoiled, made] if which == 0 else [made, spoiled]
        with pytest.raises(VerifyError, match=r"spoiled: \d+ problems"):
            compare(*pair)
        printed = synthdp("diff", *pair)
        assert printed.code == 6 and printed.out == "" and "certificate.json" in printed.err
