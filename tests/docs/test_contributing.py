"""What CONTRIBUTING.md says to run for a room tests it; CHANGELOG.md stays a page for users, and
CITATION.cff is of this project.
"""

import re
import tomllib
from collections import defaultdict

import yaml

from tests.docs.pages import ROOT, prose

PAGE = ROOT / "CONTRIBUTING.md"
PRODUCT, TESTS = ROOT / "synthdp", ROOT / "tests"


def told() -> dict[str, set[str]]:
    """Folders and files of tests, by room."""
    lines = re.findall(r"^\| (`[a-z].*?) \| (`tests/.*?) \|$", prose(PAGE), re.MULTILINE)
    return {
        room: set(re.findall(r"`(tests/[\w./]+)`", tests))
        for rooms, tests in lines
        for room in re.findall(r"`([\w/]+)`", rooms)
    }


def imported() -> dict[str, set[str]]:
    """Rooms that are imported below each folder of tests, and by each file beside them."""
    found = defaultdict(set)
    for path in TESTS.rglob("*.py"):
        own = path.relative_to(TESTS).parts[0]
        text = path.read_text(encoding="utf-8")
        found[f"tests/{own}"] |= set(re.findall(r"\b(?:from|import) synthdp\.(\w+)", text))
    return found


def rooms() -> set[str]:
    return {
        path.stem
        for path in PRODUCT.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    } - {"__init__", "__main__"}


def test_each_room_has_a_line_of_tests_that_import_it() -> None:
    lines, brought = told(), imported()
    assert rooms() | {"attacks/", "benchmarks/", "docs/"} == set(lines)
    for room in rooms() - {"api"}:  # imported as `synthdp`
        assert any(room in brought[tests] for tests in lines[room]), room
        assert f"tests/{room}" not in brought or f"tests/{room}" in lines[room], room


def test_each_folder_of_tests_is_in_a_line() -> None:
    named = set().union(*told().values())
    assert all((ROOT / name).exists() for name in named)
    folders = {path.parent for path in TESTS.glob("*/test_*.py")}
    assert {f"tests/{folder.name}" for folder in folders} - named == {"tests/broken_kernels"}
    assert "make broken" in PAGE.read_text(encoding="utf-8")


def test_the_citation_says_what_the_package_says() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert cited["title"] == package["name"] and cited["abstract"] == package["description"]
    for key in ("authors", "license", "keywords"):
        assert cited[key] == package[key], key


def test_each_version_of_the_changelog_is_a_page_by_what_it_means_for_users() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for version in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        assert version.count("\n") <= 60, version[:20]
        heads = re.findall(r"^### (.+)$", version, re.MULTILINE)
        assert heads in (["What breaks", "What is new", "What was wrong"], []), version[:20]
