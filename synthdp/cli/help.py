"""Where each command stands in `synthdp --help`, and the examples at the end of its own help.

The panels are the headings of docs/commands.md.
"""

from __future__ import annotations

from typing import Any

_BUNDLE = "releases/mytable/bundle"

COMMANDS: dict[str, dict[str, tuple[str, ...]]] = {
    "Before a release": {
        "doctor": ("synthdp doctor", "synthdp doctor mytable.yaml"),
        "init": (
            "synthdp init mytable.csv --rows 5000 --out mytable.yaml",
            "synthdp init --builtin pain1000 --out pain1000.yaml",
            "synthdp init mytable.csv --private --cap 3 1e-4 --unit row --meaning person",
        ),
        "validate": ("synthdp validate mytable.yaml",),
        "inspect": (
            "synthdp inspect mytable.yaml",
            "synthdp inspect mytable.yaml --examples --out misfits.txt",
        ),
        "plan": ("synthdp plan mytable.yaml", "synthdp plan mytable.yaml --what-if 0.5,1,2,4"),
        "schema": ("synthdp schema > spec.schema.json",),
    },
    "A release": {
        "release": (
            "synthdp release mytable.yaml",
            "synthdp release mytable.yaml --out releases/second --json",
            "synthdp release mytable.yaml --attack later",
        ),
        "resume": (
            "synthdp resume releases/mytable",
            "synthdp resume releases/mytable --spec looser.yaml",
            "synthdp resume releases/mytable --without attack",
        ),
        "attack": ("synthdp attack releases/mytable",),
        "budget": (
            "synthdp budget mytable",
            "synthdp budget mytable --set-cap 3 1e-4",
            f"synthdp budget --check {_BUNDLE} --svg budget.svg",
        ),
        "keygen": ("synthdp keygen keys",),
        "track": ("synthdp track releases/mytable",),
        "ui": ("synthdp ui mytable.yaml", "synthdp ui --store sqlite:///mlflow.db --no-browser"),
    },
    "A bundle": {
        "verify": (f"synthdp verify {_BUNDLE}", f"synthdp verify {_BUNDLE} --key publisher.pem"),
        "sample": (
            f"synthdp sample {_BUNDLE} --rows 1000 --out rows.parquet",
            f"synthdp sample {_BUNDLE} --rows 1000 --do smoker=no --seed 1",
            f"synthdp sample {_BUNDLE} --rows 1000 --given \"age >= 65 and sex == 'female'\"",
        ),
        "answer": (
            f"synthdp answer {_BUNDLE}",
            f'synthdp answer {_BUNDLE} "mean(visits) where age >= 65 by sex"',
            f"synthdp answer {_BUNDLE} \"share(smoker == 'yes')\" --json",
        ),
        "effect": (
            f"synthdp effect {_BUNDLE} --treatment smoker --outcome visits",
            f"synthdp effect {_BUNDLE} --treatment smoker --outcome visits --adjust age,sex",
        ),
        "export": (
            f"synthdp export {_BUNDLE} --to postgresql+psycopg://me@warehouse/research"
            " --table synthetic_mytable",
            f"synthdp export {_BUNDLE} --to sqlite:///mytable.db --table mytable --replace",
        ),
        "copies": (f"synthdp copies {_BUNDLE} --columns age,sex,visits --m 20 --out copies",),
        "diff": ("synthdp diff releases/first/bundle releases/second/bundle",),
        "index": ("synthdp index releases", "synthdp index releases --verify --out releases.html"),
    },
    "Graphs and audits": {
        "graph": ("synthdp graph show mytable.yaml",),
        "audit": (
            "synthdp audit mytable.yaml --simulated",
            f"synthdp audit {_BUNDLE} --replay",
        ),
    },
}
GRAPH_COMMANDS: dict[str, tuple[str, ...]] = {
    "show": (
        "synthdp graph show mytable.yaml",
        f"synthdp graph show {_BUNDLE} --format dot --out graph.dot",
    ),
    "diff": (f"synthdp graph diff mytable.yaml {_BUNDLE} --svg both.svg",),
    "learn": ("synthdp graph learn mytable.yaml",),
    "validate": ("synthdp graph validate mytable.yaml",),
    "orient": ("synthdp graph orient mytable.yaml age visits --score spearman",),
}


def shown(command: str) -> dict[str, Any]:
    """What Typer is told of a command."""
    panel = next(panel for panel, commands in COMMANDS.items() if command in commands)
    return {"rich_help_panel": panel, "epilog": _epilog(COMMANDS[panel][command])}


def shown_graph(command: str) -> dict[str, Any]:
    """What Typer is told of a command of `synthdp graph`."""
    return {"epilog": _epilog(GRAPH_COMMANDS[command])}


def ranks() -> dict[str, int]:
    """The place of each command in the help."""
    return {name: i for i, name in enumerate(n for c in COMMANDS.values() for n in c)}


def _epilog(examples: tuple[str, ...]) -> str:
    head = "Examples:" if len(examples) > 1 else "Example:"
    return "\n\n".join([head, *(f"`{example}`" for example in examples)])
