"""A release with a prior: what it says, what `verify` finds, and which priors are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from synthdp import Spec
from synthdp.bundle import level_law, sha256
from synthdp.data import Domain
from synthdp.errors import BudgetError, DataError, SpecError
from synthdp.graph.predict import pair_tables
from synthdp.inference import copies_of
from synthdp.release import public_rows, release, resume, run, with_digest
from synthdp.spec import load_spec, parse_any
from synthdp.spec.model import ReleaseSpec
from synthdp.verify import inspect_bundle, verify_bundle
from tests.builders import predict_spec, predict_table
from tests.release.conftest import dying, refit

PRIOR = {"source": "public.csv", "licence": "CC0-1.0", "statement": "An earlier year, public"}
UNJUDGED = {"evaluation": {"enabled": False}, "attacks": {"membership": {"enabled": False}}}


def write(folder: Path, prior: dict[str, Any] | None = PRIOR, **sections: Any) -> Path:
    """Private and public rows, and a spec, in `folder`; returns the spec's path."""
    whole = predict_table()
    whole.iloc[::2].to_csv(folder / "public.csv", index=False)
    whole.to_csv(folder / "table.csv", index=False)
    content = predict_spec(**UNJUDGED, **sections) | ({"prior": prior} if prior else {})
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a release with a prior."""
    folder = tmp_path_factory.mktemp("prior")
    release(write(folder), out=folder / "out")
    return folder / "out/bundle"


def words(path: Path) -> str:
    return " ".join(path.read_text(encoding="utf-8").split())


@pytest.mark.check
def test_the_bundle_verifies_and_says_what_the_prior_is(made: Path) -> None:
    assert verify_bundle(made).ok
    spec, digest = load_spec(made / "spec.yaml"), sha256(made.parents[1] / "public.csv")
    assert spec.prior is not None and (spec.prior.name, spec.prior.sha256) == ("public.csv", digest)
    certificate = words(made / "privacy/certificate.md")
    assert digest in certificate and "**Its rows are not protected**" in certificate
    assert "An earlier year, public" in certificate and "licence CC0-1.0" in certificate
    card = words(made / "DATACARD.md")
    assert "shrunk to a prior" in card and "Its rows are not protected" in card
    report = words(made / "report.html")
    assert "shrunk to public counts, public.csv" in report
    assert "How much of the prior each table took" in report
    facts = json.loads((made / "privacy/certificate.json").read_text())
    assert facts["prior"]["licence"] == "CC0-1.0"
    charged = [c["purpose"] for c in facts["charges"]]
    assert charged == ["measure", "graph: all pairs", "graph: chosen pairs"]  # none for the prior
    tables = json.loads((made / "prior.json").read_text())["tables"]
    assert {sum(t["counts"]) for t in tables} == {len(predict_table()) // 2}
    assert max(t["used"] for t in tables) > 0.2


@pytest.mark.check
def test_the_model_follows_shrunk_tables_and_intervals_do_not(made: Path) -> None:
    domain = Domain.from_spec(load_spec(made / "spec.yaml").columns)
    drawn, told = (level_law(made, domain, margins=True, shrunk=s) for s in (True, False))
    assert drawn.prior is not None and told.prior is None
    assert any(
        not np.allclose(pair_tables(drawn).table(*p), pair_tables(told).table(*p))
        for p in pair_tables(told).pairs
    )
    alone = made.parent / "without"
    shutil.copytree(made, alone)
    (alone / "prior.json").unlink()  # copies are the same without it
    both = [next(iter(copies_of(b, 2, columns=["smoker", "sex"], seed=3))) for b in (made, alone)]
    assert both[0].equals(both[1])


def damaged(change: Callable[[Any], object]) -> Callable[[Path], None]:
    def spoil(bundle: Path) -> None:
        content = json.loads((bundle / "prior.json").read_text())
        change(content["tables"])
        (bundle / "prior.json").write_text(json.dumps(content))

    return spoil


def moved(tables: Any) -> None:
    """Two rows of a pair change places, so that its columns alone stay as they are."""
    own = next(t for t in tables if t["columns"] == ["smoker", "sex"])
    counts = np.reshape(own["counts"], own["shape"])
    few = int(counts[0, 0] > counts[0, 1])  # of both diagonals the one with fewer rows gets more
    counts[[0, 1], [few, 1 - few]] += 40
    counts[[0, 1], [1 - few, few]] -= 40
    own["counts"] = counts.ravel().tolist()


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (lambda b: (b / "prior.json").unlink(), "is missing, and the spec has a prior"),
    "moved": (damaged(moved), "what was used of it does not follow"),
    "one row": (damaged(lambda t: t[0]["counts"].__setitem__(0, 1)), "not counts of the same rows"),
    "half": (damaged(lambda t: t[0]["counts"].__setitem__(0, 0.5)), "not counts of the same rows"),
    "used": (damaged(lambda t: t[0].update(used=0.999)), "what was used of it does not follow"),
    "table gone": (damaged(lambda t: t.pop()), "its tables are not those"),
    "no tables": (damaged(lambda t: t.clear()), "its tables are not those"),
    "shape": (damaged(lambda t: t[0].update(shape=[1, -1])), "its tables are not those"),
}


@pytest.mark.check
@pytest.mark.parametrize("name", DAMAGES)
def test_a_tampered_prior_is_found(made: Path, tmp_path: Path, name: str) -> None:
    spoil, problem = DAMAGES[name]
    bundle = Path(shutil.copytree(made, tmp_path / "copy"))
    spoil(bundle)
    refit(bundle)
    assert problem in "\n".join(inspect_bundle(bundle).problems)


@pytest.mark.check
def test_without_the_key_a_prior_does_not_belong(made: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(made, tmp_path / "copy"))
    spec = yaml.safe_load((bundle / "spec.yaml").read_text())
    del spec["prior"]
    (bundle / "spec.yaml").write_text(yaml.safe_dump(spec))
    refit(bundle)
    assert "does not belong in this bundle; the spec has none" in "\n".join(
        inspect_bundle(bundle).problems
    )


@pytest.mark.check
def test_a_bundle_is_a_prior_by_its_digest(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "earlier")
    digest = sha256(made / "SHA256SUMS")
    prior = {"bundle": "earlier", "sha256": digest, "statement": "Our release of last year"}
    path = write(tmp_path, prior)
    spec = with_digest(load_spec(path), tmp_path)
    rows = public_rows(spec, Domain.from_spec(spec.columns), tmp_path)
    assert rows is not None and rows.codes.shape == (800, 5)
    bundle = release(path, out=tmp_path / "out").bundle
    assert bundle is not None and verify_bundle(bundle).ok
    told = words(bundle / "privacy/certificate.md")
    assert "the synthetic rows of the bundle earlier" in told
    assert "the guarantee of their own certificate, which adds to this one" in told
    (tmp_path / "earlier/synthetic.csv").write_text("sex\nmale\n")
    with pytest.raises(Exception, match="was changed"):
        with_digest(load_spec(path), tmp_path)


# --- refused ---


def refused(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        release(path, out=path.parent / "out")
    assert not (path.parent / "out").exists()
    return str(caught.value)


def test_the_private_file_is_no_prior(tmp_path: Path) -> None:
    assert "private file" in refused(write(tmp_path, PRIOR | {"source": "./table.csv"}))
    shutil.copy(tmp_path / "table.csv", tmp_path / "copy.csv")
    assert "private file" in refused(write(tmp_path, PRIOR | {"source": "copy.csv"}))


def test_another_file_than_the_spec_says(tmp_path: Path) -> None:
    found = refused(write(tmp_path, PRIOR | {"sha256": "0" * 64}))
    assert "has the SHA-256" in found and "0" * 64 in found
    assert "cannot be read" in refused(write(tmp_path, PRIOR | {"source": "none.csv"}))


def test_values_that_the_domain_lacks(tmp_path: Path) -> None:
    path = write(tmp_path)
    text = (tmp_path / "public.csv").read_text()
    (tmp_path / "public.csv").write_text(text.replace(",female,", ",woman,"))
    assert "has values that the spec's columns do not: 'sex' (" in refused(path)
    (tmp_path / "public.csv").write_text("town\nhere\n")
    assert "no column of the spec" in refused(path)


def test_columns_that_the_spec_lacks_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path)
    (tmp_path / "public.csv").write_text("town,age,sex\nhere,30,male\nthere,40,female\n")
    spec = load_spec(path)
    rows = public_rows(spec, Domain.from_spec(spec.columns), tmp_path)
    assert rows is not None and rows.columns == ("sex", "age") and len(rows.codes) == 2


MISTAKES = {
    "either `source`": {"statement": "s"},
    "a prior has either": {**PRIOR, "bundle": "b", "sha256": "0" * 64},
    "digest of its SHA256SUMS": {"bundle": "b", "statement": "s"},
    "a file of public rows has one": {"source": "p.csv", "statement": "s"},
    "statement": {"source": "p.csv", "licence": "CC0-1.0"},
}


@pytest.mark.parametrize("said", MISTAKES)
def test_what_a_prior_must_say(tmp_path: Path, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        load_spec(write(tmp_path, MISTAKES[said]))


def test_linked_tables_have_none() -> None:
    text = (Path(__file__).parents[1] / "spec/linked/clinic.yaml").read_text()
    with pytest.raises(SpecError, match="a prior is of one table"):
        parse_any(f"{text}\nprior: {json.dumps(PRIOR)}\n", path="s.yaml")


def test_a_plan_says_it_and_claims_no_gain(tmp_path: Path) -> None:
    plans = [Spec.load(write(tmp_path, prior)).plan().facts for prior in (PRIOR, None)]
    assert any("shrunk to the prior public.csv" in note for note in plans[0]["notes"])
    for part in ("quality", "spends", "epsilon_spent"):
        assert plans[0][part] == plans[1][part]


@pytest.mark.check
def test_a_run_goes_on_with_its_prior_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = write(tmp_path), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(run, "write_bundle", dying())
        with pytest.raises(KeyboardInterrupt):
            release(path, out=out)
    text = (tmp_path / "public.csv").read_text()
    (tmp_path / "public.csv").write_text(text + text.partition("\n")[2])
    with pytest.raises(BudgetError, match="is another file than when run"):
        resume(out)
    (tmp_path / "public.csv").write_text(text)
    bundle = resume(out).bundle
    assert bundle is not None and verify_bundle(bundle).ok


@pytest.mark.check
def test_without_pairs_that_start_the_model_margins_alone_are_shrunk(tmp_path: Path) -> None:
    given = {
        "graph": {"mode": "given", "edges": ["sex -> smoker"]},
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
        "synthesizer": {"steps": 5, "batch": 64, "hidden": 8},
    }
    bundle = release(write(tmp_path, **given), out=tmp_path / "out").bundle
    assert bundle is not None and verify_bundle(bundle).ok
    tables = json.loads((bundle / "prior.json").read_text())["tables"]
    assert {len(t["columns"]) for t in tables} == {1}


def test_a_spec_without_one_is_as_it_was(tmp_path: Path) -> None:
    spec = load_spec(write(tmp_path, None))
    assert isinstance(spec, ReleaseSpec) and spec.prior is None
    assert with_digest(spec, tmp_path) is spec
    assert public_rows(spec, Domain.from_spec(spec.columns), tmp_path) is None
