"""`synthdp init --private`: what it refuses, spends, finds and writes, and the release after it."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp.errors import BoundaryError
from synthdp.ledger import INTERNAL, Ledger
from synthdp.privacy.noise import Streams
from synthdp.privacy.source import read_texts
from synthdp.release import private_init
from synthdp.spec import load_spec, yaml_value
from synthdp.spec.model import CsvSource, Dataset, DeclaredRows, Number, RowUnit

pytestmark = pytest.mark.check

GOLDEN = Path(__file__).parents[1] / "golden" / "drafts" / "private.yaml"
ROWS, CANARY = 4000, "canary-7391"
COMMON = ("--private", "--cap", "25", "1e-3", "--unit", "row", "--meaning", "one person")
AMPLE = (*COMMON, "--epsilon", "20", "--rows", str(ROWS), "--out", "draft.yaml")


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of four kinds of columns, one row of which has a text of its own."""
    rng = np.random.default_rng(3)
    sex, age = rng.choice(["female", "male"], ROWS), rng.integers(18, 80, ROWS)
    paid = np.where(rng.random(ROWS) < 0.2, "NA", np.round(rng.uniform(5, 40, ROWS), 2).astype(str))
    joined = (np.datetime64("2019-01-01") + rng.integers(0, 1400, ROWS)).astype(str)
    sex[17] = CANARY
    lines = ["sex,age,paid,joined", *map(",".join, zip(sex, age.astype(str), paid, joined))]  # noqa: B905
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "clinic.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def entries(folder: Path) -> list[Any]:
    ledger = Ledger(f"sqlite:///{folder / '.synthdp' / 'ledger.db'}")
    return [e for e in ledger.entries() if e.kind not in INTERNAL]


def kinds(folder: Path) -> list[str]:
    return [e.kind for e in entries(folder)]


# --- what is refused, before anything is spent ---


def test_without_a_cap_it_is_refused(clinic: Path, synthdp: Any) -> None:
    done = synthdp("init", clinic, "--private", "--unit", "row", "--meaning", "x", "--rows", "10")
    assert done.code == 3 and "no cap" in done.err and "nothing was spent" in done.err
    assert [*clinic.parent.iterdir()] == [clinic]


WRONG = {
    "--private --rows 4000": "--private needs --unit",
    "--private --rows 4000 --unit row": "--private needs --meaning",
    "--private --unit row --meaning x": "--private needs --rows",
    "--private --rows 10 --unit sex --meaning x": "neither row nor COLUMN:MAX_ROWS",
    "--private --rows 10 --unit who:3 --meaning x": "columns: sex, age, paid, joined",
    "--private --rows 4000 --unit row --meaning x --delta 0.5": "privacy.delta",
    "--no-ask": "--cap belongs to --private",
}


@pytest.mark.parametrize("options", WRONG)
def test_missing_and_wrong_options_spend_nothing(clinic: Path, synthdp: Any, options: str) -> None:
    done = synthdp("init", clinic, "--cap", "2", "1e-3", *options.split())
    assert done.code == 2 and WRONG[options] in done.err
    assert [*clinic.parent.iterdir()] == [clinic]


def test_what_the_cap_does_not_allow_is_refused(clinic: Path, synthdp: Any) -> None:
    assert synthdp("init", clinic, *AMPLE).code == 0
    again = synthdp("init", clinic, *AMPLE)
    assert again.code == 2 and "draft.yaml exists" in again.err
    before = kinds(clinic.parent)
    again = synthdp("init", clinic, *AMPLE, "--epsilon", "24.9", "--force")
    assert again.code == 3 and "needs 24.9, which makes" in again.err
    assert kinds(clinic.parent) == before and not Path("releases/clinic/init/.run").exists()


def test_a_look_that_could_find_nothing_is_not_paid_for(clinic: Path, synthdp: Any) -> None:
    """Nor does anything but the declared number of rows decide."""
    few = (*COMMON, "--epsilon", "0.01", "--rows", str(ROWS), "--out", "draft.yaml")
    done = synthdp("init", clinic, *few)
    assert done.code == 3 and "noise would hide every column: what 4,000 rows" in done.err
    assert "this command spent nothing" in done.err and kinds(clinic.parent) == []


def test_a_table_that_cannot_be_read_spends_nothing(clinic: Path, synthdp: Any) -> None:
    text = clinic.read_text()
    clinic.write_text(text + f'"{CANARY},1,2,2019-01-01\n')
    done = synthdp("init", clinic, *AMPLE)
    assert done.code == 5 and CANARY not in done.err + done.out
    assert "reserve" not in kinds(clinic.parent)
    clinic.write_text(text + f"{CANARY},1,2,2019-01-01,5\n")
    done = synthdp("init", clinic, *AMPLE)
    assert done.code == 5 and "more or fewer fields" in done.err and CANARY not in done.err


# --- what it writes ---


def test_row_numbers_and_odd_names_are_read_as_the_header_has_them(
    clinic: Path, synthdp: Any
) -> None:
    """R's row numbers are not looked at, and a name with a space before it is renamed."""
    header, *rows = clinic.read_text().splitlines()
    lines = [f",{header.replace('age', ' age')}", *(f"{i},{row}" for i, row in enumerate(rows))]
    clinic.write_text("\n".join(lines) + "\n")
    done = synthdp("init", clinic, *AMPLE)
    assert done.code == 0, done.err
    spec = load_spec(Path("draft.yaml"))
    assert list(spec.columns) == ["sex", "age", "paid", "joined"]
    assert isinstance(spec.dataset.source, CsvSource)
    assert (spec.dataset.source.drop, spec.dataset.source.rename) == (("",), {" age": "age"})
    assert spec.columns["age"].type == "integer"


def test_decimals_behind_commas_are_read_as_numbers(clinic: Path, synthdp: Any) -> None:
    """Where semicolons part fields, somebody has to say so before anything is spent."""
    text = clinic.read_text().replace(",", ";").replace(".", ",")
    clinic.write_text(text)
    done = synthdp("init", clinic, *AMPLE)
    assert done.code == 2 and "--private needs --decimal" in done.err and kinds(clinic.parent) == []
    done = synthdp("init", clinic, *AMPLE, "--decimal", ",")
    assert done.code == 0, done.err
    spec = load_spec(Path("draft.yaml"))
    assert isinstance(spec.dataset.source, CsvSource) and spec.dataset.source.decimal == ","
    paid = spec.columns["paid"]
    assert isinstance(paid, Number) and (paid.lower, paid.upper, paid.decimals) == (5, 40, 2)
    assert [spec.columns[name].type for name in ("age", "joined")] == ["integer", "datetime"]


def test_parquet_is_refused_before_anything_is_spent(clinic: Path, synthdp: Any) -> None:
    pd.DataFrame({"sex": ["f"]}).to_parquet("t.parquet")
    done = synthdp("init", "t.parquet", *AMPLE)
    assert (
        done.code != 0 and "reads CSV files alone" in done.err and "nothing was spent" in done.err
    )


def test_the_draft_is_complete_and_to_the_letter(clinic: Path, synthdp: Any) -> None:
    done = synthdp("init", clinic, *AMPLE)
    assert done.code == 0, done.err
    draft = Path("draft.yaml").read_text()
    run_id = entries(clinic.parent)[0].run
    shown = draft.replace(run_id, "20260101-000000000000")
    if os.environ.get("SYNTHDP_UPDATE_GOLDEN"):
        GOLDEN.write_text(shown)
    assert shown == GOLDEN.read_text()
    assert "is fewer than" not in done.err and "4,000 rows are fewer than 10,000" in done.err
    assert "expected loss" in done.out and "2 categories" in done.out
    assert re.search(r"paid +number .*may be missing", done.out)
    assert "releases of clinic come on top, under the same cap" in done.out
    assert synthdp("validate", "draft.yaml").code == 0
    assert kinds(clinic.parent) == ["cap", "reserve", "charge", "charge", "settle"]
    assert [e.body["purpose"] for e in entries(clinic.parent)[2:4]] == ["forms", "texts"]
    assert "20" in synthdp("budget").out and "forms, texts" in synthdp("budget").out
    # what one row alone holds is written and told nowhere
    written = [p for p in clinic.parent.rglob("*") if p.is_file() and p != clinic]
    assert CANARY not in done.out + done.err
    assert CANARY.encode() not in b"".join(p.read_bytes() for p in written)
    assert json.loads(Path("releases/clinic/init/found.json").read_text())["run"] == run_id
    assert not Path("releases/clinic/init/.run").exists()


def test_small_epsilons_and_what_is_mostly_lost_are_warned_of(clinic: Path, synthdp: Any) -> None:
    small = (*COMMON, "--epsilon", "0.1", "--rows", str(ROWS), "--out", "draft.yaml")
    done = synthdp("init", clinic, *small)
    assert done.code == 0 and "epsilon 0.1 is below 0.5" in done.err
    assert "of rows are expected to be lost in" in done.err
    assert load_spec(Path("draft.yaml")).dataset.out_of_domain == "clamp"


def test_rows_of_one_id_are_bounded_and_the_id_is_no_column(clinic: Path, synthdp: Any) -> None:
    lines = clinic.read_text().splitlines()
    who = [f"{i // 4}" for i in range(ROWS)]
    held = [f"{w},{r}" for w, r in zip(who, lines[1:], strict=True)]
    clinic.write_text("\n".join(["who," + lines[0], *held]))
    options = ("--unit", "who:2", "--meaning", "one person", "--rows", str(ROWS))
    ample = ("--private", "--cap", "90", "1e-2", "--epsilon", "60", "--out", "draft.yaml")
    done = synthdp("init", clinic, *ample, *options, "--json")
    assert done.code == 0, done.err
    assert [*load_spec(Path("draft.yaml")).columns] == ["sex", "age", "paid", "joined"]
    told = [c["entry"]["type"] for c in json.loads(done.out)["columns"]]
    assert told == ["categorical", "integer", "number", "datetime"]
    assert json.loads(done.out)["run"] == entries(clinic.parent)[0].run
    events = [e.body["event"] for e in entries(clinic.parent) if e.kind == "charge"]
    assert events[1]["sensitivity"] == 2 and "rounded" in json.dumps(events[0])


# --- interruptions ---


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["found_columns", "columns_to_read", "write_whole"])
def test_an_interrupted_run_goes_on_without_paying_or_looking_again(
    clinic: Path,
    synthdp: Any,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(private_init, where, killed)
        stopped = synthdp("init", clinic, *AMPLE)
    assert stopped.code == 130 and "pays nothing again" in stopped.err
    before = kinds(clinic.parent)
    other = synthdp("init", clinic, *AMPLE, "--meaning", "one visit")
    assert other.code == 2 and "interrupted search for columns of another spec" in other.err
    resumed = synthdp("resume", "releases/clinic/init")
    assert resumed.code == 2 and "given as before" in resumed.err
    looks: list[str] = []
    for noise in ("discrete_gaussian", "kept_counts"):
        monkeypatch.setattr(Streams, noise, _counting(looks, noise, getattr(Streams, noise)))
    done = synthdp("init", clinic, *AMPLE, "--force")
    assert done.code == 0, done.err
    assert kinds(clinic.parent)[: len(before)] == before
    assert kinds(clinic.parent) == ["cap", "reserve", "charge", "charge", "settle"]
    assert looks == ([] if where != "columns_to_read" else ["kept_counts"])


def test_a_request_that_was_edited_into_the_runs_folder_is_refused(
    clinic: Path, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new request has the same plan: the ledger's digest alone tells."""
    with monkeypatch.context() as patch:
        patch.setattr(private_init, "write_whole", killed)
        assert synthdp("init", clinic, *AMPLE).code == 130
    before, state = kinds(clinic.parent), Path("releases/clinic/init/.run/state.json")
    was = json.loads(state.read_text())
    assert "one person" in was["spec_text"]
    other = was["spec_text"].replace("one person", "one visit")
    state.write_text(json.dumps(was | {"spec_text": other}))
    done = synthdp("init", clinic, *AMPLE, "--meaning", "one visit")
    assert done.code == 2 and "the ledger holds another command or spec of run" in done.err
    assert "nothing more was spent" in done.err and kinds(clinic.parent) == before
    state.write_text(json.dumps(was))
    assert synthdp("init", clinic, *AMPLE).code == 0


def _counting(looks: list[str], name: str, honest: Any) -> Any:
    def counted(*arguments: Any, **named: Any) -> Any:
        if name not in looks:
            looks.append(name)
        return honest(*arguments, **named)

    return counted


# --- the release of the draft ---


@pytest.fixture
def drafted(clinic: Path, synthdp: Any) -> Path:
    assert synthdp("init", clinic, *AMPLE).code == 0
    draft = yaml.safe_load(Path("draft.yaml").read_text())
    draft["attacks"] = {"membership": {"enabled": False}}
    draft["tracking"] = {"enabled": False}
    draft["evaluation"] |= {"targets": ["sex"], "classifiers": ["logistic"], "triples": 4}
    Path("draft.yaml").write_text(yaml.safe_dump(draft, sort_keys=False))
    return clinic


def test_the_draft_is_released_and_its_certificate_tells_of_the_search(
    drafted: Path, synthdp: Any
) -> None:
    done = synthdp("release", "draft.yaml")
    assert done.code == 0, done.err
    bundle = Path("releases/clinic/bundle")
    search, released = (e.run for e in entries(drafted.parent) if e.kind == "reserve")
    certificate = (bundle / "privacy" / "certificate.md").read_text()
    assert f"epsilon 20 at delta 1e-06, in run `{search}`" in certificate
    assert "The domain of the columns came from the rows too" in certificate
    assert f"by run `{search}`" in (bundle / "DATACARD.md").read_text()
    page = (bundle / "README.md").read_text()
    assert "A search had found these in the original rows. Both together have epsilon 2" in page
    assert released in certificate and synthdp("verify", bundle).code == 0
    total = [e.body["epsilon"] for e in entries(drafted.parent) if e.kind == "reserve"]
    assert total == [20.0, 1.0]
    assert CANARY.encode() not in b"".join(p.read_bytes() for p in bundle.rglob("*") if p.is_file())


def test_a_release_is_refused_where_the_ledger_lacks_such_a_search(
    drafted: Path, synthdp: Any
) -> None:
    """In another folder's ledger, of another epsilon, unit or kind of run, or not named at all."""

    def refused(command: str, *says: str, file: str = "draft.yaml", **changes: Any) -> None:
        Path(file).parent.mkdir(exist_ok=True)
        changed = {k: v for k, v in (dataset | changes).items() if v is not None}
        Path(file).write_text(yaml.safe_dump(draft | {"dataset": changed}))
        done = synthdp(command, file)
        assert done.code == 3 and all(words in done.err for words in says), done.err

    draft = yaml.safe_load(Path("draft.yaml").read_text())
    dataset, lacks, bare = draft["dataset"], "holds no such reservation", "20261124-0123456789ab"
    source = dataset["source"] | {"path": "../clinic.csv"}
    refused("release", lacks, "nothing was spent", file="elsewhere/draft.yaml", source=source)
    less = dataset["domain_from"] | {"epsilon": 0.1}
    refused("plan", "all searches of dataset clinic together reserved 20", domain_from=less)
    unsaid = "the spec does not say so", "say dataset.domain_from: {run: "
    refused("plan", *unsaid, domain_from=None)
    person = dataset["privacy_unit"] | {"kind": "id", "column": "id", "max_rows": 4}
    refused("plan", "protected another privacy unit", privacy_unit=person)
    body = {"adjacency": "add_remove"}
    ledger = Ledger(f"sqlite:///{drafted.parent / '.synthdp' / 'ledger.db'}")
    ledger.reserve(dataset["id"], bare, epsilon=0.01, delta=1e-9, cap=None, body=body)
    refused("plan", lacks, domain_from={"run": bare, "epsilon": 0.01, "delta": 1e-9})


@pytest.mark.parametrize("text", ["\U000e0001x", "a\u200bb", 'say "no"', "\u00e9t\u00e9", "\x85"])
def test_any_text_can_be_read_back_from_a_draft(text: str) -> None:
    assert yaml.safe_load(f"categories: [{yaml_value(text)}]") == {"categories": [text]}


# --- the reader ---


def test_texts_are_sealed_and_read_row_by_row(tmp_path: Path) -> None:
    """A row more changes no cell of the others, whatever it holds."""
    unit = RowUnit(kind="row", meaning="one person")
    dataset = Dataset(
        id="d",
        source=CsvSource(kind="csv", path="t.csv"),
        privacy_unit=unit,
        rows=DeclaredRows(kind="approximate", value=10),
    )
    rows = ["1,a", "007,2020-01-01", ",NA", "1.5,x"]

    def cells(lines: list[str]) -> Any:
        (tmp_path / "t.csv").write_text("\n".join(["p,q", *lines]) + "\n")
        sealed = read_texts(dataset, ("p", "q"), folder=tmp_path, streams=Streams.fresh(), delta=0)
        with pytest.raises(BoundaryError):
            len(sealed)  # type: ignore[arg-type]
        return sealed.unseal(key=_key()).codes

    before = cells(rows)
    for other in ("2,b", "1e400,2020-13-01", '"x,y",?', "٣,-"):
        after = cells([*rows, other])
        assert (after[: len(rows)] == before).all() and len(after) == len(rows) + 1


def _key() -> object:
    from synthdp.privacy import private

    return private._KERNEL_KEY
