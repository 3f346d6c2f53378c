"""`python -m benchmarks.house`: the measures of the house, from the source files alone.

The product is `synthdp` and `attacks`. Code is what remains of lines without docstrings, comments,
blank lines and imports, so that a measure is not met by writing text. A decision is a branch that a
reader must follow: `if`, `elif`, `for`, `while`, `except`, `case`, a conditional expression, a
comprehension and each of its conditions, and each `and` or `or`. A tuning number is a name at the
top of a module for a number or for several. Rooms are the folders of `synthdp`, arrows the imports
between two of them.

`--walk` counts the files that a release of `docs/example/clinic.yaml` enters: those of which a
function runs.
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tempfile
import tokenize
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
SHEDS = ("attacks/synthdp_attacks",)
BOUNDARY = ("privacy/*.py", "privacy/readers/*.py", "ledger/*.py")
LIMIT = 100  # characters of a line
MAX_FUNCTION = 60  # lines
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
WALK = """
import json, sys, threading
seen = set()

def entered(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_name != "<module>" and {root!r} in code.co_filename:
        seen.add(code.co_filename)

threading.setprofile(entered)
sys.setprofile(entered)
import synthdp.cli.main
sys.argv = ["synthdp", "release", {spec!r}, "--out", {out!r}]
try:
    synthdp.cli.main.main()
except SystemExit as stop:
    assert not stop.code, stop.code
finally:
    sys.setprofile(None)
    print(json.dumps(sorted(seen)))
"""


@dataclass(frozen=True)
class Module:
    """One file of the product; `path` is below the product's folder."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Parsed."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of them, walked once for all measures."""
        return list(ast.walk(self.tree))

    @property
    def lines(self) -> list[str]:
        """Without line ends."""
        return self.text.splitlines()

    @property
    def room(self) -> str | None:
        """The folder at the top, or nothing for a loose module."""
        return self.path.parts[0] if len(self.path.parts) > 1 else None

    def code(self) -> int:
        """Lines that are neither blank, nor of a comment, a docstring or an import."""
        held = {
            line
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline)
            if token.type not in NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
        for node in self.nodes:
            for inner in getattr(node, "body", None) or () if isinstance(node, DOCUMENTED) else ():
                if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
                    held -= set(range(inner.lineno, (inner.end_lineno or 0) + 1))
        return len(held) - self.import_lines()

    def decisions(self) -> int:
        """Branches in this file."""
        return sum(_weight(node) for node in self.nodes)

    def import_lines(self) -> int:
        """Lines of import statements."""
        return sum(
            (node.end_lineno or 0) - node.lineno + 1
            for node in self.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
        )

    def numbers(self) -> int:
        """Names at the top of the module that stand for numbers alone."""
        return sum(
            _numeric(node.value)
            * (len(node.targets[0].elts) if isinstance(node.targets[0], ast.Tuple) else 1)
            for node in self.tree.body
            if isinstance(node, ast.Assign)
        ) + sum(
            node.value is not None and _numeric(node.value)
            for node in self.tree.body
            if isinstance(node, ast.AnnAssign)
        )

    def imports(self) -> Iterator[str]:
        """Dotted names below the product."""
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)

    def functions(self) -> Iterator[tuple[str, int]]:
        """Name and lines of each function, its docstring apart."""
        for node in self.nodes:
            if isinstance(node, FUNCTIONS):
                first = node.body[0]
                text = len(ast.get_docstring(node, clean=False) or "") and (
                    (first.end_lineno or 0) - first.lineno + 1
                )
                yield node.name, (node.end_lineno or 0) - node.lineno + 1 - text


DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def _weight(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return int(isinstance(node, BRANCHES)) + (
        len(node.ifs) if isinstance(node, ast.comprehension) else 0
    )


def _numeric(node: ast.expr) -> bool:
    """Whether an expression is made of numbers alone."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return _numeric(node.operand)
    if isinstance(node, ast.BinOp):
        return _numeric(node.left) and _numeric(node.right)
    return isinstance(node, ast.Tuple) and bool(node.elts) and all(map(_numeric, node.elts))


def product(root: Path = ROOT) -> list[Module]:
    """Every module of `synthdp`."""
    return modules(root / PRODUCT)


def modules(folder: Path) -> list[Module]:
    """Every module below a folder."""
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


def imported_by_tests(root: Path = ROOT) -> set[str]:
    """Modules of the product that a file of `tests` imports by name, the package itself apart."""
    folders = {PRODUCT: root / PRODUCT, "synthdp_attacks": root / SHEDS[0]}
    there = {
        ".".join((name, *m.path.with_suffix("").parts)).removesuffix(".__init__")
        for name, folder in folders.items()
        for m in modules(folder)
    } - folders.keys()
    asked = {name for m in modules(root / "tests") for name in m.imports()}
    return {name if name in there else name.rpartition(".")[0] for name in asked} & there


def entered(root: Path = ROOT) -> list[str]:
    """Files of which a release of the clinic runs a function, without an attack and tracking."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for source in (root / "docs" / "example").iterdir():
            if source.is_file():
                (work / source.name).write_bytes(source.read_bytes())
        code = WALK.format(root=f"{root}/", spec=str(work / "clinic.yaml"), out=str(work / "out"))
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
        )
    files = [Path(name).relative_to(root) for name in json.loads(run.stdout.splitlines()[-1])]
    return [str(f) for f in files if f.parts[0] in (PRODUCT, "attacks")]


def measures(root: Path = ROOT) -> dict[str, str]:
    """The table: what is measured, and the figure."""
    rooms = product(root)
    every = rooms + [m for shed in SHEDS for m in modules(root / shed)]
    lengths = np.array([len(line) for m in every for line in m.lines])
    total, code = len(lengths), sum(m.code() for m in every)
    boundary = [m for m in rooms if any(m.path.match(pattern) for pattern in BOUNDARY)]
    contract = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(
        c["layers"] for c in contract["tool"]["importlinter"]["contracts"] if c["type"] == "layers"
    )
    functions = [(m, name, lines) for m in every for name, lines in m.functions()]
    long_functions = [f"{m.path}:{name}" for m, name, lines in functions if lines > MAX_FUNCTION]
    names = list(public_names(rooms))
    return {
        "lines of the product": str(total),
        "files": str(len(every)),
        "lines of code": str(code),
        "lines a file, median": f"{np.median([len(m.lines) for m in every]):.0f}",
        "decisions per 100 lines of code": f"{100 * sum(m.decisions() for m in every) / code:.1f}",
        "imports, % of lines": f"{100 * sum(m.import_lines() for m in every) / total:.1f}",
        "functions per 1,000 lines": f"{1000 * len(functions) / total:.1f}",
        "tuning numbers of modules": str(sum(m.numbers() for m in every)),
        "modules that tests import by name": str(len(imported_by_tests(root))),
        "loose modules": str(sum(m.room is None for m in rooms)),
        "rooms": str(len({m.room for m in rooms if m.room})),
        "arrows between rooms": str(len(arrows(rooms))),
        "layers of the import contract": str(len(layers)),
        "lines of the privacy boundary, readers and ledger": (
            f"{sum(len(m.lines) for m in boundary):,} in {len(boundary)} files"
        ),
        "line length, 90th percentile": f"{np.percentile(lengths[lengths > 0], 90):.0f}",
        f"lines over {LIMIT} characters": (
            f"{(lengths > LIMIT).sum()} ({(lengths > LIMIT).mean():.1%})"
        ),
        f"functions over {MAX_FUNCTION} lines": ", ".join(long_functions) or "none",
        "examples in docstrings": str(sum(m.text.count(">>> ") for m in every)),
        "public names of the Python face with an example": (
            f"{sum(has for _, has in names)} of {len(names)}"
        ),
    }


def main() -> None:
    """Print the table."""
    table = Table("measure", "now")
    for what, figure in measures().items():
        table.add_row(what, figure)
    if "--walk" in sys.argv:
        table.add_row("files that a release enters", str(len(entered())))
    Console().print(table)


if __name__ == "__main__":
    main()
