"""Names of the program in its docstrings, comments and pages are names that it has."""

import ast
import importlib.util
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import synthdp
from synthdp.spec.model import ReleaseSpec
from tests.docs.pages import PAGES, ROOT, inline_code
from tests.release.test_settings import models

pytestmark = pytest.mark.check

DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)+)`")
FILES = re.compile(r".*\.(csv|html|j2|json|md|py|safetensors|svg|yaml)")
PATH = re.compile(r"([\w/]+/\w+\.py)(?::(\w+))?")
Tree = ast.Module | ast.ClassDef | ast.FunctionDef


def members(tree: Tree) -> dict[str, ast.AST]:
    """What a module, a class or a function gives a name to, by name."""
    named = dict[str, ast.AST]()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            named[node.name] = node
        for target in (*getattr(node, "targets", ()), getattr(node, "target", None)):
            parts = ast.walk(target) if target is not None else ()
            named |= {part.id: part for part in parts if isinstance(part, ast.Name)}
    return named


class Program:
    """The modules of a package, and how what they say of one another is found."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.rglob("*.py"))
        self.trees = [ast.parse(file.read_text(encoding="utf-8")) for file in self.files]
        self.known = dict[str, list[ast.AST]]()
        for file, tree in zip(self.files, self.trees, strict=True):
            parts = file.relative_to(folder.parent).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            for start in range(len(parts)):
                self.known.setdefault(".".join(parts[start:]), []).append(tree)
            for name, inner in members(tree).items():
                if isinstance(inner, ast.ClassDef):
                    self.known.setdefault(name, []).append(inner)

    def has(self, dotted: str) -> bool:
        """Whether some module or class, and what follows it, has this name."""
        first, _, rest = dotted, "", ""
        while first not in self.known and "." in first:
            first, _, last = first.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
        found = self.known.get(first, [])
        for name in rest.split(".") if rest else ():
            found = [members(tree)[name] for tree in map(_tree, found) if name in members(tree)]
        return bool(found)

    def texts(self) -> Iterator[tuple[Path, str]]:
        """Docstrings and comments."""
        for file, tree in zip(self.files, self.trees, strict=True):
            for node in ast.walk(tree):
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                    yield file, str(node.value.value)
            lines = io.StringIO(file.read_text(encoding="utf-8")).readline
            for token in tokenize.generate_tokens(lines):
                if token.type == tokenize.COMMENT:
                    yield file, token.string


def _tree(node: ast.AST) -> Tree:
    return node if isinstance(node, Tree) else ast.Module([], [])


def settings(model: Any, before: str = "") -> Iterator[str]:
    """The keys of a spec as texts name them, such as `privacy.shares.graph`."""
    for name, info in model.model_fields.items():
        yield before + name
        for inside in models(info.annotation):
            yield from settings(inside, f"{before}{name}.")


def strangers(program: Program) -> set[str]:
    """Dotted names in a program's texts that are none of its own, of a spec, or of a library."""
    keys = {*settings(ReleaseSpec)}
    found = set()
    for file, text in program.texts():
        for name in DOTTED.findall(text):
            first = name.partition(".")[0]
            of_a_program = first in program.known or name.rpartition(".")[2][0].isupper()
            library = first != "synthdp" and importlib.util.find_spec(first) is not None
            public = first == "synthdp" and name.partition(".")[2] in synthdp.__all__
            if of_a_program and not (
                program.has(name) or name in keys or FILES.fullmatch(name) or library or public
            ):
                found.add(f"{file.relative_to(program.files[0].parents[1])}: {name}")
    return found


def test_names_in_docstrings_are_there() -> None:
    assert sorted(strangers(Program(ROOT / "synthdp"))) == []


def test_files_that_pages_name_are_there() -> None:
    product, wrong = Program(ROOT / "synthdp"), []
    for page in PAGES:
        for code in inline_code(page):
            named = PATH.fullmatch(code)
            if page.name == "CHANGELOG.md" or named is None or "NAME" in code:
                continue
            path, name = named.groups()
            files = [f for f in (ROOT / path, *product.files) if f.match(path) and f.exists()]
            if not files or (name and not any(_has(file, name) for file in files)):
                wrong.append(f"{page.name}: {code}")
    assert wrong == []


def _has(file: Path, name: str) -> bool:
    return name in members(ast.parse(file.read_text(encoding="utf-8")))


def test_a_name_that_is_not_there_is_found(tmp_path: Path) -> None:
    package = tmp_path / "made"
    package.mkdir()
    (package / "here.py").write_text('"""See `here.f` and `here.g`, and `gone.LIMIT`."""\nf = 1\n')
    assert strangers(Program(package)) == {"made/here.py: here.g", "made/here.py: gone.LIMIT"}
