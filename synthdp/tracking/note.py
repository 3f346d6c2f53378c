"""What reviewers read in MLflow: parameters, the verdict in Markdown, the view's columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from synthdp import __version__
from synthdp.bundle.certificate_text import template
from synthdp.bundle.descriptions import published_sha256
from synthdp.files import text_sha256
from synthdp.spec.model import LinkedSpec, ReleaseSpec

# What MLflow gets of a bundle: all that describes it, and the model, but no rows.
TRACKED = (
    *("report.html", "DATACARD.md", "README.md", "croissant.json", "datapackage.json"),
    *("privacy", "spec.yaml", "graph.svg", "graph.json", "model.safetensors", "model.json"),
)
GRAPH_FIGURES = ("edges_", "independences_")
_PUBLISHED = ("_dp", "_noisy", "_noise", "_answered", "_asked")  # of figures in the bundle, too
_ENDS = re.compile("_(dp|auc)_(low|high)$")
ML_PAGES = "workflowType=machine_learning"  # without it MLflow shows its menus for language models
STUDY = (
    "A study of rehearsals, outside the guarantee: nothing was published or charged. Where the"
    " parameter `rows` is real, its figures are **confidential**."
)
Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
VIEW = "synthdp"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"
VIEW_COLUMNS = (
    "tags.`gate`",
    "metrics.`epsilon_planned`",
    "metrics.`tstr_ratio`",
    "metrics.`tv2`",
    "metrics.`estimands_worst`",
    "metrics.`attack_advantage_upper`",
    "metrics.`attack_ceiling`",
    "tags.`signed`",
)  # MLflow orders them: metrics by name, then tags


@dataclass(frozen=True, kw_only=True)
class AttackOutcome:
    """What one attack reports.

    `metrics` are such as advantage, advantage_lower, advantage_upper, auc, ceiling.
    """

    name: str
    params: Mapping[str, str | int | float]
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class PublicationVerdict:
    """Whether the bundle was written and signed, and what each gate said, in words."""

    released: bool
    gates: tuple[str, ...] = ()
    signed: bool = False


def public_params(spec: ReleaseSpec | LinkedSpec) -> dict[str, str | int | float]:
    """Parameters of a release: all from the spec, none from rows, and no number of rows."""
    unit, privacy = spec.dataset.privacy_unit, spec.privacy
    values: dict[str, str | int | float] = {
        "dataset": spec.dataset.id,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "adjacency": privacy.adjacency,
        "unit": f"{unit.kind}: {unit.meaning}",
        "graph": spec.graph.mode,
        "synthdp_version": __version__,
    }
    if isinstance(spec, LinkedSpec):
        from synthdp.bundle.linked import linked_yaml, public_linked  # a release of one enters none

        return values | {
            "columns": sum(len(own) for own in spec.columns.values()),
            "spec_sha256": text_sha256(linked_yaml(public_linked(spec))),
            "tables": f"{spec.dataset.persons_name}, {spec.dataset.visits_name}",
            "at_most": spec.dataset.visits.at_most,
        }
    values |= {"columns": len(spec.columns), "spec_sha256": published_sha256(spec)}
    return values | {
        f"synthesizer.{k}": ", ".join(v) if isinstance(v, tuple) else v
        for k, v in spec.synthesizer.model_dump().items()
        if v not in (None, ())
    }


def note(
    facts: Mapping[str, str],
    figures: Mapping[str, float],
    attacks: Sequence[AttackOutcome],
    verdict: PublicationVerdict | None,
    *,
    status: Status,
) -> str:
    """The run's description in Markdown: the verdict first, then budget, quality and attacks."""
    ended = {
        "KILLED": "Interrupted: resumable, the reservation stays",
        "FAILED": "Failed before the verdict",
    }
    headline = ended.get(status, "No verdict")
    if verdict is not None:
        withheld = "Withheld: a gate failed; the budget is spent"
        headline = "Released: no gate withheld the bundle" if verdict.released else withheld
    low, high = (figures.get(f"attack_advantage_{end}") for end in ("lower", "upper"))
    others = ("attack_", "epsilon", "delta", *GRAPH_FIGURES)
    quality = [k for k in figures if not k.startswith(others) and not _ENDS.search(k)]
    return template("mlflow_note.md.j2").render(
        headline=headline,
        allowed=f"{float(facts.get('epsilon', 'nan')):g}",
        planned=figures.get("epsilon_planned"),
        spent=figures.get("epsilon_spent"),
        interval=None if low is None or high is None else (low, high),
        ceiling=figures.get("attack_ceiling"),
        facts=facts,
        figures=figures,
        attacks=attacks,
        verdict=verdict,
        graph={k: v for k, v in figures.items() if k.startswith(GRAPH_FIGURES)},
        published=[k for k in quality if k.endswith(_PUBLISHED)],
        internal=[k for k in quality if not k.endswith(_PUBLISHED)],
    )


def run_name(dataset: str, epsilon: str, verdict: PublicationVerdict | None, status: Status) -> str:
    """A run's name, which is always in sight: its verdict, and the epsilon that was allowed.

    >>> run_name("clinic", "1.0", PublicationVerdict(released=True), "FINISHED")
    'clinic - released - eps 1'
    """
    words = {"RUNNING": "running", "KILLED": "interrupted", "FAILED": "failed"}
    word = words.get(status, "no verdict")
    if verdict is not None:
        word = "released" if verdict.released else "withheld"
    return f"{dataset} - {word} - eps {float(epsilon):g}"


def view_path(experiment: str) -> str:
    """Path of the experiment's saved view, after the address of MLflow's server."""
    return f"/#/experiments/{experiment}/runs?{ML_PAGES}&viewStateShareKey={VIEW}"


def run_path(experiment: str, run: str) -> str:
    """Path of a run's page, likewise."""
    return f"/#/experiments/{experiment}/runs/{run}?{ML_PAGES}"
