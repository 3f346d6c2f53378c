"""Names and words of others: never SQL, never a path, never markup, and never a command to a
terminal.
"""

import re
import sqlite3
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from synthdp.api.text import plan_text
from synthdp.bundle import write_bundle
from synthdp.bundle.certificate import Certificate
from synthdp.cli import budget_facts, budget_svg, budget_text
from synthdp.data import Domain
from synthdp.errors import printable
from synthdp.ledger import Ledger
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.spec import parse_spec
from synthdp.tracking import PublicationVerdict, note, public_params

pytestmark = pytest.mark.check

SQL = [
    "'; DROP TABLE synthdp_ledger; --",
    '" OR 1=1 --',
    "x') ; DELETE FROM synthdp_ledger WHERE ('1'='1",
    "%s",
    ":dataset",
    "{0}",
    "\\",
    "Robert\u2019); --",
    "a;b",
]
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "[click](javascript:alert(1))",
    "![x](http://evil.org/pixel.png)",
    "a | b `c` **bold** __b__ ~~gone~~",
    "# Heading",
    "</title><!-- ]]> -->",
    "[bold red]rich[/] [link=http://evil.org]x[/link]",
    "{{ 7 * 7 }} {% raw %} ${x} %(y)s",
    "<https://evil.org> &lt;b&gt; \\[x\\]",
    "===\n---\n## Guarantee\n\nepsilon is 0.001\n\n```",
]
TAGS = {"script", "img", "iframe", "a", "object", "style", "svg", "b", "i"}


@pytest.mark.parametrize("text", SQL)
def test_no_name_is_sql(tmp_path: Path, text: str) -> None:
    """As dataset, run, owner, purpose and mechanism, in every query of the ledger."""
    path = tmp_path / "ledger.db"
    ledger = Ledger(f"sqlite:///{path}")
    ledger.reserve("other", "other-run", epsilon=1.0, delta=1e-6, cap=None, body={"by": "me"})
    ledger.set_cap(text, epsilon=3.0, delta=1e-4)
    ledger.reserve(text, text, epsilon=1.0, delta=1e-5, cap=None, body={"by": text, "unit": text})
    ledger.charge(text, text, purpose=text, mechanism=text, event={"event": text})
    ledger.settle(text, text)
    ledger.verify_chain()
    assert [(e.dataset, e.kind) for e in ledger.entries()] == [
        ("other", "reserve"),
        *((text, k) for k in ("cap", "reserve", "charge", "settle")),
    ]
    assert ledger.balance(text).epsilon == ledger.balance("other").epsilon == 1.0
    assert [e.body.get("by") for e in ledger.run_entries(text)] == [text, None, None]
    with sqlite3.connect(path) as connection:
        assert connection.execute("select count(*) from synthdp_ledger").fetchone() == (5,)
    connection.close()


def test_no_statement_of_the_ledger_holds_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every value travels beside the statement, as a parameter."""
    seen: list[str] = []
    sa.event.listen(
        sa.engine.Engine, "before_cursor_execute", listener := lambda *a: seen.append(a[2])
    )
    try:
        ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
        ledger.reserve(
            "marker-d",
            "marker-r",
            epsilon=0.777,
            delta=1e-5,
            cap=(3.0, 1e-4),
            body={"by": "marker-b"},
        )
        ledger.charge("marker-d", "marker-r", purpose="marker-p", mechanism="marker-m", event={})
        ledger.balance("marker-d"), ledger.run_entries("marker-r")
    finally:
        sa.event.remove(sa.engine.Engine, "before_cursor_execute", listener)
    assert len(seen) > 8 and not any("marker" in s or "0.777" in s for s in seen)


class _Tags(HTMLParser):
    """Tags and attributes that a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(name for name, _ in attrs)}


def assert_plain_markdown(text: str, own_headings: int) -> None:
    """No markup that the page did not write itself: no HTML, links, pictures, or headings more."""
    outside = re.sub(
        r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE
    )  # the page's own code
    parser = _Tags()
    parser.feed(outside)
    assert not parser.found & TAGS
    assert not re.search(
        r"(?<!\\)\]\(|(?<!\\)!\[|(?<!\\)<\w|^===|\*\*bold|__b__|~~gone", outside, re.MULTILINE
    ), text
    assert len(re.findall(r"^#{1,6} ", outside, re.MULTILINE)) == own_headings


@pytest.fixture(scope="session")
def bundles() -> ModuleType:
    return sys.modules["bundle_for_malicious"]


@pytest.mark.parametrize("text", HOSTILE)
def test_words_of_a_publisher_are_words(
    two_bundles: Any, bundles: ModuleType, synthdp: Callable[..., Any], tmp_path: Path, text: str
) -> None:
    """Title, description, citation, unit, purpose of use and categories, in everything that a
    bundle shows; and it verifies.
    """
    tree = yaml.safe_load(bundles.SPEC)
    tree["privacy"] |= {"delta": 1e-5, "cap": {"epsilon": 9.0, "delta": 1e-3}}
    tree["dataset"] |= {
        "title": text,
        "description": f"First.\n{text}",
        "citation": text,
        "licence": text,
    }
    tree["dataset"]["privacy_unit"]["meaning"] = text
    tree["publication"] |= {"intended_use": text, "region": text, "justification": text}
    tree["columns"]["smoker"]["description"] = text
    if "\n" not in text:
        tree["columns"]["sex"]["categories"] = ["female", "male", f"x{text}"]
    release = bundles.make_release(
        tmp_path, yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    )
    folder = write_bundle(tmp_path / "bundle", release.content, ledger=release.ledger, force=False)
    plain_bundle = two_bundles[0]
    for name in ("README.md", "privacy/certificate.md"):
        headings = len(
            re.findall(
                r"^#{1,6} ",
                re.sub(
                    r"^```.*?^```",
                    "",
                    (plain_bundle / name).read_text(),
                    flags=re.DOTALL | re.MULTILINE,
                ),
                re.MULTILINE,
            )
        )
        assert_plain_markdown((folder / name).read_text(), headings)
    for name in ("graph.svg", "privacy/effects.svg", "privacy/profile.svg"):
        tags = {
            e.tag.rpartition("}")[2]
            for e in ElementTree.fromstring((folder / name).read_text()).iter()
        }
        assert not tags & (TAGS - {"svg"}), tags
    params = {k: str(v) for k, v in public_params(release.spec).items()}
    assert_plain_markdown(
        note(params, {}, [], PublicationVerdict(released=True), status="FINISHED"), 1
    )
    assert (
        Certificate.model_validate_json((folder / "privacy/certificate.json").read_text()).title
        == text
    )
    ended = synthdp("verify", folder)
    assert ended.code == 0, ended.printed


ESCAPES = [
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil.org\x1b\\x",
    "\x9b31m",
    "a\rb",
    "\x08\x08\x08ok",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\u2028x",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_nothing_moves_the_cursor(synthdp: Callable[..., Any], tmp_path: Path, text: str) -> None:
    """Owners of spends, dataset ids and mistakes in specs, as the terminal shows them."""
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.reserve(text, "run", epsilon=1.0, delta=1e-5, cap=None, body={"by": text, "unit": text})
    ledger.charge(text, "run", purpose=text, mechanism=text, event={})
    path = tmp_path / "spec.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                text: 1,
                "graph": {"edges": [text], "groups": {text: [text, text]}},
                "gates": [{"metric": text}],
            }
        )
    )
    (tmp_path / "header.csv").write_text(f"{text},b\n1,2\n", encoding="utf-8")
    for ended in (
        synthdp("budget", "--ledger", tmp_path / "ledger.db"),
        synthdp("budget", "--ledger", tmp_path / "ledger.db", "--json"),
        synthdp("budget", text, "--ledger", tmp_path / "ledger.db"),
        synthdp("validate", path),
        synthdp("init", tmp_path / "header.csv", "--out", tmp_path / "draft.yaml"),
    ):
        assert ended.declared and not re.search(
            "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", ended.printed
        ), ended.printed
    drawn = budget_svg(budget_facts(ledger, None))
    assert ElementTree.fromstring(drawn) is not None and "\x1b" not in drawn
    assert (
        text in budget_text(budget_facts(ledger, None)) or len(text) > 20
    )  # escaped where it is printed, and nowhere else


def test_printable_leaves_languages_alone() -> None:
    for text in (
        "Grüße\n\té",
        "\u05e9\u05dc\u05d5\u05dd",
        "\u0645\u0631\u062d\u0628\u0627",
        "\u65e5\u672c\u8a9e",
        "\U0001f600",
        "a\u00a0b",
        "\\x1b",
    ):
        assert printable(text) == text
    assert printable("\x1b\ud800\u202e\ufeff") == "\\x1b\\ud800\\u202e\\ufeff"


def test_plans_are_no_markup() -> None:
    """Rich reads brackets as styles unless told not to."""
    facts = {
        "dataset": "[red]d[/red]",
        "epsilon": 1.0,
        "epsilon_spent": 1.0,
        "delta": 1e-5,
        "adjacency": "add_remove",
        "rows_per_unit": 1,
        "spends": [
            {
                "purpose": "[bold]p[/bold]",
                "share": 1.0,
                "epsilon_alone": 1.0,
                "mechanism": "[/nothing]",
                "serves": ["[blink]graph"],
            }
        ],
        "ledger": {"spent_before": 0.0, "spent_after": 1.0, "cap": None, "rule": "addition"},
        "expected": {"cpu_seconds": 1, "memory_mb": 1},
        "quality": {
            "columns": [
                {
                    "column": "[link]c[/link]",
                    "levels": 2,
                    "tv1": 0.1,
                    "hidden_rows": 9.0,
                    "noisy_levels": 0,
                }
            ],
            "tv1": 0.1,
            "tables": 0,
            "noisy_tables": 0,
            "tests_on_levels": False,
            "weakest_correlation": None,
            "open_pairs": None,
            "decidable_pairs": None,
            "claims": [],
        },
    }
    text = plan_text(facts)
    assert (
        "[red]d[/red]" in text
        and "[link]c[/link]" in text
        and "[bold]p[/bold]" in text
        and "[/nothing]" in text
    )


@pytest.mark.parametrize(
    "name",
    ["../../x", "..", "/etc/x", "a/b", "a\\b", "~", "CON\0", "x\n", ".hidden", "-rf", "x" * 65, ""],
)
def test_a_dataset_id_cannot_leave_its_folder(base_spec: dict[str, Any], name: str) -> None:
    """The default output folder is releases/<dataset id>."""
    spec = {**base_spec, "dataset": {**base_spec["dataset"], "id": name}}
    with pytest.raises(Exception, match="mistake"):
        parse_spec(yaml.safe_dump(spec), path="s")


def test_hostile_column_names_count_like_others(base_spec: dict[str, Any]) -> None:
    """They are keys of dictionaries, never attributes, formats or queries."""
    names = [
        "__class__",
        "self",
        "{x}",
        "%s",
        "'; DROP TABLE x; --",
        "constructor",
        "__proto__",
        "null",
        "a.b[0]",
        "index",
        "level_0",
    ]
    spec = {
        **base_spec,
        "columns": {n: {"type": "boolean"} for n in names},
        "graph": {"mode": "none"},
        "evaluation": {"enabled": False},
    }
    loaded = parse_spec(yaml.safe_dump(spec, sort_keys=False), path="s")
    domain = Domain.from_spec(loaded.columns)
    assert domain.names == tuple(names)
    assert "discrete Gaussian" in NoisyMarginals(domain, tuple((n,) for n in names), 1.0).name
