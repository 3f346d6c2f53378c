"""A bundle being read by `verify`: nothing in it is trusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from synthdp.bundle.certificate import Certificate, certify
from synthdp.bundle.content import MODEL_FILES, REPORT, SCORED_FILES, Bundle
from synthdp.bundle.descriptions import DATACARD
from synthdp.bundle.noisy_values import ESTIMANDS, INNOVATIONS, PRIOR, WAVES
from synthdp.bundle.table_files import CSV_NAME, PARQUET_NAME
from synthdp.bundle.write import DERIVED, FILES, Derived
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.errors import BudgetError
from synthdp.files import parse_json, read_text
from synthdp.graph.causal import CausalGraph
from synthdp.graph.stage import rounds
from synthdp.graph.validation import ValidationSettings
from synthdp.ledger.entries import Entry
from synthdp.privacy.calibration import expected_fit_rows, rows_over_noise, sample_rate
from synthdp.privacy.events.kinds import event_from_json, kind_of, leaves
from synthdp.privacy.plan import SERVES
from synthdp.spec.model import ReleaseSpec


@dataclass(frozen=True)
class VerifySettings:
    """How much of a bundle `verify` looks at, and by how much two numbers may differ.

    `tolerance` is relative: another version of the accountant, or another platform, may round
    differently in the last digits. `problems` are listed, of `words` characters at most, and
    `entries` of a ledger read. `kept` synthetic rows are held against the model on `pairs` of
    columns at most, whose limit raked and chosen rows may pass by `chosen` times and `pulled` of
    total variation. Of noise `noisy_cells` of all tables are compared, in `compared` differences,
    whose covariance is a matrix. How much of a prior was `used` may differ by so much. A test
    rejects an honest bundle with probability `false_alarms`: it cannot be made again.
    """

    tolerance: float = 1e-6
    problems: int = 100
    words: int = 20_000
    entries: int = 1000
    kept: int = 50_000
    pairs: int = 300
    drawn_cells: int = 20_000_000  # values of what the model draws
    chosen: float = 2.0
    pulled: float = 0.02
    false_alarms: float = 1e-6
    noisy_cells: int = 4000
    compared: int = 1500
    used: float = 1e-4


VERIFY = VerifySettings()


@dataclass
class Reader:
    """A bundle while it is read: later checks use what earlier ones read.

    `key` is the publisher's, where it is known.
    """

    states: ClassVar[type[Certificate]] = Certificate
    derived: ClassVar[Mapping[str, Derived]] = DERIVED
    """The files that follow from others."""
    folder: Path
    parsed: ReleaseSpec | None = None
    entries: list[Entry] = field(default_factory=list)
    certificate: Certificate | None = None
    key: Ed25519PublicKey | None = None
    origin_checked: bool = False
    rows: list[Codes] = field(default_factory=list)

    @property
    def spec(self) -> ReleaseSpec:
        """The spec.

        Raises:
            ValueError: it could not be read.
        """
        if self.parsed is None:
            raise ValueError("the spec could not be read")
        return self.parsed

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that a bundle must have, but for its sums."""
        return FILES

    @cached_property
    def limits(self) -> PlanLimits:
        """Upper limits of the plan."""
        return PlanLimits.of(self.spec)

    def certified(self, **facts: Any) -> Certificate:
        """The certificate that follows from the spec and `facts`, those of `certify`."""
        return certify(self.spec, **facts)

    def from_rows(self) -> set[str]:
        """The files that came out of rows, and need receipts."""
        spec = self.spec
        needed = {CSV_NAME, PARQUET_NAME, "marginals.json", DATACARD, *MODEL_FILES, REPORT}
        learned = spec.graph.mode in ("validate", "predict")
        if spec.graph.mode == "learn":  # the spec alone may give it
            without_rows = CausalGraph.from_spec(spec.graph, tuple(spec.modelled))
            learned = CausalGraph.from_json(self.json("graph.json")) != without_rows
        needed |= {"graph.json", "graph.svg"} if learned else set()
        needed |= {*SCORED_FILES} if spec.evaluation.dp_scores else set()
        needed |= {PRIOR} if spec.prior else set()
        needed |= {INNOVATIONS} if self.holds(WAVES) else set()
        return needed | ({ESTIMANDS} if spec.pays_for_sums else set())

    @property
    def run(self) -> str:
        """The run's id, as its ledger entries say."""
        return self.entries[0].run if self.entries else ""

    @property
    def day(self) -> str:
        """When the run was settled, as an ISO date."""
        return self.entries[-1].at[:10] if self.entries else ""

    @property
    def charges(self) -> list[Entry]:
        return [e for e in self.entries if e.kind == "charge"]

    def paid(self, purpose: str) -> list[Any]:
        """The events, as JSON, that the run charged for a purpose."""
        return [e.body["event"] for e in self.charges if e.body["purpose"] == purpose]

    @cached_property
    def bundle(self) -> Bundle | None:
        """What the bundle states; None where its certificate could not be read."""
        if self.certificate is None:
            return None
        return Bundle(self.folder, self.spec, self.certificate, self.day)

    def holds(self, name: str) -> bool:
        return (self.folder / name).is_file()

    def json(self, name: str) -> Any:
        """Content of a JSON file of the bundle."""
        return parse_json(self.text(name))

    def text(self, name: str) -> str:
        """Content of a text file of the bundle."""
        return read_text(self.folder / name)


Check = Callable[[Any], Iterator[str]]
"""What finds the problems of a bundle that a `Reader` reads."""


def wrong(*claims: tuple[bool, str]) -> Iterator[str]:
    """The texts of those claims that hold: (whether something is wrong, what it is)."""
    return (text for holds, text in claims if holds)


# --- bounds ---
#
# Their events must have a meaning, and lie within what a spec can spend. Composition takes time and
# memory that grow with the privacy loss, with the number of events and with the width of discrete
# noise. Without these bounds a bundle of a few kilobytes could keep `verify` busy for days. What
# one event may state, its kind says (`privacy.events`).


@dataclass(frozen=True)
class PlanLimits:
    """Upper limits of a plan of the spec.

    They bound the rows of a unit, purposes, training steps, tables, answers of a search, and
    expected loss; and from below the rate of a secret sample.
    """

    rows: int
    purposes: int
    steps: int
    tables: int
    answers: int
    sample: float
    loss: float

    @classmethod
    def of(cls, spec: ReleaseSpec) -> PlanLimits:
        columns = len(spec.columns)
        named = rounds(
            spec.graph,
            Domain.from_spec(spec.columns),
            rows=expected_fit_rows(spec),
            rows_over_noise=rows_over_noise(spec),
        )
        return cls(
            rows=spec.dataset.privacy_unit.max_rows,
            purposes=len(SERVES) + len(named) + len(spec.estimands),
            steps=spec.synthesizer.steps,
            tables=columns
            + len(spec.privacy.pairs)
            + len(spec.estimands)
            + 2 * ValidationSettings.max_tables,
            answers=1000 + columns**2,
            sample=sample_rate(spec),
            loss=10 * spec.privacy.epsilon + 10,  # some times more than composes to epsilon
        )


def event_problems(events: Sequence[Mapping[str, Any]], limits: PlanLimits) -> Iterator[str]:
    """Why `events` are not composed; nothing if they can be."""
    if len(events) > limits.purposes:
        yield f"{len(events)} charges are more than this spec's plan can have, {limits.purposes}"
        return
    try:
        stated = list(map(event_from_json, events))
        losses = [kind_of(event).expected_loss(limits, 1) for event in stated]
    except (
        BudgetError,
        KeyError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        RecursionError,
    ) as error:
        yield (
            f"a charge states an event that none makes ({type(error).__name__}: {str(error)[:100]})"
        )
        return
    loss, count = math.fsum(losses), sum(1 for event in stated for _ in leaves(event))
    told = f"an expected loss of up to {loss:.3g}"
    yield from wrong(
        (loss > limits.loss, f"its charges spend far more than the spec allows ({told})"),
        (count > 400, f"its charges are of {count} events, more than any release makes"),
    )
