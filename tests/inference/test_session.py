"""Questions on the command line: several in one session, as CSV, with units, and their costs."""

import csv
import hashlib
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synthdp import Bundle
from synthdp.errors import OutputError
from synthdp.inference import Questions
from synthdp.inference import answer as of_answers


def _lines(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))


def _with_unit(bundle: Path) -> Path:
    path, sums = bundle / "spec.yaml", bundle / "SHA256SUMS"
    old = hashlib.sha256(path.read_bytes()).hexdigest()
    spec = json.loads(path.read_text())
    spec["columns"]["visits"]["unit"] = "per year"
    path.write_text(json.dumps(spec))
    sums.write_text(sums.read_text().replace(old, hashlib.sha256(path.read_bytes()).hexdigest()))
    return bundle


def test_a_session_checks_a_bundle_once(
    small_bundle: Callable[..., Path], synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = small_bundle(("sex", "smoker"), ("visits",)), []
    law, check = of_answers.level_law, of_answers.check_sums
    monkeypatch.setattr(of_answers, "level_law", lambda *a, **k: read.append("law") or law(*a, **k))
    monkeypatch.setattr(
        of_answers, "check_sums", lambda b, names: read.extend(names) or check(b, names)
    )
    texts = ["share(smoker) by sex", "", "mean(visit)", "mean(visits)", "count() by seen, age, sex"]
    _lines(monkeypatch, *texts)
    told = synthdp("answer", folder, "-")
    assert told.code == 2 and "did you mean 'visits'?" in told.err
    assert "2 questions could not be answered" in told.err
    assert [line for line in told.out.splitlines() if "measured)" in line] == [
        "share(smoker) by sex   (A, measured)",
        "mean(visits)   (A, measured)",
    ]
    assert read == ["spec.yaml", "marginals.json", "law"]
    _lines(monkeypatch, *texts)
    facts = [json.loads(line) for line in synthdp("answer", folder, "-", "--json").out.splitlines()]
    assert [one["query"] for one in facts] == [text for text in texts if text]
    assert facts[1]["problems"][0]["column"] == 6 and "figures" not in facts[1]


def test_a_session_answers_as_single_questions_do(
    small_bundle: Callable[..., Path], synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_bundle(("sex", "smoker"), ("age", "visits"))
    texts = ["share(smoker)", "share(smoker) by sex", "correlation(age, visits)", "sum(visits)"]
    _lines(monkeypatch, *texts)
    told = synthdp("answer", folder, "-")
    assert told.code == 0
    assert told.out == "".join(synthdp("answer", folder, text).out + "\n" for text in texts)


def test_a_question_that_cannot_be_read_opens_only_the_spec(
    small_bundle: Callable[..., Path], synthdp: Any
) -> None:
    folder = small_bundle(("sex", "smoker"))
    (folder / "marginals.json").unlink()
    told = synthdp("answer", folder, "mean(visit) by sex")
    assert told.code == 2 and "did you mean 'visits'?" in told.err
    assert "marginals.json" in synthdp("answer", folder, "mean(visits) by sex").err
    script = (
        "import sys; from synthdp.cli.main import app; from synthdp.errors import QueryError\n"
        f"try: app(['answer', {str(folder)!r}, 'mean(visit)'], standalone_mode=False)\n"
        "except QueryError: print(*{'scipy', 'pandas', 'networkx'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "", done.stderr


def test_figures_as_csv(small_bundle: Callable[..., Path], synthdp: Any) -> None:
    folder = _with_unit(small_bundle(("sex", "smoker", "visits")))
    text = "mean(visits) by smoker, sex"
    lines = list(
        csv.DictReader(io.StringIO(synthdp("answer", folder, text, "--format", "csv").out))
    )
    answer = Bundle(folder).answer(text)
    assert [(line["smoker"], line["sex"]) for line in lines[:3]] == [
        ("no", "female"), ("no", "male"), ("yes", "female"),
    ]  # fmt: skip
    assert [float(line["estimate"]) for line in lines] == [f.estimate for f in answer.figures]
    assert [(float(line["low"]), float(line["high"])) for line in lines] == [
        f.interval for f in answer.figures
    ]
    assert {line["unit"] for line in lines} == {"per year"} and lines[0]["low_at_middles"] == ""
    refused = synthdp("answer", folder, "--format", "csv")
    assert refused.code == 2 and "of the figures of a question" in refused.err


def test_the_unit_of_measure_is_told(small_bundle: Callable[..., Path], synthdp: Any) -> None:
    folder = _with_unit(small_bundle(("sex", "visits"), ("age", "visits")))
    for text in ("mean(visits) by sex", "sum(visits)", "median(visits)"):
        assert "estimate (per year)" in synthdp("answer", folder, text).out.splitlines()[1]
    for text in ("share(visits > 2)", "correlation(age, visits)", "mean(age)"):
        assert "per year" not in synthdp("answer", folder, text).out
    effect = ("effect", folder, "--treatment", "sex", "--outcome", "visits", "--adjust", "none")
    assert "effect (per year)" in synthdp(*effect).out


def test_an_effect_on_a_category_asks_for_its_level(
    small_bundle: Callable[..., Path], synthdp: Any
) -> None:
    folder = small_bundle(("sex", "age"))
    told = synthdp("effect", folder, "--treatment", "age", "--outcome", "sex", "--adjust", "none")
    assert told.code == 2 and "None" not in told.err
    assert "--level, one of female, male" in told.err


def test_questions_in_python_share_what_was_read(small_bundle: Callable[..., Path]) -> None:
    questions = Questions(small_bundle(("sex", "smoker")))
    first = questions.answer("share(smoker) by sex")
    (questions.bundle / "marginals.json").unlink()
    assert questions.answer("share(smoker) by sex").to_json() == first.to_json()


def test_every_figure_at_once(small_bundle: Callable[..., Path], synthdp: Any) -> None:
    """Each is that of its question; where no table tells it, no row of the model is asked."""
    folder = small_bundle(("sex", "smoker"), ("sex", "visits"))
    (folder / "synthetic.csv").unlink()
    done = synthdp("answer", folder, "--every")
    assert done.code == 0, done.err
    lines = list(csv.DictReader(io.StringIO(done.out)))
    told = {line["question"]: line for line in lines}
    assert {"mean(visits)", "median(visits) by sex", "count() by sex, smoker"} <= told.keys()
    lost = [line for line in lines if line["refused"] == "no noisy table tells it"]
    assert "mean(visits) by smoker" in {line["question"] for line in lost}
    assert all(line["tier"] == "C" and not line["estimate"] for line in lost)
    for text in ("mean(visits) by sex", "count() by sex, smoker"):
        found = [line for line in lines if line["question"] == text]
        answer = Bundle(folder).answer(text)
        assert [float(line["low"]) for line in found] == [
            (f.interval or (0,))[0] for f in answer.figures
        ]
        assert [line["group"] for line in found] == [", ".join(g) for g in answer.groups]
    both = synthdp("answer", folder, "mean(visits)", "--every")
    assert both.code == 2 and "give it alone" in both.err


def test_a_question_too_many_does_not_end_the_others(
    small_bundle: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    true = of_answers.answer_tables

    def few(query: Any, *args: Any) -> Any:
        if query.by == ("sex", "smoker"):
            raise OutputError("too many cells")
        return true(query, *args)

    monkeypatch.setattr(of_answers, "answer_tables", few)
    told = {a.query.text: a for a in Questions(small_bundle(("sex", "smoker"))).every()}
    assert told["count() by sex, smoker"].figures[0].refused == "too many cells"
    assert told["count() by sex"].figures[0].interval is not None
