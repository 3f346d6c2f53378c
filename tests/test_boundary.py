"""The privacy boundary as a property of the source tree: who may open, read, unpickle and import
what.

Each rule is a scan of every module's syntax tree; each is also run on a planted module that breaks
it.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import synthdp
from synthdp.privacy.private import Released

ROOT = Path(__file__).parent.parent
KERNEL = "synthdp/privacy/"

# Confidential figures are opened here and nowhere else: the internal report, `synthdp inspect` and
# the MLflow record (steward), the figures of gates that were opted into by name (judging), and the
# definition itself.
FOR_STEWARD = {
    "synthdp/audit/plan.py",
    "synthdp/release/judge.py",
    "synthdp/release/tracked.py",
    "synthdp/privacy/private.py",
}
# Besides the kernel's reader and what counts misfits with it: the header-only reader of `synthdp
# init`, the reader of public priors, and what writes, draws, compares, asks and verifies the
# synthetic table that a bundle publishes.
TABLE_READERS = {
    "synthdp/privacy/source.py",
    "synthdp/privacy/inspection.py",
    "synthdp/privacy/readers/files.py",
    "synthdp/privacy/engines/opening.py",
    "synthdp/privacy/readers/query.py",
    "synthdp/spec/draft.py",
    "synthdp/verify/content.py",
    "synthdp/verify/rewritten.py",
    "synthdp/bundle/table_files.py",
    "synthdp/bundle/content.py",
    "synthdp/bundle/linked.py",
    "synthdp/inference/model_only.py",
    "synthdp/release/job.py",
    "synthdp/release/prior.py",
    "synthdp/verify/diff.py",
}
KEY_HOLDERS = (KERNEL,)
# `door` imports by name: the modules that a room's front names as constants, and of these no name
# that begins with an underscore.
DOOR = "synthdp/__init__.py"

Finding = tuple[str, int, str]
Rule = Callable[[str, ast.AST], Iterator[tuple[int, str]]]


def modules(root: Path) -> Iterator[tuple[str, ast.AST]]:
    for folder in ("synthdp", "attacks", "benchmarks", "specs"):
        for path in sorted((root / folder).rglob("*.py")):
            if "mlflow-artifacts" in path.parts:  # of a release that was made here
                continue
            yield path.relative_to(root).as_posix(), parsed(path.read_text(encoding="utf-8"))


@cache
def parsed(source: str) -> ast.AST:
    """Each rule scans the same trees."""
    return ast.parse(source)


def breaches(root: Path, rule: Rule) -> list[Finding]:
    return [(name, line, what) for name, tree in modules(root) for line, what in rule(name, tree)]


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Dotted names of everything that is imported, statically or by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module or ''}.{alias.name}") for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
            and node.args
        ):
            yield (
                node.lineno,
                ast.literal_eval(node.args[0]) if isinstance(node.args[0], ast.Constant) else "?",
            )


def words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every identifier, attribute, keyword and text constant except docstrings: the places a name
    can hide in.
    """
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.alias):
            yield node.lineno, node.name
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.lineno, node.value


def called(tree: ast.AST) -> Iterator[tuple[int, str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func).rpartition(".")[2], node


def key_outside_kernel(name: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    if not name.startswith(KEY_HOLDERS):
        for line, word in words(tree):
            if any(
                part in word for part in ("_KERNEL_KEY", "KERNEL_K", "unseal", "_check_key")
            ) or word in ("_open", "_private"):
                yield line, word


def reflection(name: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """`getattr` with a name put together from parts could fetch the key, in a module that imports
    the kernel.
    """
    if name.startswith(KEY_HOLDERS):
        return
    near = any(what.startswith("synthdp.privacy") for _, what in imported(tree))
    for line, word, call in called(tree):
        if word in ("eval", "exec", "__import__", "compile") and isinstance(call.func, ast.Name):
            yield line, word
        if (word == "door" or (word in ("import_module", "vars") and name != DOOR)) and not all(
            isinstance(a, ast.Constant) or (word == "door" and ast.unparse(a) == "__name__")
            for a in call.args
        ):
            yield line, word
        if (
            near
            and word in ("getattr", "attrgetter")
            and any(isinstance(a, ast.BinOp | ast.JoinedStr | ast.Call) for a in call.args[-1:])
        ):
            yield line, word
    for line, word in words(tree):
        if word in (
            "__globals__",
            "__closure__",
            "cell_contents",
            "get_referents",
            "get_referrers",
        ):
            yield line, word


def steward_only(name: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    if name not in FOR_STEWARD:
        yield from ((line, word) for line, word in words(tree) if word == "for_steward")


def table_reader(name: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    if name in TABLE_READERS or name.startswith(
        "benchmarks/"
    ):  # benchmarks read public tables only
        return
    readers = (
        "read_csv",
        "read_parquet",
        "read_sql",
        "read_sql_query",
        "read_query",
        "read_table",
        "read_excel",
        "read_feather",
        "read_json",
    )
    readers += (
        "genfromtxt",
        "loadtxt",
        "ParquetFile",
        "ParquetDataset",
        "open_csv",
        "read_csv_file",
        "read_parquet_files",
        "read_private",
        "read_texts",
    )
    allowed = (
        {"read_private", "read_texts"}
        if name in ("synthdp/audit/plan.py", "synthdp/release/open_session.py")
        else set()
    )
    yield from (
        (line, word) for line, word, _ in called(tree) if word in readers and word not in allowed
    )


def foreign_import(package: str, *homes: str) -> Rule:
    def rule(name: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
        if name not in homes and not name.startswith("benchmarks/"):
            yield from (
                (line, what) for line, what in imported(tree) if what.split(".")[0] == package
            )

    return rule


def unpickling(name: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    for line, what in imported(tree):
        if what.split(".")[0] in ("pickle", "cloudpickle", "dill", "shelve", "marshal"):
            yield line, what
    for line, word, call in called(tree):
        target = ast.unparse(call.func)
        if target in (
            "torch.load",
            "torch.save",
            "joblib.load",
            "joblib.dump",
            "pd.read_pickle",
        ) or word in ("read_pickle", "to_pickle"):
            yield line, target
        for keyword in call.keywords:
            if keyword.arg == "allow_pickle" and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                yield line, "allow_pickle"


def mechanism_outside_kernel(name: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """A class with `event` and `run` states its own price and sees rows: only the kernel may hold
    one.
    """
    if name.startswith(KERNEL):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            methods = {m.name for m in node.body if isinstance(m, ast.FunctionDef)}
            if {"event", "run"} <= methods:
                yield node.lineno, node.name


def global_randomness(name: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    for line, what in imported(tree):
        if what.split(".")[0] == "random":
            yield line, what
    for line, _, call in called(tree):
        target = ast.unparse(call.func)
        if target in (
            "np.random.seed",
            "numpy.random.seed",
            "torch.manual_seed",
            "np.random.rand",
            "np.random.normal",
        ):
            yield line, target


RULES: dict[str, Rule] = {
    "the kernel's key": key_outside_kernel,
    "reflection": reflection,
    "for_steward": steward_only,
    "readers of tables": table_reader,
    "opacus": foreign_import(
        "opacus", "synthdp/privacy/dpsgd/training.py", "synthdp/privacy/dpsgd/training.py"
    ),
    "mlflow": foreign_import(
        "mlflow",
        "synthdp/tracking/mlflow_run.py",
        "synthdp/tracking/store.py",
        "synthdp/tracking/store.py",
        "synthdp/tracking/drawn_rows.py",
        "synthdp/tracking/server.py",
    ),
    "pickle": unpickling,
    "mechanisms": mechanism_outside_kernel,
    "randomness": global_randomness,
}

PLANTED: dict[str, tuple[str, ...]] = {
    "the kernel's key": (
        "from synthdp.privacy.private import _KERNEL_KEY",
        "from synthdp.privacy import private as p\nkey = p._KERNEL_KEY",
        "import synthdp.privacy.private as p\nkey = getattr(p, '_KERNEL_KEY')",
        "rows = session._private",
        "def f(x):\n    return x._open()",
        "def f(sealed, key):\n    return sealed.unseal(key=key)",
    ),
    "reflection": (
        "from synthdp.privacy import private\nkey = getattr(private, '_KERNEL' + '_KEY')",
        "from synthdp.privacy import private\nkey = vars(private)",
        "import importlib\nm = importlib.import_module('synthdp.' + 'privacy.private')",
        "from synthdp import door\nfind = door('synthdp.' + 'privacy', 'private')",
        "from synthdp import door\nfind = door(__name__, 'privacy' + '.private')",
        "x = eval('1')",
        "from synthdp.privacy.private import Private\nkey = Private.unseal.__globals__",
    ),
    "for_steward": (
        "def f(c):\n    return c.for_steward()",
        "def f(c):\n    return getattr(c, 'for_steward')()",
    ),
    "readers of tables": (
        "import pandas as pd\nt = pd.read_csv('x')",
        "from pandas import read_parquet\nt = read_parquet('x')",
    ),
    "opacus": ("import opacus", "def f():\n    from opacus.optimizers import DPOptimizer"),
    "mlflow": (
        "def f():\n    import mlflow",
        "import importlib\nm = importlib.import_module('mlflow')",
    ),
    "pickle": (
        "import pickle",
        "import torch\nw = torch.load('x')",
        "import numpy as np\na = np.load('x', allow_pickle=True)",
        "import numpy as np\na = np.load('x', allow_pickle=bool(1))",
    ),
    "mechanisms": (
        (
            "class M:\n    def event(self, rows):\n        ...\n    def run(self, table,"
            " streams):\n        return table"
        ),
    ),
    "randomness": (
        "import random",
        "import numpy as np\nnp.random.seed(1)",
        "import torch\ntorch.manual_seed(1)",
    ),
}


@pytest.mark.check
@pytest.mark.parametrize("rule", RULES)
def test_the_tree_keeps_the_rule(rule: str) -> None:
    assert breaches(ROOT, RULES[rule]) == []


@pytest.mark.parametrize(
    ("rule", "code"), [(rule, code) for rule, codes in PLANTED.items() for code in codes]
)
def test_a_planted_breach_is_found(rule: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "synthdp").mkdir()
    (tmp_path / "synthdp" / "breach.py").write_text(code)
    assert breaches(tmp_path, RULES[rule]) != []


def test_every_rule_has_a_planted_breach() -> None:
    assert set(PLANTED) == set(RULES)


def test_allow_lists_name_files_that_exist() -> None:
    assert all((ROOT / name).exists() for name in FOR_STEWARD | TABLE_READERS)


def test_a_docstring_may_speak_of_the_key() -> None:
    tree = ast.parse('"""About _KERNEL_KEY."""\nclass A:\n    """unseal."""\n')
    assert list(key_outside_kernel("synthdp/x.py", tree)) == []


@pytest.fixture(scope="module")
def lint_imports() -> str:
    found = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if found is None or "[tool.importlinter]" not in (ROOT / "pyproject.toml").read_text():
        pytest.skip("import-linter is not set up here")
    return found


def run_linter(executable: str, root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [executable, "--no-cache"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "attacks")])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.check
def test_import_contracts_catch_a_breach(lint_imports: str, tmp_path: Path) -> None:
    for name in ("synthdp", "attacks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    breach = textwrap.dedent("""
        from synthdp.privacy import ledger
        import synthdp.spec.models
    """)
    with (tmp_path / "attacks" / "synthdp_attacks" / "errors.py").open("a") as module:
        module.write(breach)
    done = run_linter(lint_imports, tmp_path)
    assert done.returncode != 0
    assert "attacks stand alone BROKEN" in done.stdout


def test_a_door_opens_no_private_name() -> None:
    found = synthdp.door("synthdp.privacy", "private")
    assert found("Released") is Released
    with pytest.raises(AttributeError, match="no attribute '_KERNEL_KEY'"):
        found("_KERNEL_KEY")
