"""The checks of the files that explain a certificate: each is written again and compared."""

from __future__ import annotations

from collections.abc import Iterator

from synthdp.bundle.certificate.effects import effects_svg
from synthdp.bundle.certificate.profile import profile_of, profile_svg
from synthdp.bundle.certificate.text import render
from synthdp.bundle.metadata.datacard import DATACARD, datacard
from synthdp.bundle.metadata.deployment import (
    DEPLOYMENT,
    deployment_record,
    deployment_yaml,
    schema_problems,
)
from synthdp.bundle.metadata.readme import readme
from synthdp.bundle.noisy_tables import read_tables
from synthdp.bundle.report_page import REPORT, link_strengths, public_report
from synthdp.graph.causal import CausalGraph
from synthdp.verify.reader import Check, Reader

# Relative and absolute: another version of the accountant may differ in the last digits.
TOLERANCE, TINY = 1e-6, 1e-13


def _check_text(reader: Reader) -> Iterator[str]:
    """The certificate for people says what the one for programs says."""
    if reader.certificate is not None and reader.text("privacy/certificate.md") != render(
        reader.certificate
    ):
        yield "privacy/certificate.md: does not say what privacy/certificate.json says"


def _check_readme(reader: Reader) -> Iterator[str]:
    """The README for users says what spec and certificate say."""
    if reader.certificate is not None and reader.text("README.md") != readme(
        reader.spec, reader.certificate, day=reader.day
    ):
        yield "README.md: does not say what spec.yaml and privacy/certificate.json say"


def _check_datacard(reader: Reader) -> Iterator[str]:
    """The data card says what spec, certificate, graph, noisy tables and rows say."""
    if reader.certificate is None:
        return
    graph = CausalGraph.from_json(reader.json("graph.json"))
    tables = read_tables(reader.folder)
    strengths = link_strengths(reader.folder, reader.spec, graph, tables)
    card = datacard(reader.spec, reader.certificate, graph, tables, strengths, day=reader.day)
    if reader.text(DATACARD) != card:
        yield (
            f"{DATACARD}: does not say what spec.yaml, graph.json, marginals.json,"
            " synthetic.csv and privacy/certificate.json say"
        )


def _check_report(reader: Reader) -> Iterator[str]:
    """The public report shows what the other files say.

    Its words and figures are made again and compared.
    """
    if reader.certificate is not None and reader.text(REPORT) != public_report(reader.folder):
        yield f"{REPORT}: does not show what the bundle's other files say"


def _check_effects(reader: Reader) -> Iterator[str]:
    """The causal diagram is the certificate's."""
    if reader.certificate is not None and reader.text("privacy/effects.svg") != effects_svg(
        reader.certificate
    ):
        yield "privacy/effects.svg: does not show what privacy/certificate.json says"


def _check_profile(reader: Reader) -> Iterator[str]:
    """The profile bounds what the planned events compose to, and the picture shows it.

    It gives delta at every epsilon of the grid. An earlier accountant may have found larger ones.
    """
    name = "privacy/profile.json"
    if reader.certificate is None:
        return
    stated, true = reader.json(name), profile_of(reader.certificate.planned, reader.spec)
    if not isinstance(stated, dict) or {k: v for k, v in stated.items() if k != "points"} != {
        k: v for k, v in true.items() if k != "points"
    }:
        yield f"{name}: is not the profile of this release"
        return
    points = [(p["epsilon"], p["delta"]) for p in stated["points"]]
    if [e for e, _ in points] != [p["epsilon"] for p in true["points"]]:
        yield f"{name}: its epsilons are not the public grid"
        return
    for (epsilon, delta), bound in zip(points, (p["delta"] for p in true["points"]), strict=True):
        if not bound - TOLERANCE * bound - TINY <= delta <= 1:
            yield (
                f"{name}: at epsilon {epsilon:g} delta {delta:.6g} is"
                + (
                    " no probability"
                    if delta > 1
                    else f" below what the planned events give, {bound:.6g}"
                )
            )
    if reader.text("privacy/profile.svg") != profile_svg(stated, reader.certificate):
        yield f"privacy/profile.svg: does not show {name}"


def _check_deployment(reader: Reader) -> Iterator[str]:
    """The registry's record is valid, and says what spec and certificate say.

    It is there exactly where the spec asks for it.
    """
    if reader.certificate is None or not reader.entries:
        return
    expected = deployment_record(reader.spec, reader.certificate, day=reader.day)
    if expected is None:
        if reader.holds(DEPLOYMENT):
            yield f"{DEPLOYMENT}: does not belong in this bundle; the spec states no publication"
        return
    if not reader.holds(DEPLOYMENT):
        yield f"{DEPLOYMENT}: is missing; the spec states a publication"
        return
    if reader.text(DEPLOYMENT) != deployment_yaml(expected):
        yield f"{DEPLOYMENT}: does not say what spec.yaml and privacy/certificate.json say"
    # Of the expected record: the YAML of the file is never parsed, since it may be a bomb.
    yield from (f"{DEPLOYMENT}: {p}" for p in schema_problems(expected))


DISCLOSURE_CHECKS: dict[str, tuple[str, Check]] = {
    "certificate text": ("privacy/certificate.md", _check_text),
    "readme": ("README.md", _check_readme),
    "data card": (DATACARD, _check_datacard),
    "public report": (REPORT, _check_report),
    "causal diagram": ("privacy/effects.svg", _check_effects),
    "profile": ("privacy/profile.json", _check_profile),
    "registry record": (DEPLOYMENT, _check_deployment),
}
