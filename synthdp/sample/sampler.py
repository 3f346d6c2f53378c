"""Sampling from a bundle's model: post-processing, so it is free, as often as wanted.

Rows follow the law of the published table: the model's, calibrated to the noisy marginals by the
same raking (where the spec asks for it), and held to the spec's constraints. `given` conditions
that law on what was observed. `do` intervenes, and
then nothing is calibrated: the marginals are of the world as it was, and an intervention is to
change them.

Everything is one stream of weighted rows in bounded memory. A row of weight w is used w / W times,
rounded up or down at random, so that uses are proportional to weights in expectation; W is chosen
on a first draw so that hardly any row is used twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.bundle.noisy_values import PRIOR, known_law
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.errors import OutputError, VerifyError
from synthdp.files import check_sums
from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats import read_graph
from synthdp.graph.level_groups import LevelLaw
from synthdp.model.ancestral import AncestralSettings
from synthdp.model.constraints import Constraints, ConstraintsUnmet, DrawSettings
from synthdp.model.raking import raking_factors, raking_weights
from synthdp.model.synthesizer import MODEL_FILE, WEIGHTS_FILE, Draws, LogWeights, Synthesizer
from synthdp.privacy.noise import fresh_generator
from synthdp.progress import advance
from synthdp.sample.conditions import (
    Setting,
    check_interventions,
    check_possible,
    conditions_of,
    intervention_warning,
    settings_of,
)
from synthdp.spec.expressions.parsed import setting_of
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import Column

GRAPH_FILE = "graph.json"
READ = ("spec.yaml", MODEL_FILE, WEIGHTS_FILE, "marginals.json", GRAPH_FILE)
"""Files of a bundle that rows are drawn from."""


@dataclass(frozen=True)
class SamplerSettings:
    """How rows are drawn: `block_cells`, values that are in memory as a table; `max_draws`, drawn
    rows for one that is used, at most; `used_twice`, share of rows that may be a second use.
    """

    block_cells: int = 4_000_000
    max_draws: int = 200
    used_twice: float = 0.01


SETTINGS = SamplerSettings()


@dataclass(frozen=True)
class Weighing:
    """The weight of a drawn row, by evidence and raking factors, and of one use, `whole`."""

    factors: tuple[npt.NDArray[np.float64], ...] = ()
    whole: float = 1.0

    def weights(self, codes: Codes, log_weights: LogWeights) -> npt.NDArray[np.float64]:
        """Weight of each row, shape `[rows]`."""
        evidence = np.exp(log_weights.astype(np.float64))
        return evidence * raking_weights(codes, self.factors, columns=range(len(self.factors)))

    def used(self, codes: Codes, log_weights: LogWeights, rng: np.random.Generator) -> Codes:
        """Each row as often as its weight says, in random order."""
        share = self.weights(codes, log_weights) / self.whole
        rows = np.repeat(
            np.arange(len(codes)), np.floor(share + rng.random(len(codes))).astype(np.intp)
        )
        used: Codes = codes[rng.permutation(rows)]
        return used


@dataclass(frozen=True)
class Sampler:
    """A bundle's model with what calibrates and constrains its rows; `columns` are the spec's.

    `law` has the groups of levels that the model draws, and their levels; rows are `raked` to it.

    The arrows of mode predict claim no cause, so that nothing can be intervened on. A learned graph
    may leave links without an answer; what rests on one cannot be intervened on.
    """

    columns: Mapping[str, Column]
    domain: Domain
    synthesizer: Synthesizer
    constraints: Constraints
    law: LevelLaw
    raked: bool
    graph: CausalGraph | None = None

    @classmethod
    def of_bundle(cls, bundle: Path) -> Sampler:
        """Read a bundle; its files are compared with its sums first.

        Nothing else that `verify` checks is checked here.

        Raises:
            VerifyError: a file was changed, or it holds no readable model, or marginals, of its
                spec's columns.
        """
        check_sums(bundle, READ)
        spec = load_spec(bundle / "spec.yaml")
        check_sums(bundle, (PRIOR,) if spec.prior else ())
        domain = Domain.from_spec(spec.columns)
        synthesizer, raked = Synthesizer.load(bundle), spec.sampling.rake
        law = known_law(bundle, spec, domain, margins=raked)
        sizes = law.groups.coarse.sizes
        if (synthesizer.columns, synthesizer.architecture.sizes) != (domain.names, sizes):
            raise VerifyError(
                f"the model in {bundle} is not over the columns and levels of its spec",
                hint=f"see `synthdp verify {bundle}`",
            )
        domain = law.groups.domain
        constraints, graph = Constraints.from_spec(spec, domain), read_graph(bundle)
        return cls(spec.columns, domain, synthesizer, constraints, law, raked, graph)

    def calibrated(self, do: Sequence[str]) -> bool:
        """Whether rows under these interventions are raked to the noisy marginals."""
        return self.raked and not do

    def warning(self, do: Sequence[str]) -> str | None:
        """What to know of rows under these interventions; None if there is nothing."""
        parted = (setting_of(setting, self.domain.names) for setting in do)
        columns = {part[0] for part in parted if part} & {*self.domain.names}
        return intervention_warning(self.graph, sorted(columns)) if self.graph else None

    def sample(
        self,
        rows: int,
        *,
        do: Sequence[str] = (),
        given: Sequence[str] = (),
        rng: np.random.Generator,
    ) -> Iterator[pd.DataFrame]:
        """Draw `rows` rows as tables of values, one block after the other.

        `do` and `given` hold COLUMN=VALUE; `given` also conditions of the grammar of constraints,
        such as `age >= 65`.

        Raises:
            SpecError: a setting names an unknown column or a value outside its domain, or a
                condition cannot be read, or no row of the domain fulfils it; every mistake is
                listed.
            OutputError: next to no row has what is given, or fulfils the constraints; or `do` with
                a model whose arrows claim no cause, or that rests on pairs without an answer.

        >>> sampler = Sampler.of_bundle(Path("releases/clinic/bundle"))
        >>> blocks = sampler.sample(9, do=["sex=male"], rng=generator(1))
        >>> set(pd.concat(blocks)["sex"])
        {'male'}
        """
        settings, expressions = conditions_of(given, self.columns, self.domain)
        fixed, observed = settings_of(do, settings, self.domain)
        check_possible(expressions, {**fixed, **observed}, self.domain)
        conditions = Constraints(self.domain, expressions, self.constraints.derived)
        if self.graph is not None:
            check_interventions(self.graph, tuple(fixed))
        weighing = self._weighing(fixed, observed, rng)
        try:
            yield from self._blocks(rows, fixed, observed, conditions, weighing, rng)
        except ConstraintsUnmet as unmet:
            hint = "the spec's constraints hold for every row that is written, whatever --do and"
            raise OutputError(unmet.message, hint=f"{hint} --given say") from None

    def _weighing(
        self,
        fixed: Mapping[str, Setting],
        observed: Mapping[str, Setting],
        rng: np.random.Generator,
    ) -> Weighing:
        """Raking factors and the weight of one use, by first draws that are not used themselves."""
        if not self.calibrated(tuple(fixed)) and not observed:
            return Weighing()
        step = AncestralSettings.chunk_rows
        first = min(131_072, max(step, 20_000_000 // len(self.domain)))
        factors: tuple[npt.NDArray[np.float64], ...] = ()
        if self.raked and not fixed:

            def drawn(n: int) -> Codes:
                return self.law.drawn(self.synthesizer.sample(n, rng=rng), rng=rng)

            pool = self.constraints.draw(drawn, first, rng=rng)
            targets, columns = self.law.coarse_margins, range(len(self.domain))
            factors = tuple(raking_factors(self.law.groups.of(pool), targets, columns=columns))
        draws = list(self._draws([step] * (first // step), fixed, observed, rng))
        weights = np.concatenate([Weighing(factors).weights(*draw) for draw in draws])
        if observed:
            _check_possible(np.exp(np.concatenate([log for _, log in draws]).astype(np.float64)))
        return Weighing(factors, min(one_use(weights), weights.mean() * SETTINGS.max_draws))

    def _blocks(
        self,
        rows: int,
        fixed: Mapping[str, Setting],
        observed: Mapping[str, Setting],
        conditions: Constraints,
        weighing: Weighing,
        rng: np.random.Generator,
    ) -> Iterator[pd.DataFrame]:
        block = max(1024, SETTINGS.block_cells // len(self.domain))
        limits, settings = self.constraints, {**fixed, **observed}
        done, drawn, kept, broken = 0, 0, 0, np.zeros(len(limits.expressions))
        asked, met, least = 0, 0, 4096 if limits.expressions else 0
        if conditions.expressions:  # so that what is impossible is told before a row is written
            least = DrawSettings.first_draw
        sizes = itertools.repeat(min(AncestralSettings.chunk_rows, max(256, rows)))
        with closing(self._draws(sizes, fixed, observed, rng)) as draws:
            used = (weighing.used(codes, logs, rng) for codes, logs in draws)
            while done < rows:
                groups = _gather(used, min(block, max(rows - done, least)))
                codes = self.law.drawn(groups, rng=rng)
                for name, setting in settings.items():
                    codes[:, self.domain.index(name)] = setting.level
                frame = Constraints(self.domain, ()).decode(codes, rng=rng)
                for name, setting in settings.items():  # the very value that was asked for
                    if setting.value is not None:
                        values = [setting.value] * len(frame)
                        frame[name] = pd.Series(values, dtype=frame[name].dtype)
                if limits.expressions:
                    violated = limits.violated_by(codes, frame)
                    drawn, broken = drawn + len(codes), broken + violated.sum(1)
                    codes, frame = codes[~violated.any(0)], frame[~violated.any(0)]
                    kept += len(frame)
                    limits.check_share(broken, drawn, kept)
                if conditions.expressions:
                    asked, frame = asked + len(codes), frame[conditions.fulfilled_by(codes, frame)]
                    met += len(frame)
                    _check_met(met, asked)
                done += len(frame := frame.iloc[: rows - done])
                advance(done, rows)
                yield limits.derived.added(frame)

    def _draws(
        self,
        sizes: Iterable[int],
        fixed: Mapping[str, Setting],
        observed: Mapping[str, Setting],
        rng: np.random.Generator,
    ) -> Draws:
        """Groups of levels from the model, with the log weights of their rows."""
        groups = self.law.groups
        do, given = (
            {name: int(groups.group_of(name)[s.level]) for name, s in settings.items()}
            for settings in (fixed, observed)
        )
        return self.synthesizer.draws(sizes, rng=rng, do=do, given=given)


def one_use(weights: npt.NDArray[np.float64]) -> float:
    """The smallest weight of one use that limits repeated uses to `used_twice` of all uses."""
    descending = np.sort(weights)[::-1]
    above = np.cumsum(descending) - np.arange(1, len(weights) + 1) * descending  # mass
    return float(
        descending[np.searchsorted(above, SETTINGS.used_twice * weights.sum(), side="right") - 1]
    )


def _check_possible(evidence: npt.NDArray[np.float64]) -> None:
    """Refuse what is (nearly) impossible: its probability is the mean weight of first draws."""
    probability = float(evidence.mean())
    found = f"--given: under the model this has a probability of about {probability:.1e}"
    hint = "give fewer conditions, or more likely ones"
    if probability < 1e-9:
        raise OutputError(f"{found}; below 1e-09 it counts as impossible", hint=hint)
    if one_use(evidence) > SETTINGS.max_draws * probability:
        raise OutputError(
            f"{found}; fewer than one drawn row in {SETTINGS.max_draws} could be used",
            hint=f"{hint}; conditions on causes cost less than conditions on effects",
        )


def _check_met(met: int, asked: int) -> None:
    """Refuse conditions that too few of the rows that were drawn so far meet."""
    most = SETTINGS.max_draws
    if asked >= 4096 and met * most < asked:
        raise OutputError(
            f"--given: {met} of {asked:,} drawn rows are as asked for; one of {most} must be",
            hint="give fewer conditions, or more likely ones; COLUMN=VALUE costs less than a range",
        )


def _gather(used: Iterator[Codes], rows: int) -> Codes:
    parts: list[Codes] = []
    while sum(map(len, parts)) < rows:
        parts.append(next(used))
    return np.concatenate(parts)[:rows]


def generator(seed: int | None) -> np.random.Generator:
    """Randomness of a sample, from a seed, which costs nothing, or from the system."""
    return fresh_generator() if seed is None else np.random.default_rng(seed)
