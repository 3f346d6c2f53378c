"""What is noisy in a bundle, written and read: its tables and sums (`marginals.json`,
`estimands.json`), its prior, and the waves before it (`waves.json`, `innovations.json`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import VerifyError
from synthdp.files import MAX_TEXT, SUMS, check_sums, parse_json, read_text, text_sha256
from synthdp.graph.level_groups import LevelLaw, with_heaps
from synthdp.graph.predict import prior_used
from synthdp.graph.prior import Prior
from synthdp.graph.waves import STEPS, Tables, breaks, series_of, with_earlier
from synthdp.privacy.mechanisms.frequent_texts import NoisyTexts
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.sums import (
    ContrastBudget,
    NoisyContrast,
    NoisyProducts,
    ProductSums,
    SumMechanism,
    Sums,
)
from synthdp.report.prose import say
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec

MARGINALS = "marginals.json"
PRIOR = "prior.json"


def tables_json(tables: Sequence[NoisyTable]) -> dict[str, Any]:
    """Noisy tables as JSON: counts flattened in C order, whole numbers where they are whole.

    `starts` names the columns that are counted on groups of levels: where each group begins.
    """
    stated = []
    for table in tables:
        counts = map(float, np.asarray(table.counts).ravel())
        starts = {name: list(s) for name, s in table.starts.items()}
        about: dict[str, Any] = {"columns": list(table.columns), "shape": list(table.counts.shape)}
        about |= {"sigma": table.sigma} | ({"starts": starts} if starts else {})
        stated.append(about | {"counts": [int(v) if v.is_integer() else v for v in counts]})
    return {"tables": stated}


def table_from_json(stated: Mapping[str, Any]) -> NoisyTable:
    """The table that `tables_json` stated.

    Raises:
        ValueError, KeyError, TypeError, OverflowError: it is none.
    """
    columns, starts = stated["columns"], stated.get("starts", {})
    if not isinstance(starts, dict) or not all(isinstance(name, str) for name in columns):
        raise TypeError("columns are texts, and starts has lists by column")
    return NoisyTable(
        tuple(columns),
        np.asarray(stated["counts"], dtype=np.float64).reshape(stated["shape"]),
        float(stated["sigma"]),
        {name: tuple(begins) for name, begins in starts.items()},
    )


def read_tables(bundle: Path) -> tuple[NoisyTable, ...]:
    """The noisy tables of a bundle.

    Raises:
        OSError, ValueError, KeyError, TypeError, OverflowError: the file cannot be read.
    """
    stated = parse_json(read_text(bundle / MARGINALS))["tables"]
    return tuple(map(table_from_json, stated))


def heaps_json(told: NoisyTexts | None) -> dict[str, Any]:
    """The heaps that were told, as a part of `marginals.json`, where they were looked for."""
    if told is None:
        return {}
    counts = {name: dict(own) for name, own in told.counts.items()}
    return {"heaps": {"sigma": told.sigma, "threshold": told.threshold, "counts": counts}}


def read_heaps(bundle: Path) -> NoisyTexts | None:
    """The heaps that were told of a bundle's rows, where they were looked for.

    Raises:
        OSError, ValueError, KeyError, TypeError: the file cannot be read.
    """
    stated = parse_json(read_text(bundle / MARGINALS)).get("heaps")
    if stated is None:
        return None
    counts = {
        str(name): {str(number): int(count) for number, count in own.items()}
        for name, own in dict(stated["counts"]).items()
    }
    if not np.isfinite([float(number) for own in counts.values() for number in own]).all():
        raise ValueError("a heap is no number")
    return NoisyTexts(counts, float(stated["sigma"]), int(stated["threshold"]))


def over_domain(table: NoisyTable, domain: Domain) -> bool:
    """Whether a table has columns of the domain, and the shape of their levels or groups."""
    if len(set(table.columns)) < len(table.columns) or not set(table.columns) <= {*domain.names}:
        return False
    if not table.starts.keys() <= set(table.columns):
        return False
    try:
        coarse = LevelGroups(domain, table.starts).coarse
    except ValueError:
        return False
    return table.counts.shape == tuple(coarse[name].levels for name in table.columns)


def level_law(bundle: Path, domain: Domain, *, margins: bool, shrunk: bool = False) -> LevelLaw:
    """What the noisy tables of a bundle say of levels, whose columns know their heaps.

    `margins` says that the law of every column will be asked for, not only of those with groups.
    It is `shrunk` to the bundle's prior where rows of the model are drawn; intervals rest on none.

    Raises:
        VerifyError: they cannot be read, or are not over the spec's columns.
    """
    foreign = VerifyError(
        f"marginals.json in {bundle} is not over the columns and levels of its spec",
        hint=f"see `synthdp verify {bundle}`",
    )
    try:
        tables, told = read_tables(bundle), read_heaps(bundle)
        prior = read_prior(bundle) if shrunk else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise VerifyError(
            f"cannot read marginals.json in {bundle}: {type(error).__name__}",
            hint=f"see `synthdp verify {bundle}`",
        ) from None
    known = {name for t in tables for name in t.columns if t.has([name])}
    grouped = {name for t in tables for name in t.starts}
    asked = domain.names if margins or grouped else ()
    fit = all(
        over_domain(t, domain) and np.isfinite(t.counts).all() and t.sigma > 0 for t in tables
    )
    if not fit or not known.issuperset({*asked, *(told.counts if told else ())}):
        raise foreign
    try:
        law = LevelLaw.of_tables(tables, with_heaps(domain, told, tables), prior)
        of_one, of_pairs = law.groups.domain, law.groups.coarse
        for names, table in prior.counts.items() if prior else ():
            levels = tuple((of_one if len(names) == 1 else of_pairs)[n].levels for n in names)
            if table.shape != levels or not table.sum() > 0:
                raise foreign
        return law
    except (KeyError, ValueError):
        raise foreign from None


# --- the prior: `prior.json` ---


def prior_json(law: LevelLaw) -> dict[str, Any]:
    """The public counts that the tables of a law were shrunk to, as `tables_json` has counts, and
    how much each was `used`: its part of what the model follows, 0 to 1.
    """
    counts, used = law.prior.counts if law.prior else {}, prior_used(law)
    stated = [
        {"columns": [*names], "shape": [*table.shape], "used": round(used[names], 6)}
        | {"counts": [*map(int, table.ravel())]}
        for names, table in counts.items()
    ]
    return {"tables": stated}


def read_prior(bundle: Path) -> Prior | None:
    """The prior of a bundle, if it has one.

    Raises:
        OSError, ValueError, KeyError, TypeError, OverflowError: the file cannot be read.
    """
    if not (bundle / PRIOR).exists():
        return None
    stated = parse_json(read_text(bundle / PRIOR))["tables"]
    return Prior(
        {
            tuple(map(str, t["columns"])): np.asarray(t["counts"], np.float64).reshape(t["shape"])
            for t in stated
        }
    )


# --- noisy sums: `estimands.json` ---


ESTIMANDS = "estimands.json"


def sums_json(sums: Mapping[str, Sums]) -> dict[str, Any]:
    """Noisy sums by estimand, as JSON: arrays flattened in C order."""
    return {name: _plain(value) for name, value in sums.items()}


def _plain(value: Sums) -> dict[str, Any]:
    if isinstance(value, NoisyProducts):
        return {"sigma": value.sigma, "products": value.sums.tolist()}
    one = value.contrast
    return {
        "sigma": value.sigma,
        "shape": list(value.counts.shape),
        "counts": value.counts.ravel().tolist(),
        "sums": value.sums.ravel().tolist(),
        "squares": value.squares.ravel().tolist(),
        **({"contrast": {"sigma": one.sigma, "sums": one.sums.tolist()}} if one else {}),
    }


def sums_from_json(
    stated: Mapping[str, Any], mechanism: SumMechanism, contrast: ContrastBudget | None = None
) -> Sums:
    """The sums that `sums_json` stated, for the mechanisms that made them.

    Raises:
        ValueError, KeyError, TypeError: they are not finite, or of other strata.
    """
    if isinstance(mechanism, ProductSums):
        arrays = {"sums": np.asarray(stated["products"], dtype=np.float64)}
    else:
        empty = (0, *mechanism.shape[1:])
        arrays = {
            name: np.asarray(stated[name], dtype=np.float64).reshape(
                mechanism.shape if name == "counts" or mechanism.number else empty
            )
            for name in ("counts", "sums", "squares")
        }
    if not all(np.isfinite(part).all() for part in arrays.values()):
        raise ValueError("sums that are not finite")
    value = mechanism.unpack(arrays)
    if isinstance(value, NoisyProducts) or contrast is None:
        return value
    found = stated["contrast"]
    sigma, sums = float(found["sigma"]), np.asarray(found["sums"], dtype=np.float64)
    if not (0 < sigma < math.inf and sums.shape == (3,) and np.isfinite(sums).all()):
        raise ValueError("not a contrast")
    return replace(value, contrast=NoisyContrast(sums, sigma))


# --- waves before ---


WAVES, INNOVATIONS = "waves.json", "innovations.json"
STATED = (SUMS, "spec.yaml", MARGINALS)


@dataclass(frozen=True)
class PublishedWave:
    """A wave before a release, as its bundle takes it along: three published files, as texts.

    The spec of a wave states the digest of the sums of the one before, and sums have the digests of
    files: so the digest in this release's spec, which its ledger holds, fixes all of them, and
    whoever has the bundle can check that without the others. Nothing here costs anything.
    """

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
