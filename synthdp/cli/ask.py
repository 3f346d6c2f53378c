"""Commands that ask a bundle for a number with its interval."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synthdp.cli.options import Json, show


def answer(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder.")],
    query: Annotated[
        str | None,
        typer.Argument(
            help=(
                'The question, e.g. "mean(visits) where age >= 65 by sex" [default: every result'
                " that the release paid for]."
            ),
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Answer a question from a bundle's noisy tables, with a 95% interval where there is one.
    Without a question, print what the release measured and paid for.
    """
    from synthdp.cli.progress_bar import ProgressDisplay

    if query is None:
        _paid(bundle, as_json)
        return
    with ProgressDisplay():
        from synthdp.inference.answer import answer_bundle

        found = answer_bundle(bundle, query)
    show(found.to_json(), as_json=as_json, text=lambda: str(found))


def _paid(bundle: Path, as_json: bool) -> None:
    """Every result that a release paid for."""
    from synthdp.cli.progress_bar import ProgressDisplay

    with ProgressDisplay():
        from synthdp.inference.estimands import bundle_estimands

        results = bundle_estimands(bundle)
    texts = [str(result) for result in results] or [
        'this release paid for no results of its own; ask it, e.g. with "count()"'
    ]
    facts = {"estimands": [result.to_json() for result in results]}
    show(facts, as_json=as_json, text=lambda: "\n\n".join(texts))


def effect(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder.")],
    treatment: Annotated[str, typer.Option("--treatment", help="The column that acts.")],
    outcome: Annotated[str, typer.Option("--outcome", help="The column that it acts on.")],
    adjust: Annotated[
        list[str] | None,
        typer.Option(
            "--adjust",
            help=(
                "Columns to adjust for, with commas between them, or none; may be repeated"
                " [default: a set that the graph allows]."
            ),
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="The level that others are compared with [default: the first]."),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(help="The level of a categorical outcome whose share is asked for."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate the effect of one column on another by a bundle's graph and noisy tables, with a 95%
    interval where there is one.
    """
    from synthdp.cli.progress_bar import ProgressDisplay

    with ProgressDisplay():
        from synthdp.inference.effect import effect_of_bundle
        from synthdp.inference.effect_query import EffectQuery

        columns = None if adjust is None else _columns(bundle, adjust)
        found = effect_of_bundle(bundle, EffectQuery(treatment, outcome, columns, reference, level))
    show(found.to_json(), as_json=as_json, text=lambda: str(found))


def _columns(bundle: Path, given: list[str]) -> tuple[str, ...]:
    """Names of columns; the word none alone stands for no column."""
    from synthdp.spec.expressions.names import listed_names
    from synthdp.spec.load.loader import load_spec

    if given == ["none"]:
        return ()
    known = load_spec(bundle / "spec.yaml").columns
    return tuple(name for text in given for name in listed_names(text, known))
