"""Links lead somewhere, and what the text names exists."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import typer

from synthdp.cli.main import app
from synthdp.errors import SpecError
from tests.docs.fragments import load_laid_over
from tests.docs.pages import PAGES, ROOT, anchors, blocks, inline_code, links, prose

EACH = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
ADULT = ROOT / "specs" / "adult.yaml"
WIDTH = 100  # characters of a line of prose; tables and code are as wide as they must be
NOT_REFILLED = ("docs/dashboard.md", "docs/reference/spec.md")


def broken(page: Path) -> list[str]:
    """Links of a page that lead nowhere; those into the network are not followed."""
    found = []
    for target in links(page):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if (
            not file.exists()
            or not file.is_relative_to(ROOT)
            or (anchor and anchor not in anchors(file))
        ):
            found.append(target)
    return found


@EACH
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_every_result_is_linked_from_a_page_of_benchmarks() -> None:
    told = {target for page in (ROOT / "docs" / "benchmarks").iterdir() for target in links(page)}
    results = (ROOT / "benchmarks" / "results").iterdir()
    assert {f"../../{path.relative_to(ROOT)}" for path in results} <= told


def test_every_benchmark_is_named_on_the_page_of_benchmarks_and_shown_on_another() -> None:
    named = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "benchmarks.md").read_text("utf-8")))
    pages = "".join(p.read_text("utf-8") for p in (ROOT / "docs" / "benchmarks").iterdir())
    shown = set(re.findall(r"python -m\s+benchmarks\.(\w+)", pages))
    assert shown and shown == named


def test_a_broken_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.test_links.ROOT", tmp_path)
    (tmp_path / "a.md").write_text(
        "# One thing\n[a](b.md) [b](#one-thing) [c](#another) [`d`](../x.md)"
        " [e](https://x.example/) ![f](p.png)\n"
    )
    assert broken(tmp_path / "a.md") == ["b.md", "#another", "../x.md", "p.png"]


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    reached = {(index.parent / target.partition("#")[0]).resolve() for target in links(index)}
    assert {p for p in PAGES if p.is_relative_to(ROOT / "docs")} - {index} <= reached
    assert index in {(ROOT / target).resolve() for target in links(ROOT / "README.md")}


@pytest.mark.check
@EACH
def test_commands_of_the_page_exist(page: Path) -> None:
    shown = [
        line.removeprefix("$ ").partition(" #")[0]
        for block in blocks(page)
        if block.language in ("sh", "console")
        for line in block.text.splitlines()
    ]
    wrong = [code for code in [*inline_code(page), *shown] if not _exists(code)]
    assert wrong == []


def _exists(code: str) -> bool:
    words = (
        shlex.split(code.replace("'", ""))
        if code.startswith(("synthdp ", "make ", "python ", "pytest "))
        else []
    )
    match words:
        case ["synthdp", *rest]:
            return command_exists(rest)
        case ["make", target, *_]:
            return (
                re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) is not None
            )
        case ["python", "-m", module, *_] if module.partition(".")[0] in (
            "benchmarks",
            "synthdp",
            "tests",
        ):
            path = module.replace(".", "/")
            files = (ROOT / f"{path}.py", ROOT / path / "__main__.py")
            return module == "benchmarks.NAME" or any(file.exists() for file in files)
        case ["python", script, *_] if script.endswith(".py"):
            return (ROOT / script).exists()
        case ["pytest", *rest]:
            return all(_test_exists(word) for word in rest if word.startswith("tests/"))
    return (
        _test_exists(code)
        if (code.startswith("tests/") and code.endswith(".py")) or "::test" in code
        else True
    )


program = cache(typer.main.get_command)


def command_exists(words: list[str]) -> bool:
    """Whether `synthdp` has such a command with such options."""
    command = program(app)
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return False
        command, words = command.commands[words[0]], words[1:]
    known = {
        "--help",
        *(
            option
            for parameter in command.params
            for option in [*parameter.opts, *parameter.secondary_opts]
        ),
    }
    return all(word in known for word in words if word.startswith("--"))


def _test_exists(name: str) -> bool:
    path, _, function = name.removeprefix("pytest ").partition("::")
    file = ROOT / path
    return file.exists() and (
        not function or f"def {function}(" in file.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize(
    ("code", "exists"),
    [
        ("synthdp plan --json", True),
        ("synthdp graph diff", True),
        ("synthdp plam", False),
        ("synthdp plan --jsom", False),
        ("make test", True),
        ("make tests", False),
        ("python -m benchmarks.adult", True),
        ("python -m benchmarks.odult", False),
        ("python -m tests.differential --pairs N", True),
        ("python -m tests.data", False),
        ("pytest tests/test_specs.py::test_nothing", False),
        ("tests/spec/test_load.py", True),
        ("tests/spec/test_spec_lood.py", False),
        ("clip", True),
    ],
)
def test_what_exists(code: str, exists: bool) -> None:
    assert _exists(code) is exists


@EACH
def test_settings_in_the_text_are_allowed(page: Path) -> None:
    """`section: {...}`, laid over specs/adult.yaml."""
    for code in inline_code(page):
        if re.match(r"(privacy|synthesizer|graph|evaluation|sampling|attacks): \{", code):
            load_laid_over(ADULT, code)


def test_settings_that_are_not_allowed_are_found() -> None:
    load_laid_over(ADULT, "sampling: {rake: false}\nprivacy: {pairs: []}")
    for wrong in (
        "sampling: {rate: false}",
        "privacy: {shares: {measure: 0.25, pairs: 0.2, train: 0.55}, pairs: [[gain, income]]}",
    ):
        with pytest.raises(SpecError):
            load_laid_over(ADULT, wrong)


@EACH
def test_prose_is_filled_to_the_width(page: Path) -> None:
    if str(page.relative_to(ROOT)) in NOT_REFILLED:
        pytest.skip("generated")
    wide = [line for line in prose(page).splitlines() if len(line) > WIDTH and line[0] != "|"]
    assert wide == []


def test_blocks_of_every_page_have_a_language_that_is_tested() -> None:
    """Only listings of folders have none; no test builds the image."""
    known = {"sh", "console", "yaml", "python", "r", "dockerfile", ""}
    assert {block.language for page in PAGES for block in blocks(page)} <= known
