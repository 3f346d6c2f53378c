"""What each room makes of a spec's settings: the seams at which `test_settings` looks.

Around a seam everything is a stand-in, so that what comes out is what the room was handed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from synthdp.audit import membership, shadow_spec
from synthdp.bundle import (
    WrittenFile,
    croissant,
    deployment_record,
    descriptor,
    public_spec,
    readme,
    render,
    spec_yaml,
)
from synthdp.bundle.certificate import Certificate, certify
from synthdp.data import Domain
from synthdp.evaluate import dp_scores
from synthdp.graph import CausalGraph, Knowledge
from synthdp.graph.level_groups import LevelLaw
from synthdp.inference import Rows, copies, counted
from synthdp.inference.estimands import clipped_text
from synthdp.ledger import address_of
from synthdp.model import Constraints, fit, plan_for, sampling
from synthdp.model.ancestral import Architecture
from synthdp.model.fit import architecture_for
from synthdp.model.sampling import _TableDraw, drawn_last
from synthdp.privacy import calibration
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import ReleasePlan
from synthdp.release import afterwards, open_session, played_estimands
from synthdp.release import judge as judging
from synthdp.release.plan_view import _passes
from synthdp.spec.model import ReleaseSpec
from synthdp.verify import PlanLimits


class Stop(Exception):
    """The seam was reached."""


def heard(where: object, name: str, reach: Callable[[], object]) -> tuple[Any, ...]:
    """What the function `name` of `where` is called with, arguments and then keywords."""
    calls: list[tuple[Any, ...]] = []

    def listen(*arguments: Any, **named: Any) -> None:
        calls.append((*arguments, named))
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, listen)
        with pytest.raises(Stop):
            reach()
    return calls[0]


def plan(spec: ReleaseSpec) -> ReleasePlan:
    """The plan of a release, before the noise of all purposes is scaled by one factor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "calibrated", lambda rough: rough)
        return plan_for(spec, Domain.from_spec(spec.columns))


def purposes(spec: ReleaseSpec) -> list[str]:
    return [spend.purpose for spend in plan(spec).spends]


def noise_of(purpose: str) -> Callable[[ReleaseSpec], Any]:
    """The event of a purpose, in which its noise stands."""
    return lambda spec: next(
        json.dumps(s.event) for s in plan(spec).stated_spends if s.purpose == purpose
    )


def trained(name: str) -> Callable[[ReleaseSpec], Any]:
    """A setting of the planned training."""
    return lambda spec: getattr(plan(spec).train, name)


def read(spec: ReleaseSpec) -> dict[str, Any]:
    """What the reader of rows is handed."""
    folder = SimpleNamespace(spec_path=Path("folder/spec.yaml"))
    job: Any = SimpleNamespace(spec=spec, domain=None, folder=folder, given=None)
    dataset, _, named = heard(
        open_session, "read_private", lambda: open_session._sealed(job, None, texts=False)
    )  # type: ignore[arg-type]
    return {"dataset": dataset, **named}


def reserved(spec: ReleaseSpec) -> dict[str, Any]:
    """What is reserved in the ledger, for which dataset."""

    class Ledger:
        def run_entries(self, run: str) -> list[Any]:
            return []

        def reserve(self) -> None:
            """Replaced by who listens."""

    folder = SimpleNamespace(
        run="r", command="release", journal=Path(__file__).parent / "nothing", holdout_coins=str
    )
    job: Any = SimpleNamespace(
        spec=spec,
        written=spec,
        plan=SimpleNamespace(digest="d", bound=(0.1, 1e-9), holdout=0.0),
        ledger=Ledger(),
        folder=folder,
        spec_sha256="s",
        expected=None,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_session, "_sealed", lambda *_, **__: None)
        patch.setattr(open_session, "_check_unpaid", lambda job: None)
        dataset, _, named = heard(job.ledger, "reserve", lambda: open_session.open_session(job))
    return {"dataset": dataset, **named.pop("body"), **named}


def judged(spec: ReleaseSpec) -> dict[str, Any]:
    """What the evaluation on real rows is handed, and how many rows an engine is asked for."""
    asked: list[int] = []
    column = np.zeros((4, len(spec.modelled)), dtype=np.uint16)
    rows = SimpleNamespace(codes=column, frame=SimpleNamespace(), held_out=np.arange(4) < 2)

    class Session:
        def inspect(self, look: Callable[[Any], Any], *, reason: str) -> None:
            if "evaluation" in reason:
                look(SimpleNamespace(judged=asked.append))
            raise Stop

    class Frame:
        def __getitem__(self, _: object) -> Any:
            return SimpleNamespace(reset_index=lambda drop: self)

    rows.frame = Frame()
    groups = SimpleNamespace(of=lambda codes: codes, coarse=None)
    *_, named = heard(
        judging,
        "evaluate",
        lambda: judging._evaluate(rows, spec, groups, column, None, None),  # type: ignore[arg-type]
    )
    with suppress(Stop):
        _judge(spec, Session())
    return {"asked for": asked, "columns": named["columns"], **named["settings"].model_dump()}


def _judge(spec: ReleaseSpec, session: Any) -> None:
    """`judge` of stand-ins."""
    drawn: Any = SimpleNamespace(zip=lambda _: SimpleNamespace(map=lambda _: None), value=None)
    fitted: Any = SimpleNamespace(
        tables=SimpleNamespace(value=()), marginals=None, graph=SimpleNamespace(graph=None)
    )
    groups = SimpleNamespace(coarse=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "groups_of", lambda tables, domain: groups)
        domain = Domain.from_spec(spec.columns)
        job: Any = SimpleNamespace(
            spec=spec, domain=domain, folder=SimpleNamespace(shadows=Path()), published=False
        )
        table: Any = SimpleNamespace(codes=drawn, synthetic=drawn, scores=None)
        judge = judging.Judge(session, job, fitted, table)
        with patch.context() as quiet:
            quiet.setattr(afterwards, "_report", lambda *_: Path())
            afterwards.judge_and_report(judge, judge.released(), (), None, attack="now")


def attacked(spec: ReleaseSpec) -> bool:
    """Whether a release is attacked."""
    called: list[bool] = []
    looked: Any = SimpleNamespace(map=lambda _: None)
    session = SimpleNamespace(inspect=lambda look, *, reason: looked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging.Judge, "attacked", lambda _, found: called.append(True) or found)
        _judge(spec, session)
    return bool(called)


def cluster_asked(spec: ReleaseSpec) -> bool:
    """Whether the cluster of the shadow models is asked for, before anything is spent."""
    called: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(membership.Dask, "check", lambda _: called.append(True))
        membership.check_cluster(spec)
    return bool(called)


def ledger(spec: ReleaseSpec) -> str:
    """The address of the ledger of a spec in the folder /folder."""
    return address_of(spec, Path("/folder/spec.yaml"))[0]


def scored(spec: ReleaseSpec) -> Any:
    """At most how many synthetic rows teach a scorecard that is published."""
    releaser: Any = SimpleNamespace(
        plan=SimpleNamespace(scores=SimpleNamespace(targets=("sex",), choose=None))
    )
    codes: Any = SimpleNamespace(value=None)
    domain = Domain.from_spec(spec.columns)
    *_, named = heard(
        dp_scores,
        "fit_scorecard",
        lambda: dp_scores.score_table(releaser, spec, domain, codes),
    )
    return named["max_rows"]


def played(spec: ReleaseSpec) -> dict[str, Any]:
    """How the membership attack on a release is played."""
    codes = np.zeros((2000, 3), dtype=np.uint16)
    folder: Any = SimpleNamespace(
        coins=lambda name: np.random.default_rng(0), models_of=lambda *_: Path()
    )
    shadow: Any = SimpleNamespace(epsilon=1.0, delta=0.0, profile=())

    def trainer_of(spec: ReleaseSpec, domain: Domain, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(spec=spec, public=None, plan=shadow, identity="")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(membership, "plan_for", lambda *_, **__: shadow)
        patch.setattr(membership.AttackFolder, "open", lambda _: folder)
        patch.setattr(membership, "ShadowTrainer", trainer_of)
        patch.setattr(membership, "cpu_seconds", lambda *_: (1.0, 1.0))
        patch.setattr(membership, "isolated_targets", lambda *_: [0])
        rows, trainer, named = heard(
            membership,
            "attack_membership",
            lambda: membership.attack_rows(
                codes,
                spec,
                Domain.from_spec(spec.columns),
                CausalGraph(()),
                folder=Path(),
                progress=lambda *_: None,
            ),
        )
    return {
        "rows": len(rows),
        "steps": trainer.spec.synthesizer.steps,
        "pairs": named["pairs"],
        "relation": named["threat"].relation,
        "runner": named["fleet"].runner,
    }


def shadow(spec: ReleaseSpec) -> dict[str, Any]:
    """A shadow model's spec, as plain values."""
    return shadow_spec(spec).model_dump()


def architecture(spec: ReleaseSpec) -> Architecture:
    """The shape of the model."""
    domain = Domain.from_spec(spec.columns)
    return architecture_for(spec, domain, CausalGraph.from_spec(spec.graph, domain.names))


def last(spec: ReleaseSpec) -> list[str]:
    """The columns that are drawn after all others."""
    domain = Domain.from_spec(spec.columns)
    constraints = Constraints.from_spec(spec, domain)
    return [domain.names[i] for i in drawn_last(spec, domain, architecture(spec), constraints)]


def pool(spec: ReleaseSpec) -> tuple[int, int, Any]:
    """Rows of the table, rows that are drawn for it, and on how many threads."""
    model, on = SimpleNamespace(), list[Any]()
    constraints: Any = SimpleNamespace(draw=lambda draw, rows, *, rng: (draw(rows), rows)[1])

    def sampled(rows: int, *, rng: Any, threads: int | None, progress: Any) -> None:
        on.append(threads)

    model.sample = sampled
    law: Any = SimpleNamespace(drawn=lambda codes, *, rng: codes)
    table = _TableDraw(spec, None, constraints, None, None, None)  # type: ignore[arg-type]
    return table.rows, int(table.pool(model, law)), on[0]  # type: ignore[call-overload]


def drawn_by(spec: ReleaseSpec) -> str:
    """What becomes of the rows that were drawn, by what is called next."""
    called: list[str] = []

    def stop(name: str) -> Callable[..., None]:
        def listen(*_: Any, **__: Any) -> None:
            called.append(name)
            raise Stop

        return listen

    law = SimpleNamespace(groups=SimpleNamespace(of=id), margins=None, coarse_margins=None)
    table = _TableDraw(spec, Domain(()), None, None, None, lambda _: None)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch, suppress(Stop):
        patch.setattr(_TableDraw, "pool", lambda *_: None)
        patch.setattr(sampling.LevelLaw, "of_tables", lambda *_: law)
        patch.setattr(sampling.raking, "rake", stop("raked"))
        patch.setattr(sampling.raking, "strata_to_follow", stop("chosen"))
        patch.setattr(sampling, "noisy_total", lambda _: SimpleNamespace(rows=1.0))
        table.draw(None, (), {})  # type: ignore[arg-type]
    return called[0] if called else "as drawn"


def calibrated(spec: ReleaseSpec) -> bool:
    """Whether the model is calibrated to the noisy margins."""
    done: list[bool] = []
    start: Any = SimpleNamespace(
        network=None,
        regression=None,
        architecture=None,
        columns=(),
        margins=None,
        paid=None,
        law=None,
    )
    weights: Any = SimpleNamespace(map=lambda _: weights)
    weights.zip = lambda _: SimpleNamespace(map=lambda finish: finish(({}, ())))
    start.network = SimpleNamespace(plain=None)
    made: Any = SimpleNamespace(calibrated=lambda *_, **__: done.append(True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "Synthesizer", lambda *_: made)
        patch.setattr(fit, "arrays", lambda weights: weights)
        fit.assemble(start, spec, weights, None)
    return bool(done)


def per_unit(spec: ReleaseSpec) -> int:
    """The most rows of a unit, as copies of the bundle allow for them."""
    domain = Domain.from_spec(spec.columns)
    shares = {c.name: np.full(c.levels, 900 / c.levels) for c in domain.columns}
    tables = [NoisyTable((name,), counts, 1.0) for name, counts in shares.items()]
    law = LevelLaw.of_tables(tables, domain)
    told = list[int]()

    def noted(*_: Any, per_unit: int) -> Any:
        told.append(per_unit)
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        for name, answer in (("is_linked", False), ("load_spec", spec), ("level_law", law)):
            patch.setattr(copies, name, lambda *_, answer=answer, **__: answer)
        patch.setattr(copies, "check_sums", lambda *_: None)
        patch.setattr(copies, "posterior_of", noted)
        with pytest.raises(InterruptedError):
            copies.copies_of(Path(), 2, columns=[domain.names[0]])
    return told[0]


def noises(spec: ReleaseSpec) -> dict[str, float]:
    """The half width that `plan` tells of each estimand, over the noise of its sums."""
    told = played_estimands(spec, Domain.from_spec(spec.columns), plan(spec))
    sigmas = {name: m.sigma for name, m in plan(spec).estimands.items()}  # type: ignore[attr-defined]
    return {t["statistic"]: t["figures"][0]["half_width"] / sigmas[t["name"]] for t in told}


def sums(spec: ReleaseSpec) -> Any:
    """What of each row is added up for the first estimand."""
    return plan(spec).estimands["1"]


def told(spec: ReleaseSpec) -> str:
    """How the first estimand is told, in files and by `answer`."""
    return clipped_text(spec, spec.estimands[0])


def facts(spec: ReleaseSpec) -> Certificate:
    """The certificate's facts of a run that has planned and charged nothing."""
    nothing: Any = {"planned": (), "entries": (), "group_epsilons": {}, "receipts": {}}
    return certify(public_spec(spec), run="20260101-aaaaaaaaaaaa", **nothing)


def published(name: str) -> Callable[[ReleaseSpec], str]:
    """The text of one of the bundle's files."""

    def text(spec: ReleaseSpec) -> str:
        own, certificate, day = public_spec(spec), facts(spec), "2026-01-01"
        file = WrittenFile("table", 1, "0" * 64)
        makers: dict[str, Callable[[], Any]] = {
            "spec.yaml": lambda: spec_yaml(own),
            "README.md": lambda: readme(own, certificate, day=day),
            "certificate.md": lambda: render(certificate),
            "croissant.json": lambda: croissant(own, certificate, day=day, csv=file, parquet=file),
            "datapackage.json": lambda: descriptor(own, run="r", csv=file),
            "deployment.yaml": lambda: deployment_record(own, certificate, day=day),
        }
        made = makers[name]()
        return made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)

    return text


def words(spec: ReleaseSpec) -> str:
    """What an answer says of the rows that it is about."""
    return "; ".join(counted(spec, tuple(spec.modelled)))


def knowledge(spec: ReleaseSpec) -> Knowledge:
    """What the search for a graph is told."""
    return Knowledge.from_spec(spec.graph, tuple(spec.modelled))


def passes(spec: ReleaseSpec) -> int:
    """How often `plan` says that an engine reads the table."""
    return _passes(spec, plan(spec))


def parents(spec: ReleaseSpec) -> dict[str, list[str]]:
    """The causes of each column in the model, where there are any."""
    domain, found = Domain.from_spec(spec.columns), architecture(spec).parents
    return {
        name: [domain.names[i] for i in own]
        for name, own in zip(domain.names, found, strict=True)
        if own
    }


def column(spec: ReleaseSpec) -> Any:
    """The public domain of the column that is tried."""
    return Domain.from_spec(spec.columns)["tried"]


rows, limits = Rows.of_spec, PlanLimits.of
