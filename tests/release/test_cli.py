"""The command line: what is printed where, exit codes, and that the light commands stay light."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import pytest
import yaml
from typer.main import get_command

from synthdp import __version__
from synthdp.cli.main import app
from synthdp.ledger.ledger import Ledger

pytestmark = pytest.mark.check

COMMANDS = (
    "validate",
    "schema",
    "init",
    "plan",
    "release",
    "resume",
    "verify",
    "sample",
    "answer",
    "effect",
    "copies",
    "budget",
    "diff",
    "doctor",
    "ui",
    "audit",
    "keygen",
)
HEAVY = (
    "torch",
    "opacus",
    "mlflow",
    "sklearn",
    "pandas",
    "opendp",
    "scipy",
    "matplotlib",
    "sqlalchemy",
    "dp_accounting",
    "joblib",
    "frictionless",
)


def test_help_names_every_command(synthdp: Any) -> None:
    assert synthdp("--version").out == f"synthdp {__version__}\n"
    done = synthdp("--help")
    assert done.code == 0 and all(f"│ {c} " in done.out for c in COMMANDS)
    for command in COMMANDS:
        assert synthdp(command, "--help").code == 0


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["plan"], ["validate", "--wrong", "x"], ["sample", "bundle", "--rows", "0"]],
)
def test_usage_errors_exit_2_and_say_what_is_wrong(synthdp: Any, arguments: list[str]) -> None:
    done = synthdp(*arguments)
    assert done.code == 2 and "Error:" in done.err and "internal" not in done.err and done.out == ""
    assert done.err.endswith("budget: nothing was spent\n")


def test_validate(tiny: Any, synthdp: Any) -> None:
    tiny.write()
    done = synthdp("validate", tiny.spec)
    assert done.code == 0
    assert "valid (6 columns, epsilon 1, graph given)" in done.out
    assert done.err == ""
    assert json.loads(synthdp("validate", tiny.spec, "--json").out) == {
        "valid": True,
        "dataset": "tiny",
        "columns": 6,
        "epsilon": 1.0,
        "graph": "given",
        "warnings": [],
    }


def test_validate_tells_every_mistake_with_its_place(tiny: Any, synthdp: Any) -> None:
    """Of fields, and where these are right, between sections."""
    edges = ["sexx -> smoker", "smoker -> sex", "sex -> smoker"]
    for sections, parts in (
        ({"privacy": {"epsilon": -1}, "synthesizer": {"stepz": 3}}, ("privacy.epsilon", "stepz")),
        ({"graph": {"mode": "given", "edges": edges}}, ("sexx", "cycle")),
    ):
        tiny.write(**sections)
        done = synthdp("validate", tiny.spec)
        assert done.code == 2 and done.out == "" and all(part in done.err for part in parts)
        assert f"{tiny.spec}:" in done.err and "did you mean" in done.err.lower()


def test_plan_reads_no_row_and_shows_the_ledger(tiny: Any, synthdp: Any) -> None:
    tiny.write()
    (tiny.folder / "table.csv").unlink()
    facts = json.loads(synthdp("plan", tiny.spec, "--json").out)
    assert facts["ledger"] == {"spent_before": 0, "spent_after": 1.0, "cap": 2.5}
    assert [s["purpose"] for s in facts["spends"]] == ["measure", "train"]
    assert 0.99 < facts["epsilon_spent"] <= 1.0
    text = synthdp("plan", tiny.spec)
    assert text.code == 0 and "ledger: 0 spent before, 1 after, cap 2.5" in text.out


def test_plan_says_when_the_cap_is_used_up(released: Any, synthdp: Any) -> None:
    released.write(privacy={"epsilon": 2.0})
    done = synthdp("plan", released.spec)
    assert done.code == 3
    assert "needs 2, 1.5 left on dataset tiny; cap 2.5" in done.err
    assert "epsilon" in done.out


def test_a_plan_is_composed_without_torch(tiny: Any) -> None:
    tiny.write(
        graph={"mode": "validate", "edges": ["sex -> smoker"]},
        privacy={"shares": {"measure": 0.2, "graph": 0.2, "train": 0.6}},
    )
    heavy = ("torch", "mlflow", "sklearn", "opacus", "pandas")
    probe = PROBE.format(arguments=["plan", str(tiny.spec), "--json"], heavy=heavy)
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=300
    )
    code, _, *imported = done.stderr.splitlines()[-1].split()  # on a busy machine more was said
    assert code == "0" and imported == [] and json.loads(done.stdout)["dataset"] == "tiny"


def test_schema_accepts_the_specs_that_load(synthdp: Any, tiny: Any) -> None:
    schema = json.loads(synthdp("schema").out)
    jsonschema.validate(
        json.loads(json.dumps(yaml.safe_load(tiny.write().spec.read_text()), default=str)), schema
    )


def test_init_writes_a_draft_from_the_header_alone(
    tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write()
    monkeypatch.chdir(tiny.folder)
    done = synthdp("init", "table.csv", "--out", "draft.yaml", "--no-ask")
    draft = (tiny.folder / "draft.yaml").read_text()
    assert done.code == 0 and "wrote draft.yaml" in done.err
    assert all(
        f"{name}:" in draft for name in ("sex", "grade", "smoker", "visits", "weight", "joined")
    )
    assert "female" not in draft and "2020-" not in draft  # nothing from rows
    again = synthdp("init", "table.csv", "--out", "draft.yaml", "--no-ask")
    assert again.code == 2
    assert "--force" in again.err
    assert (tiny.folder / "draft.yaml").read_text() == draft


def test_init_names_the_file_as_the_spec_will_find_it(
    tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tiny.folder / "specs").mkdir()
    tiny.write()
    (tiny.folder / "table.csv").rename(tiny.folder / "my tafel für alle.csv")
    monkeypatch.chdir(tiny.folder)
    synthdp("init", "my tafel für alle.csv", "--out", "specs/draft.yaml", "--no-ask")
    draft = (tiny.folder / "specs/draft.yaml").read_text(encoding="utf-8")
    source = yaml.safe_load(draft.replace("!fill_in", ""))["dataset"]["source"]
    assert (tiny.folder / "specs" / source["path"]).exists()


def test_init_previews_a_complete_draft_without_a_row(tiny: Any, synthdp: Any) -> None:
    out = tiny.folder / "pain.yaml"
    done = synthdp("init", "--builtin", "pain1000", "--out", out)
    assert done.code == 0 and "no row was read" in done.out and "it is complete" in done.err
    facts = json.loads(
        synthdp("init", "--builtin", "pain1000", "--out", out, "--force", "--json").out
    )
    assert facts["complete"]
    assert facts["left"] == 0
    assert all(c["levels"] == len(c["labels"]) > 1 for c in facts["columns"])
    tiny.write()
    left = json.loads(
        synthdp(
            "init",
            tiny.folder / "table.csv",
            "--out",
            tiny.folder / "draft.yaml",
            "--no-ask",
            "--json",
        ).out
    )
    assert not left["complete"] and left["left"] > 6 and left["columns"] == []


def _options(command: Any, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Every command by its full name, and its options."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _options(inner, f"{path} {name}".strip())
    else:
        yield path, [o for p in command.params for o in p.opts]


def test_every_command_has_json() -> None:
    found = dict(_options(get_command(app)))
    assert len(found) >= 19
    assert "graph show" in found
    assert [c for c, options in found.items() if "--json" not in options] == []


def test_shell_completion(tmp_path: Path) -> None:
    """As bash asks for it: which commands begin so."""
    command = tmp_path / "synthdp"
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.argv[0] = 'synthdp'\nfrom synthdp.cli.main import"
        " main\nmain()\n"
    )
    ask = {
        **os.environ,
        "_SYNTHDP_COMPLETE": "complete_bash",
        "COMP_WORDS": "synthdp va",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, command], env=ask, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["validate"]
    undetected = {
        **os.environ,
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }  # tests run under any shell
    done = subprocess.run(
        [sys.executable, command, "--show-completion", "bash"],
        env=undetected,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "_SYNTHDP_COMPLETE=complete_bash" in done.stdout and "complete -o default" in done.stdout


def test_release_prints_facts_to_stdout_and_progress_to_stderr(tiny: Any, synthdp: Any) -> None:
    tiny.write(gates=[{"metric": "tv1_noisy", "at_most": 1.0}])
    done = synthdp("release", tiny.spec, "--out", tiny.out, "--json")
    facts = json.loads(done.out)
    assert done.code == 0
    assert facts["bundle"] == str(tiny.bundle)
    assert facts["gates"] == [{"metric": "tv1_noisy", "bound": "at most 1", "passed": True}]
    assert "measure and train" in done.err and 0.99 < facts["epsilon_spent"] <= 1
    assert not {"tv1", "tv2", "tstr_auc"} & set(
        facts
    )  # figures on real rows stay in the internal report
    verified = json.loads(synthdp("verify", tiny.bundle, "--json").out)
    assert verified["valid"] is True and verified["delta"] == 1e-5


def test_a_tampered_bundle_fails_verification_with_6(released: Any, synthdp: Any) -> None:
    with (released.bundle / "synthetic.csv").open("a") as file:
        file.write("female,low,yes,3,60.0,2021-01-01\n")
    done = synthdp("verify", released.bundle)
    assert done.code == 6 and "synthetic.csv" in done.err and done.out == ""
    assert synthdp("verify", released.folder / "nowhere").code == 6


def test_budget(released: Any, synthdp: Any) -> None:
    ledger = released.folder / ".synthdp" / "ledger.db"
    text = synthdp("budget", "--ledger", ledger)
    assert text.code == 0
    assert "tiny: epsilon 1 spent, of 2.5, 1.5 left" in text.out
    assert "settled" in text.out
    data = json.loads(synthdp("budget", "tiny", "--ledger", ledger, "--json").out)["datasets"][0]
    assert (data["epsilon"], data["cap_epsilon"], len(data["runs"])) == (1.0, 2.5, 1)
    raised = synthdp("budget", "tiny", "--ledger", ledger, "--set-cap", "5", "1e-3")
    assert raised.code == 0 and "of 5, 4 left" in raised.out
    assert Ledger(f"sqlite:///{ledger}").balance("tiny").cap_epsilon == 5
    assert [e.kind for e in Ledger(f"sqlite:///{ledger}").entries()].count(
        "cap"
    ) == 2  # the change stays visible


def test_a_picture_that_cannot_be_written(released: Any, synthdp: Any) -> None:
    nowhere = released.folder / "nowhere" / "x.svg"
    for arguments in (
        ["budget", "--ledger", released.folder / ".synthdp/ledger.db"],
        ["graph", "diff", released.spec, released.bundle],
    ):
        done = synthdp(*arguments, "--svg", nowhere)
        assert done.code == 2
        assert f"cannot write {nowhere}: No such file" in done.err
        assert "another file with --svg" in done.err
    done = synthdp("graph", "show", released.spec, "--format", "dot", "--out", nowhere)
    assert done.code == 2 and f"cannot write {nowhere}" in done.err and "--out" in done.err


def test_the_output_folder_in_place_of_its_bundle(released: Any, synthdp: Any) -> None:
    for command in ("verify", "audit"):
        done = synthdp(command, released.out)
        assert done.code == 6
        assert "is the output folder of a release" in done.err
        assert f"did you mean {released.bundle}?" in done.err
        assert len(done.err.partition("synthdp: ")[2].splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["other"], "no dataset 'other'"),
        (["--set-cap", "5", "1e-3"], "needs a dataset id"),
        (["--ledger", "nowhere.db"], "no ledger at nowhere.db"),
    ],
)
def test_budget_mistakes(released: Any, synthdp: Any, arguments: list[str], says: str) -> None:
    where = (
        []
        if "--ledger" in arguments
        else ["--ledger", str(released.folder / ".synthdp" / "ledger.db")]
    )
    done = synthdp("budget", *arguments, *where)
    assert done.code == 3 and says in done.err
    assert not Path("nowhere.db").exists()


def test_an_edited_ledger_is_seen(released: Any, synthdp: Any) -> None:
    import sqlite3

    path = released.folder / ".synthdp" / "ledger.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "update synthdp_ledger set body = replace(body, '\"epsilon\": 1.0', '\"epsilon\": 0.1')"
            " where kind = 'reserve'"
        )
    connection.close()
    done = synthdp("budget", "--ledger", path)
    assert done.code == 6 and "row 2" in done.err


def test_sample_draws_without_limit_and_under_interventions(released: Any, synthdp: Any) -> None:
    out = released.folder / "more.csv"
    assert synthdp("sample", released.bundle, "--rows", "500", "--out", out).code == 0
    assert pd.read_csv(out).shape == (500, 6)
    forced = synthdp(
        "sample",
        released.bundle,
        "--rows",
        "40",
        "--do",
        "smoker=yes",
        "--do",
        "grade=missing",
        "--do",
        "weight=73.5",
    )
    lines = forced.out.splitlines()
    assert lines[0] == "sex,grade,smoker,visits,weight,joined" and len(lines) == 41
    assert all(line.split(",")[1:3] == ["", "yes"] for line in lines[1:])
    assert released.kinds().count("charge") == 2  # free


def test_sample_is_repeatable_with_a_seed_only(released: Any, synthdp: Any) -> None:
    a, b, c = (
        synthdp("sample", released.bundle, "--rows", "30", *seed).out
        for seed in (("--seed", "4"), ("--seed", "4"), ())
    )
    assert a == b != c


@pytest.mark.parametrize(
    ("do", "says"),
    [
        ("smoker", "COLUMN=VALUE"),
        ("smokr=yes", "unknown column"),
        ("smoker=maybe", "never, yes"),
        ("weight=500", "40 to 120"),
        ("sex=missing", "female"),
    ],
)
def test_sample_refuses_interventions_outside_the_domain(
    released: Any, synthdp: Any, do: str, says: str
) -> None:
    done = synthdp("sample", released.bundle, "--rows", "5", "--do", do)
    assert done.code == 2 and says in done.err and done.out == ""


def test_sample_conditions_and_writes_parquet_and_facts(released: Any, synthdp: Any) -> None:
    out = released.folder / "more.parquet"
    done = synthdp(
        "sample",
        released.bundle,
        "--rows",
        "50",
        "--given",
        "smoker=yes",
        "--do",
        "sex=male",
        "--out",
        out,
        "--json",
    )
    facts = json.loads(done.out)
    assert done.code == 0
    assert (facts["rows"], facts["given"], facts["calibrated"]) == (50, ["smoker=yes"], False)
    assert "sample:" in done.err
    table = pd.read_parquet(out)
    assert len(table) == 50 and set(table["smoker"]) == {"yes"} and set(table["sex"]) == {"male"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--do", "sexx=male", "--given", "smoker=maybe"],
            ("did you mean 'sex'", "never, yes", "2 mistakes"),
        ),
        (["--given", "sex=male", "--do", "sex=male"], ("set more than once",)),
        (["--json"], ("give --out",)),
        (["--out", "x.txt"], (".csv, .parquet",)),
        (["--seed", "-1"], ("--seed",)),
    ],
)
def test_sample_says_what_is_wrong_before_it_draws(
    released: Any, synthdp: Any, arguments: list[str], says: tuple[str, ...]
) -> None:
    done = synthdp("sample", released.bundle, "--rows", "5", *arguments)
    assert done.code == 2
    assert all(s in done.err for s in says)
    assert bool(done.out) == ("--json" in arguments)


def test_sample_of_something_else_than_a_bundle(tiny: Any, synthdp: Any) -> None:
    done = synthdp("sample", tiny.folder, "--rows", "5")
    assert done.code in (2, 6) and "internal" not in done.err


# --- weight ---

PROBE = """
import os, sys
sys.argv = ["synthdp", *{arguments!r}]
from synthdp.cli.main import main
try:
    main()
except SystemExit as stop:
    code = stop.code
else:
    code = 0
used = os.times()
print(code or 0, used.user + used.system, *[m for m in {heavy!r} if m in sys.modules], file=sys.stderr)
"""  # noqa: E501


@pytest.mark.parametrize("command", ["--help", "validate", "schema"])
def test_light_commands_import_nothing_heavy_and_start_at_once(command: str) -> None:
    spec = Path(__file__).parents[2] / "specs" / "adult.yaml"
    arguments = [command, str(spec)] if command == "validate" else [command]
    probe = PROBE.format(arguments=arguments, heavy=HEAVY)
    seconds = []
    for _ in range(3):  # the best of three: other work on the machine slows a start
        done = subprocess.run(
            [sys.executable, "-c", probe], capture_output=True, text=True, timeout=300
        )
        code, used, *imported = done.stderr.split()
        assert code == "0" and imported == []
        seconds.append(float(used))
    assert min(seconds) < 0.6


def test_a_plan_makes_no_ledger(tmp_path: Path, synthdp: Any) -> None:
    spec = tmp_path / "adult.yaml"
    spec.write_bytes((Path(__file__).parents[2] / "specs" / "adult.yaml").read_bytes())
    assert synthdp("plan", spec).code == 0
    assert not (tmp_path / ".synthdp").exists()


def test_the_default_output_folder_is_named_after_the_dataset(
    tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.write().folder)
    assert synthdp("release", "spec.yaml").code == 0
    assert (tiny.folder / "releases" / "tiny" / "bundle" / "synthetic.csv").is_file()
