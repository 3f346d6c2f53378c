"""`synthdp index`: every bundle below a folder on one page, whatever the bundles hold."""

import json
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import synthdp as face
from synthdp.bundle import make_keys
from synthdp.ledger import entry_hash
from synthdp.release import release
from synthdp.report import render_index
from synthdp.verify import index_of
from tests.release.conftest import Tiny, refit

pytestmark = pytest.mark.check

CAP = {"cap": {"epsilon": 4, "delta": 1e-4}}
SPENT = r"epsilon 2\.[01]\d* spent"  # of 1, 2 and .5, which add up to 3.5
GATES = [{"metric": "tv1_noisy", "at_most": 0.5}]
ASKED = ("share(smoker)", "mean(weight) where visits > 15")
NOW = datetime(2026, 5, 4, 3, 2, tzinfo=UTC)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two releases of one table, the second signed and with a question that has no
    answer, a third that was withheld, and the ledger beside them.
    """
    from synthdp.privacy import plan

    tiny = Tiny(tmp_path_factory.mktemp("indexed"))
    make_keys(tiny.folder / "keys")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "GROUP_SIZES", (1,))
        tiny.write(privacy=CAP, gates=GATES)
        release(tiny.spec, out=tiny.folder / "releases" / "first")
        patch.setenv("SYNTHDP_SIGNING_KEY", str(tiny.folder / "keys" / "signing-key.pem"))
        shares = {"measure": 0.3, "train": 0.4, "estimands": 0.3}
        tiny.write(
            privacy=CAP | {"epsilon": 2, "shares": shares},
            columns={"visits": {"edges": [1, 5]}},
            estimands=[{"kind": "question", "ask": ask} for ask in ASKED],
        )
        release(tiny.spec, out=tiny.folder / "releases" / "second", accept_refusals=True)
        patch.delenv("SYNTHDP_SIGNING_KEY")
        none = {"at_most": 1e-9}
        gates = [
            {"metric": "tv1_noisy"} | none,
            {"metric": "tv1", "outside_guarantee": True} | none,
        ]
        tiny.write(privacy=CAP | {"epsilon": 0.5}, gates=gates)
        assert release(tiny.spec, out=tiny.folder / "releases" / "third").bundle is None
    return tiny.folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in which commands are given."""
    shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


class Page(HTMLParser):
    """Tags, attributes and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.text += " ".join(data.split()) + " "


def indexed(folder: Path, **options: Any) -> Page:
    content = index_of(folder, page=folder / "index.html", now=NOW, **options)
    return Page(render_index(content))


def test_a_page_of_every_bundle(folder: Path, synthdp: Any) -> None:
    told = synthdp("index", "releases")
    assert told.code == 0 and told.out.startswith("releases/index.html: 2 bundles, not verified\n")
    page = Page((folder / "releases" / "index.html").read_text())
    assert re.search(rf"{SPENT} of a cap of 4, by a Gaussian filter; 1\.[89]\d+ is left", page.text)
    assert "tv1_noisy at most 0.5: passed" in page.text and "none declared" in page.text
    assert "not verified; its entries are in the ledger" in page.text
    assert "unsigned" in page.text and "names the key ed25519:" in page.text
    assert len(page.links) == 6 and "script" not in page.tags
    for link in page.links:
        assert (folder / "releases" / unquote(link)).is_file()
    assert synthdp("index", "releases").code == 0  # its own page is replaced


def test_releases_can_be_told_apart_and_decided_on(folder: Path, synthdp: Any) -> None:
    """On the page, in the terminal and as JSON: what their public reports say of them, what was
    not answered, what was withheld, and how they differ, by name.
    """
    face.Bundle(folder / "releases/second/bundle").decide("no", by="A. Reviewer", why="too dear")
    told, facts = synthdp("index", "releases"), synthdp("index", "releases", "--json")
    page = Page((folder / "releases" / "index.html").read_text()).text
    (dataset,) = json.loads(facts.out)["datasets"]
    texts = [page, re.sub(r"\s+", " ", told.out), " ".join(facts.out.replace("\\n", " ").split())]
    first, second = ({v["heading"]: v for v in bundle["verdicts"]} for bundle in dataset["bundles"])
    shown = face.Bundle(folder / "releases/second/bundle")._repr_html_()
    for heading, verdict in second.items():
        assert heading in shown and verdict["number"] in Page(shown).text
        for text in texts:
            assert heading in text and verdict["number"] in text, heading
    asked = second["Questions answered"]
    assert (asked["number"], asked["state"]) == ("1 of 2", "fair")
    assert "Questions answered" not in first
    for text in texts:
        assert "no figure of mean(weight) where visits > 15" in text
        assert "decided: no, by A. Reviewer" in text and "nobody has decided on it" in text
        assert "tv1: needs" not in text, "the ledger is not told of gates on real rows"
        assert re.search(
            r"withheld: no, by the gates of its spec on [0-9-]+: tv1_noisy: needs", text
        )
        assert re.search(r"epsilon [01][0-9.]* -> [12][0-9.]*: worse", text)
        assert (
            "privacy.epsilon, privacy.shares.estimands" in text
            and "declared otherwise: visits" in text
        )
    assert dataset["withheld"] == 1 and "Withheld problem 1" in page
    noise = first["Columns whose shape is noise"]
    assert re.fullmatch(r"\d of 6", noise["number"]) and noise["state"] in ("good", "fair", "bad")


def test_a_dataset_whose_every_run_was_withheld_has_a_section(folder: Path, synthdp: Any) -> None:
    (folder / "empty").mkdir()
    facts = json.loads(synthdp("index", "empty", "--json").out)
    (dataset,) = facts["datasets"]
    assert dataset["bundles"] == [] and dataset["withheld"] == 1
    page = Page((folder / "empty" / "index.html").read_text()).text
    assert "No bundle of it is below this folder." in page
    assert re.search(rf"{SPENT} of a cap of 4", page)
    assert re.search(r"withheld: no, by the gates of its spec on [0-9-]+: tv1_noisy: needs", page)
    assert "Withheld problem 1" in page


def test_without_a_ledger_only_what_bundles_reserved_is_known(folder: Path) -> None:
    page = indexed(folder / "releases")
    assert "reserved epsilon 3, added up, under a cap of 4; what else was spent" in page.text
    assert "ledger the" not in page.text and "in the ledger;" not in page.text


def test_verified_bundles_and_damaged_ones(folder: Path, synthdp: Any) -> None:
    spoilt = folder / "releases" / "first" / "bundle" / "synthetic.csv"
    spoilt.write_text(spoilt.read_text().replace("male", "femal", 1))
    told = synthdp("index", "releases", "--verify", "--json")
    facts = json.loads(told.out)
    assert told.code == 0 and facts["verified"]
    ((place, reasons),) = facts["damaged"]
    assert place == "first/bundle" and "synthetic.csv" in reasons[0]
    (dataset,) = facts["datasets"]
    (bundle,) = dataset["bundles"]
    assert bundle["checked"] == "good" and "whose key that is was not checked" in bundle["signed"]
    assert not any("first" in address for _, address in bundle["links"])
    spoilt_run, withheld = dataset["without"]["rows"]
    assert spoilt_run[3] == "published elsewhere, or made no bundle"
    assert withheld[3].startswith("withheld: no, by the gates of its spec on 2")


def test_a_key_accepts_only_what_it_signed(folder: Path, synthdp: Any) -> None:
    told = synthdp("index", "releases", "--key", "keys/signing-key.pub.pem", "--json")
    facts = json.loads(told.out)
    assert [place for place, _ in facts["damaged"]] == ["first/bundle"]
    (bundle,) = facts["datasets"][0]["bundles"]
    assert bundle["signed"].endswith("the key that was given")


def test_comparisons_read_rows_only_of_what_was_verified(folder: Path) -> None:
    topics = {}
    for verify in (False, True):
        content = index_of(folder / "releases", page=folder / "i.html", now=NOW, verify=verify)
        topics[verify] = {row[0] for row in content.datasets[0].bundles[1].difference.rows}
    assert topics == {False: {"budget", "graph", "table"}, True: {*topics[False], "quality"}}


def test_a_column_has_what_was_decided(folder: Path) -> None:
    from synthdp.ledger import open_book

    first, second = (folder / "releases" / name / "bundle" for name in ("first", "second"))
    by = {"by": "A. <b>Reviewer</b>", "why": "bounds came from the rows"}
    face.Bundle(first).decide("no", **by)
    entries = open_book(".synthdp/ledger.db").entries()
    dataset = index_of(
        folder / "releases", page=folder / "i.html", now=NOW, ledger=entries
    ).datasets[0]
    told, blank = (bundle.decision for bundle in dataset.bundles)
    assert told.startswith("decided: no, by A. <b>Reviewer</b> on 2")
    assert blank == "nobody has decided on it"
    page = indexed(folder / "releases", ledger=entries)
    assert told in page.text and "b" not in page.tags
    for unknown in ((), entries[:2]):
        assert "not known" in indexed(folder / "releases", ledger=unknown).text
    assert face.Bundle(second).decision() is None


def test_copies_and_bundles_of_other_ledgers_are_named(folder: Path) -> None:
    from synthdp.ledger import open_book

    shutil.copytree(folder / "releases" / "first", folder / "releases" / "again")
    entries = open_book(".synthdp/ledger.db").entries()
    content = index_of(
        folder / "releases", page=folder / "i.html", now=NOW, ledger=entries, ledger_name="l"
    )
    assert [b.checks for b in content.datasets[0].bundles][1].endswith("a copy of again/bundle")
    assert re.search(SPENT, content.datasets[0].budget)
    text = indexed(folder / "releases", ledger=entries[:2]).text
    assert "its entries are not in the ledger" in text and "reserved epsilon 3, added up" in text


@pytest.mark.parametrize("name", ["index.html", "other.html"])
def test_what_is_not_an_index_is_never_replaced(folder: Path, synthdp: Any, name: str) -> None:
    (folder / "releases" / name).write_text("<p>mine</p>")
    told = synthdp("index", "releases", "--out", f"releases/{name}")
    assert told.code == 2 and (folder / "releases" / name).read_text() == "<p>mine</p>"
    assert synthdp("index", "nowhere").code == 2


# --- hostile bundles ---

HTML = '"><img src=x onerror=alert(1)><script>alert(2)</script>\u202e'


def test_what_a_bundle_says_is_never_markup(folder: Path) -> None:
    """In its texts, and in the names of its folders, one of which looks like a script's address."""
    bundle = folder / "releases" / "first" / "bundle"
    spec = (bundle / "spec.yaml").read_text()
    spec = spec.replace("  id: tiny\n", f"  id: tiny\n  title: {json.dumps(HTML)}\n")
    (bundle / "spec.yaml").write_text(
        re.sub(r"meaning: .*", lambda _: f"meaning: {json.dumps(HTML)}", spec)
    )
    facts = json.loads((bundle / "privacy" / "certificate.json").read_text())
    facts |= {"title": HTML, "unit_meaning": HTML}
    (bundle / "privacy" / "certificate.json").write_text(json.dumps(facts))
    refit(bundle)
    shutil.move(folder / "releases" / "first", folder / "releases" / "javascript:alert(3)")
    (folder / "releases" / "second").rename(
        folder / "releases" / HTML.replace("/", "").replace("\u202e", "")
    )
    os.mkdir(os.fsencode(folder / "releases") + b"/\xff\xfe")
    shutil.copytree(
        folder / "releases" / "javascript:alert(3)" / "bundle",
        os.fsdecode(os.fsencode(folder / "releases") + b"/\xff\xfe/bundle"),
    )
    content = index_of(folder / "releases", page=folder / "releases" / "index.html", now=NOW)
    page = Page(render_index(content))
    assert content.damaged == () and len(page.links) == 9
    assert not page.tags & {"script", "img", "iframe", "object", "form", "svg"}
    assert not any(name.startswith("on") for name in page.attributes)
    assert "<img src=x onerror=alert(1)>" in page.text and "\u202e" not in page.text
    for link in page.links:
        parts = urlsplit(link)
        assert not parts.scheme and not parts.netloc and not parts.query and not parts.fragment


def forge(bundle: Path, name: str, change: Callable[[Any], object]) -> None:
    content = json.loads((bundle / name).read_text())
    change(content)
    (bundle / name).write_text(json.dumps(content))
    refit(bundle)


def rehash(facts: dict[str, Any], **changes: Any) -> None:
    """Change the last entry, with a hash that fits."""
    last = facts["entries"][-1] | changes
    last["hash"] = entry_hash(**{k: v for k, v in last.items() if k != "hash"})
    facts["entries"][-1] = last


LEDGER, FACTS, PROFILE = "privacy/ledger.json", "privacy/certificate.json", "privacy/profile.json"
HOSTILE: dict[str, Callable[[Path], object]] = {
    "run is a list": lambda b: forge(b, LEDGER, lambda f: rehash(f, run=[1])),
    "day is a number": lambda b: forge(b, LEDGER, lambda f: rehash(f, at=7)),
    "epsilon beyond floats": lambda b: forge(b, FACTS, lambda f: f.update(epsilon=1e308)),
    "no certificate": lambda b: forge(b, FACTS, lambda f: f.clear()),
    "profile of texts": lambda b: forge(b, PROFILE, lambda f: f.update(points=["x"])),
    "graph is a list": lambda b: (b.joinpath("graph.json").write_text("[]"), refit(b)),
    "spec is binary": lambda b: (b.joinpath("spec.yaml").write_bytes(b"\0\xff"), refit(b)),
    "spec is deep": lambda b: (b.joinpath("spec.yaml").write_text("[" * 100_000), refit(b)),
    "spec is a link": lambda b: (
        b.joinpath("spec.yaml").unlink(),
        b.joinpath("spec.yaml").symlink_to("/etc/passwd"),
    ),
    "certificate is a pipe": lambda b: (b.joinpath(FACTS).unlink(), os.mkfifo(b / FACTS)),
    "sums are gone": lambda b: b.joinpath("SHA256SUMS").unlink(),
    "sums are a folder": lambda b: (
        b.joinpath("SHA256SUMS").unlink(),
        b.joinpath("SHA256SUMS").mkdir(),
    ),
}


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_spoilt_bundle_is_listed_and_the_others_stay(
    folder: Path, kind: str, verify: bool
) -> None:
    HOSTILE[kind](folder / "releases" / "first" / "bundle")
    content = index_of(folder / "releases", page=folder / "index.html", now=NOW, verify=verify)
    ((place, reasons),) = content.damaged
    assert place == "first/bundle" and reasons and str(folder) not in "".join(reasons)
    assert [b.place for b in content.datasets[0].bundles] == ["second/bundle"]
    assert "Damaged" in Page(render_index(content)).text


def test_profiles_that_cannot_be_compared_do_not_stop_the_page(folder: Path) -> None:
    points = [{"epsilon": 1.0, "delta": "0.5"}]  # a text, which the report reads as a number
    bundle = folder / "releases" / "first" / "bundle"
    forge(bundle, PROFILE, lambda f: f.update(points=points))
    second = folder / "releases" / "second" / "bundle"
    forge(second, PROFILE, lambda f: f.update(points=points))
    assert "cannot be compared" in indexed(folder / "releases").text


def test_an_empty_folder_and_what_mlflow_keeps(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "No bundle was found" in indexed(tmp_path / "empty").text
    shutil.copytree(folder / "releases" / "first", tmp_path / "empty" / "mlflow-artifacts")
    shutil.copytree(folder / "releases" / "first", tmp_path / "empty" / ".old-first")
    assert "No bundle was found" in indexed(tmp_path / "empty").text
