"""`python -m benchmarks.house`: the measures of the house, from the source files alone.

Rooms are the folders of the product, arrows the imports between two of them. A decision is a branch
that a reader must follow: `if`, `elif`, `for`, `while`, `except`, `case`, a conditional expression,
a comprehension and each of its conditions, and each `and` or `or`. Lines are counted with blank
lines and docstrings.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
PRODUCT = "synthdp"
BOUNDARY = ("privacy/*.py", "privacy/readers/*.py", "ledger/*.py")
LIMIT = 100  # characters of a line
MAX_MODULE, MAX_FUNCTION = 350, 60  # lines
BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
    ast.IfExp,
    ast.comprehension,
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Module:
    """One file of the product; `path` is below the product's folder."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Parsed."""
        return ast.parse(self.text)

    @property
    def lines(self) -> list[str]:
        """Without line ends."""
        return self.text.splitlines()

    @property
    def room(self) -> str | None:
        """The folder at the top, or nothing for a loose module."""
        return self.path.parts[0] if len(self.path.parts) > 1 else None

    def decisions(self) -> int:
        """Branches in this file."""
        return sum(_weight(node) for node in ast.walk(self.tree))

    def imports(self) -> Iterator[str]:
        """Dotted names below the product."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)

    def functions(self) -> Iterator[tuple[str, int]]:
        """Name and lines of each function, its docstring apart."""
        for node in ast.walk(self.tree):
            if isinstance(node, FUNCTIONS):
                first = node.body[0]
                text = len(ast.get_docstring(node, clean=False) or "") and (
                    (first.end_lineno or 0) - first.lineno + 1
                )
                yield node.name, (node.end_lineno or 0) - node.lineno + 1 - text


def _weight(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return int(isinstance(node, BRANCHES)) + (
        len(node.ifs) if isinstance(node, ast.comprehension) else 0
    )


def product(root: Path = ROOT) -> list[Module]:
    """Every module of the product."""
    folder = root / PRODUCT
    return [
        Module(path.relative_to(folder), path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.py"))
    ]


def arrows(modules: list[Module]) -> set[tuple[str, str]]:
    """Pairs of rooms, the first of which imports the second."""
    rooms = {m.room for m in modules if m.room}
    return {
        (module.room, parts[1])
        for module in modules
        for name in module.imports()
        if (parts := name.split("."))[0] == PRODUCT and len(parts) > 1
        if module.room and parts[1] in rooms and parts[1] != module.room
    }


def public_names(modules: list[Module]) -> Iterator[tuple[str, bool]]:
    """Each public name of the Python face, and whether its docstring has an example."""
    for module in modules:
        if module.room != "api":
            continue
        for node in module.tree.body:
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_"):
                yield node.name, ">>>" in (ast.get_docstring(node) or "")


def measures(root: Path = ROOT) -> dict[str, str]:
    """The table: what is measured, and the figure."""
    modules = product(root)
    lengths = np.array([len(line) for m in modules for line in m.lines])
    total = len(lengths)
    boundary = [m for m in modules if any(m.path.match(pattern) for pattern in BOUNDARY)]
    contract = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(
        c["layers"] for c in contract["tool"]["importlinter"]["contracts"] if c["type"] == "layers"
    )
    long_modules = [str(m.path) for m in modules if len(m.lines) > MAX_MODULE]
    long_functions = [
        f"{m.path}:{name}" for m in modules for name, lines in m.functions() if lines > MAX_FUNCTION
    ]
    names = list(public_names(modules))
    return {
        "lines of the product": f"{total:,} in {len(modules)} files",
        "loose modules": str(sum(m.room is None for m in modules)),
        "rooms": str(len({m.room for m in modules if m.room})),
        "arrows between rooms": str(len(arrows(modules))),
        "layers of the import contract": str(len(layers)),
        "lines of the privacy boundary, readers and ledger": (
            f"{sum(len(m.lines) for m in boundary):,} in {len(boundary)} files"
        ),
        "line length, 90th percentile": f"{np.percentile(lengths[lengths > 0], 90):.0f}",
        f"lines over {LIMIT} characters": (
            f"{(lengths > LIMIT).sum()} ({(lengths > LIMIT).mean():.1%})"
        ),
        "decisions per 100 lines": f"{100 * sum(m.decisions() for m in modules) / total:.1f}",
        f"modules over {MAX_MODULE} lines": ", ".join(long_modules) or "none",
        f"functions over {MAX_FUNCTION} lines": ", ".join(long_functions) or "none",
        "examples in docstrings": str(sum(m.text.count(">>> ") for m in modules)),
        "public names of the Python face with an example": (
            f"{sum(has for _, has in names)} of {len(names)}"
        ),
    }


def main() -> None:
    """Print the table."""
    table = Table("measure", "now")
    for what, figure in measures().items():
        table.add_row(what, figure)
    Console().print(table)


if __name__ == "__main__":
    main()
