"""The waves before a release, as its bundle takes them along: `waves.json`, `innovations.json`.

Of each wave there are the sums of its bundle, its spec and its noisy tables, all as they were
published. The spec of a wave states the digest of the sums of the one before, and sums have the
digests of files: so the digest in this release's spec, which its ledger holds, fixes all of them,
and whoever has the bundle can check that without the others. Nothing here costs anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from synthdp.bundle.noisy_values import MARGINALS, level_law, over_domain, table_from_json
from synthdp.data.domain import Domain
from synthdp.errors import VerifyError
from synthdp.files import MAX_TEXT, SUMS, check_sums, parse_json, read_text, text_sha256
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.waves import STEPS, Tables, breaks, series_of, with_earlier
from synthdp.report.prose import say
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec

WAVES, INNOVATIONS = "waves.json", "innovations.json"
STATED = (SUMS, "spec.yaml", MARGINALS)


@dataclass(frozen=True)
class PublishedWave:
    """Three files of an earlier bundle, as texts."""

    sums: str
    spec: str
    marginals: str

    @cached_property
    def stated(self) -> ReleaseSpec:
        return parse_spec(self.spec, path="spec.yaml")

    @property
    def name(self) -> str:
        return "" if self.stated.waves is None else self.stated.waves.name

    @cached_property
    def whole(self) -> Tables:
        """All its noisy tables."""
        return tuple(map(table_from_json, parse_json(self.marginals)["tables"]))

    def tables(self, domain: Domain) -> Tables:
        """Its noisy tables over columns that are declared as in `domain`."""
        before = Domain.from_spec(self.stated.columns)
        alike = {c.name for c in before.columns if c in domain.columns}
        return tuple(t for t in self.whole if {*t.columns} <= alike)


def waves_json(waves: Sequence[PublishedWave]) -> dict[str, Any]:
    """The content of `waves.json`, oldest first."""
    return {"waves": [{"sums": w.sums, "spec": w.spec, "marginals": w.marginals} for w in waves]}


def waves_from(content: Any) -> tuple[PublishedWave, ...]:
    """The waves that `waves_json` stated.

    Raises:
        KeyError, TypeError: it is none.
    """
    return tuple(PublishedWave(**{k: str(v) for k, v in one.items()}) for one in content["waves"])


def waves_before(spec: ReleaseSpec, folder: Path) -> tuple[PublishedWave, ...]:
    """The waves before that of a steward's `spec`, oldest first, whose bundle lies from `folder`.

    Raises:
        VerifyError: the bundle cannot be read, or is not the one whose digest the spec states.
    """
    if spec.waves is None or spec.waves.after is None:
        return ()
    bundle, waves = folder / spec.waves.after.bundle, list[PublishedWave]()
    try:
        waves = [PublishedWave(*(read_text(bundle / name) for name in STATED))]
        if (bundle / WAVES).exists():
            waves = [*waves_from(parse_json(read_text(bundle / WAVES))), *waves]
        problems = list(chain_problems(waves, spec))
    # whatever the libraries below raise on what is no bundle
    except Exception as error:
        problems = [f"cannot be read: {type(error).__name__}"]
    if sum(len(w.marginals) + len(w.spec) + len(w.sums) for w in waves if not problems) > (
        MAX_TEXT // 2
    ):
        problems = [f"the tables of all waves are more than {MAX_TEXT >> 21} MiB"]
    if problems:
        raise VerifyError(
            f"waves.after: the bundle {spec.waves.after.bundle}: {problems[0]}",
            hint="give the folder of the wave before as it was published, and the SHA-256 of its"
            " SHA256SUMS; nothing was spent",
        )
    return tuple(waves)


def chain_problems(waves: Sequence[PublishedWave], spec: ReleaseSpec) -> Iterator[str]:
    """How waves are not the ones that the digest in a spec fixes, or not of its series."""
    domain, names, later = Domain.from_spec(spec.columns), {spec.waves and spec.waves.name}, spec
    for number, wave in zip(range(len(waves), 0, -1), reversed(waves), strict=True):
        of = f"wave {number}"
        after = later.waves.after if later.waves else None
        sums = {
            name: digest for digest, _, name in (s.partition("  ") for s in wave.sums.split("\n"))
        }
        if after is None or text_sha256(wave.sums) != after.sha256:
            yield f"{of} is not the one whose digest the spec after it states"
            return
        if (sums.get("spec.yaml"), sums.get(MARGINALS)) != (
            text_sha256(wave.spec),
            text_sha256(wave.marginals),
        ):
            yield f"{of}: its spec or its tables were changed"
            return
        later = wave.stated
        if later.dataset.id != spec.dataset.id or not wave.name:
            yield f"{of} is of no wave of dataset {spec.dataset.id}"
        if wave.name in names:
            yield f"{of} is wave {wave.name} once more"
        names.add(wave.name)
        tables = wave.tables(domain)
        if not tables or not all(
            np.isfinite(t.counts).all() and 0 < t.sigma < np.inf and over_domain(t, domain)
            for t in tables
        ):
            yield f"{of} has no noisy table over columns that are declared as in this spec"
    if later.waves and later.waves.after:
        yield "the waves before the first one are left out"


def earlier_waves(bundle: Path, spec: ReleaseSpec) -> tuple[PublishedWave, ...]:
    """The waves that a bundle takes along; it raises what reading raises."""
    if spec.waves is None or spec.waves.after is None:
        return ()
    return waves_from(parse_json(read_text(bundle / WAVES)))


def tables_of(waves: Sequence[PublishedWave], domain: Domain) -> tuple[Tables, ...]:
    """The noisy tables of waves, those that are over columns of `domain`."""
    return tuple(wave.tables(domain) for wave in waves)


def known_law(bundle: Path, spec: ReleaseSpec, domain: Domain, *, margins: bool) -> LevelLaw:
    """What the noisy tables of a bundle and of the waves before it say of levels: its rows follow
    them. It raises what `level_law` does.
    """
    law = level_law(bundle, domain, margins=margins, shrunk=True)
    if spec.waves is None or spec.waves.after is None:
        return law
    check_sums(bundle, (WAVES,))
    known = with_earlier(tuple(law.tables), tables_of(earlier_waves(bundle, spec), domain))
    return LevelLaw.of_tables(known, law.groups.domain, law.prior)


# --- innovations ---


def innovations_json(
    own: Tables, waves: Sequence[PublishedWave], spec: ReleaseSpec
) -> dict[str, Any]:
    """The content of `innovations.json`: of each table that waves have counted alike, which ones;
    the standard deviation of a cell's share from wave to wave; and how likely steps as large as
    those to each later wave are, by that and by noise. Three digits, so that machines agree.
    """
    domain = Domain.from_spec(spec.columns)
    names = [*(wave.name for wave in waves), spec.waves.name if spec.waves else ""]
    found = series_of((*tables_of(waves, domain), own))
    return {
        "waves": names,
        "break_below": STEPS.rare,
        "tables": [
            {
                "columns": list(columns),
                "counted_in": [names[seen.wave] for seen in series.seen],
                "drift": float(f"{series.drift**0.5:.3g}"),
                "chances": [float(f"{chance:.3g}") for chance in series.chances],
            }
            for (columns, _), series in found.items()
        ],
    }


def waves_told(own: Tables, waves: Sequence[PublishedWave], spec: ReleaseSpec) -> Iterator[str]:
    """For the report: which waves helped, and which tables broke with them."""
    if waves:
        known = (*tables_of(waves, Domain.from_spec(spec.columns)), own)
        broken = [" and ".join(columns) for columns, _ in breaks(known)]
        names, count = [wave.name for wave in waves], len(series_of(known))
        yield say("waves_helped", names=names, count=count, broken=broken)
