"""What may enter a bundle (`BundleContent`), what one states (`Bundle`), and its folder, which is
written whole or not at all.

Values from rows must be `Released`, with receipts of charges in the ledger. The check is by type.
It runs before the first byte is written.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pandas as pd

from synthdp.bundle import noisy_values
from synthdp.bundle.audit_record import AuditRecord
from synthdp.bundle.certificate import Certificate, plan_problems
from synthdp.bundle.certificate_text import gate_words
from synthdp.bundle.descriptions import DATACARD, public_spec
from synthdp.bundle.table_files import CSV_NAME, PARQUET_NAME, WrittenFile, check_header
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode_column
from synthdp.data.kinds import column_kind
from synthdp.errors import BoundaryError, OutputError, SynthdpError, VerifyError
from synthdp.evaluate.dp_scores import ChargedScore, DpScores
from synthdp.files import SUMS, check_plain, parse_json, read_text, sync
from synthdp.graph.causal import CausalGraph
from synthdp.graph.validation import ValidationReport
from synthdp.ledger.entries import INTERNAL, Entry
from synthdp.privacy.mechanisms.frequent_texts import NoisyTexts
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import Spend
from synthdp.privacy.private import Receipt, Released
from synthdp.spec.load.loader import linked_in, parse_spec
from synthdp.spec.model import Column, LinkedSpec, ReleaseSpec

if TYPE_CHECKING:
    from synthdp.ledger.ledger import Ledger

REPORT = "report.html"
MAX_ROWS = 100_000  # of the table; their order is random, so the first are a fair sample
MODEL_FILES = ("model.json", "model.safetensors")
# Files that show released scores.
SCORED_FILES = (DATACARD, "privacy/certificate.json", "privacy/certificate.md", REPORT)
PUBLIC_PROVENANCE = {"given", "required"}


@dataclass(frozen=True, kw_only=True)
class BundleContent:
    """All that goes into a bundle.

    `graph` may be a plain `CausalGraph` only where the spec gives every arrow; a graph that was
    validated or learned on rows is `Released`. `planned` and `group_epsilons` are of the whole
    plan, with what the run did not need: its spends, and units in a group -> epsilon at the spec's
    delta. `synthetic` has the spec's columns and number of rows. `validation` is what released
    tables say of a given graph. `audit` was made without real rows. `scores` are there exactly
    where the spec has them charged, `estimands`, the content of their file, where it pays for sums,
    `heaps` where it has a share for them, and `prior`, the content of its file, where it has one.
    `waves` are those before, which are public.
    """

    spec: ReleaseSpec
    run: str
    planned: tuple[Spend, ...]
    group_epsilons: dict[int, float]
    synthetic: Released[pd.DataFrame]
    model: Released[Any]
    tables: Released[tuple[NoisyTable, ...]]
    graph: CausalGraph | Released[CausalGraph]
    validation: Released[ValidationReport] | None = None
    audit: AuditRecord | None = None
    scores: Released[DpScores] | None = None
    estimands: Released[dict[str, Any]] | None = None
    heaps: Released[NoisyTexts] | None = None
    prior: Released[dict[str, Any]] | None = None
    waves: tuple[noisy_values.PublishedWave, ...] = ()


def check_content(content: BundleContent, ledger: Ledger) -> list[Entry]:
    """Refuse all that is not paid for; returns the run's ledger entries.

    Raises:
        BoundaryError, VerifyError: as `write_bundle`.
    """
    entries = check_paid(content.run, content.planned, receipts_of(content), ledger)
    _check_table(content)
    if content.audit is not None and content.audit.rows == "real":
        refuse("audit", "was made on real rows: its figures are for the steward alone")
    return entries


def check_paid(
    run: str,
    planned: Sequence[Spend],
    receipts: Mapping[str, frozenset[Receipt]],
    ledger: Ledger,
) -> list[Entry]:
    """Refuse files without charges of this run, and a plan that is not the ledger's; returns the
    run's entries.

    Raises:
        BoundaryError, VerifyError: as `write_bundle`.
    """
    ledger.verify_chain()
    entries = [e for e in ledger.run_entries(run) if e.kind not in INTERNAL]
    for file, wanted in receipts.items():
        _check_receipts(file, wanted, {e.hash: e for e in entries}, run)
    for problem in plan_problems(planned, entries):
        refuse("plan", f"does not cover the ledger: {problem}")
    return entries


def receipts_of(content: BundleContent) -> dict[str, frozenset[Receipt]]:
    """Receipts of each file that came out of rows.

    Values of any other type than they must have are refused.
    """
    receipts = _table_receipts(content)
    if (content.scores is not None) != content.spec.evaluation.dp_scores:
        refuse(
            "scores",
            "must be there where the spec's evaluation.disclosure is charged, and nowhere else",
        )
    if (content.estimands is not None) != content.spec.pays_for_sums:
        refuse("estimands", "must be there where the spec pays for sums, and nowhere else")
    if content.estimands is not None:
        answers = released("estimands", content.estimands, dict).receipts
        receipts |= {noisy_values.ESTIMANDS: answers, REPORT: receipts[REPORT] | answers}
    if (content.prior is not None) != (content.spec.prior is not None):
        refuse("prior", "must be there where the spec has one, and nowhere else")
    if content.prior is not None:
        receipts[noisy_values.PRIOR] = released("prior", content.prior, dict).receipts
    if content.scores is None:
        return receipts
    paid = released("scores", content.scores, tuple).receipts
    if not all(isinstance(s, ChargedScore) for s in content.scores.value):
        raise BoundaryError("bundle: scores must be ChargedScore values")
    return receipts | {file: receipts.get(file, frozenset()) | paid for file in SCORED_FILES}


def _table_receipts(content: BundleContent) -> dict[str, frozenset[Receipt]]:
    table = released("synthetic", content.synthetic, pd.DataFrame).receipts
    receipts = dict.fromkeys((CSV_NAME, PARQUET_NAME), table)
    receipts["marginals.json"] = released("tables", content.tables, tuple).receipts
    if (content.heaps is not None) != (content.spec.privacy.shares.heaps > 0):
        refuse("heaps", "must be there where the spec has a share for them, and nowhere else")
    if content.heaps is not None:
        receipts["marginals.json"] |= released("heaps", content.heaps, NoisyTexts).receipts
    receipts |= dict.fromkeys(MODEL_FILES, released("model", content.model, None).receipts)
    if not all(isinstance(t, NoisyTable) for t in content.tables.value):
        raise BoundaryError("bundle: tables must be NoisyTable values")
    shown = receipts[CSV_NAME] | receipts["marginals.json"]
    receipts |= dict.fromkeys(
        (REPORT, DATACARD, *([noisy_values.INNOVATIONS] if content.waves else [])), shown
    )
    graph = content.graph
    if (
        content.validation is None
        and isinstance(graph, CausalGraph)
        and _from_spec_alone(graph, content.spec)
    ):
        return receipts
    paid = released("graph", graph, CausalGraph).receipts
    if content.validation is not None:
        paid |= released("validation", content.validation, ValidationReport).receipts
    receipts |= dict.fromkeys(("graph.json", "graph.svg"), paid)
    return receipts | dict.fromkeys((REPORT, DATACARD), shown | paid)


def _from_spec_alone(graph: CausalGraph, spec: ReleaseSpec) -> bool:
    """Whether no row had an influence on the graph. That is so also in mode learn, where the spec
    decides every pair and nothing was measured.
    """
    if spec.graph.mode == "learn":
        return graph == CausalGraph.from_spec(spec.graph, tuple(spec.modelled))
    return (
        spec.graph.mode in ("none", "given")
        and {e.provenance for e in graph.edges} <= PUBLIC_PROVENANCE
    )


def released(name: str, value: object, inner: type | None) -> Released[Any]:
    """`value`, if it is `Released`, contains an `inner`, and was paid for. Where `inner` is None,
    the content must be able to save itself.
    """
    if type(value) is not Released:
        refuse(
            name,
            f"is {type(value).__name__}, not Released: only what came out of a charged mechanism"
            " may be published",
        )
    released: Released[Any] = value
    content = released.value
    can_save = callable(getattr(type(content), "save", None))
    if not (isinstance(content, inner) if inner else can_save):
        refuse(name, f"holds {type(content).__name__}, which a bundle does not take there")
    if not released.receipts:
        refuse(name, "carries no receipt")
    return released


def _check_receipts(
    file: str, receipts: frozenset[Receipt], entries: dict[str, Entry], run: str
) -> None:
    for receipt in receipts:
        entry = entries.get(receipt.entry)
        if receipt.run != run:
            refuse(file, f"has a receipt of run {receipt.run}, but this is run {run}")
        if entry is None or entry.kind != "charge" or entry.run != run:
            refuse(
                file,
                f"has the receipt {receipt.entry[:12]}, and the ledger has no such charge of run"
                f" {run}",
            )
        if not entry.intact:
            raise VerifyError(f"the ledger's row {entry.seq} does not match its hash")


def _check_table(content: BundleContent) -> None:
    frame, spec = content.synthetic.value, public_spec(content.spec)
    if sorted(map(str, frame.columns)) != sorted(spec.columns):
        refuse("synthetic", "does not have exactly the spec's columns")
    if len(frame) != spec.sampling.rows:
        refuse(
            "synthetic",
            f"must have the spec's {spec.sampling.rows} rows: any other number could depend on the"
            " real table",
        )


def refuse(name: str, why: str) -> NoReturn:
    """Raise `BoundaryError`: the content `name` may not enter a bundle."""
    raise BoundaryError(f"bundle: {name} {why}")


# --- what a bundle states: its parts, read from its files when they are asked for ---


@dataclass(frozen=True)
class Bundle:
    """What the bundle in `folder` states.

    `spec` is the public one, `day` the one on which the run was settled (ISO date). Where a file is
    not what it should be, a part raises OSError, ValueError, KeyError, TypeError or SynthdpError.
    """

    folder: Path
    spec: ReleaseSpec
    certificate: Certificate
    day: str

    @classmethod
    def stated(cls, folder: Path) -> Bundle:
        """What a bundle states, unverified.

        Raises:
            OSError, ValueError, KeyError, TypeError, SynthdpError: it is not what it should be.
        """
        spec = parse_spec(read_text(folder / "spec.yaml"), path="spec.yaml")
        facts = parse_json(read_text(folder / "privacy/certificate.json"))
        ledger = parse_json(read_text(folder / "privacy/ledger.json"))
        day = str(ledger["entries"][-1]["at"])[:10]
        return cls(folder, spec, Certificate.model_validate(facts), day)

    @property
    def published(self) -> ReleaseSpec | LinkedSpec:
        """The spec as it was written."""
        return self.spec

    @property
    def sources(self) -> list[tuple[Path, Mapping[str, Column]]]:
        """Its CSV files, each with its columns."""
        return [(self.folder / CSV_NAME, self.spec.columns)]

    @property
    def gates_told(self) -> tuple[str, ...]:
        """Its gates in words, each with its figure where that is published."""
        return tuple(gate_words(gate, self.certificate.scores) for gate in self.spec.gates)

    def json(self, name: str) -> Any:
        return parse_json(read_text(self.folder / name))

    @cached_property
    def domain(self) -> Domain:
        return Domain.from_spec(self.spec.columns)

    @cached_property
    def graph(self) -> CausalGraph:
        """The graph of `graph.json`."""
        return CausalGraph.from_json(self.json("graph.json"))

    @cached_property
    def tables(self) -> tuple[NoisyTable, ...]:
        """The noisy tables of `marginals.json`."""
        return noisy_values.read_tables(self.folder)

    @cached_property
    def waves(self) -> tuple[noisy_values.PublishedWave, ...]:
        """The waves before, of `waves.json`."""
        return noisy_values.earlier_waves(self.folder, self.spec)

    @cached_property
    def profile(self) -> Any:
        """The content of `privacy/profile.json`."""
        return self.json("privacy/profile.json")

    @cached_property
    def deltas(self) -> dict[float, float]:
        """Delta at each epsilon of the profile."""
        return {p["epsilon"]: p["delta"] for p in self.profile["points"]}

    @cached_property
    def codes(self) -> Codes:
        """Levels of the modelled columns in the first `MAX_ROWS` rows: `[rows, columns]`."""
        path = self.folder / CSV_NAME
        check_plain(path)
        check_header(path, tuple(self.spec.columns))
        frame = pd.read_csv(
            path,
            nrows=MAX_ROWS,
            dtype=str,
            keep_default_na=False,
            na_filter=False,
            encoding="utf-8",
            index_col=False,
        )
        kinds = ((c, column_kind(c).parsed(c, frame[c.name])) for c in self.domain.columns)
        return np.column_stack([encode_column(c, values).codes for c, values in kinds])

    @cached_property
    def csv(self) -> WrittenFile:
        return written(self.folder / CSV_NAME)

    @cached_property
    def parquet(self) -> WrittenFile:
        return written(self.folder / PARQUET_NAME)


def is_linked(bundle: Path) -> bool:
    """Whether a bundle's spec is one of linked tables; not where it cannot be read."""
    try:
        return linked_in(read_text(bundle / "spec.yaml"), path="spec.yaml") is not None
    except (OSError, ValueError, RecursionError, SynthdpError):
        return False


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def written(path: Path) -> WrittenFile:
    """A file of the bundle as its descriptions state it."""
    return WrittenFile(path.name, path.stat().st_size, sha256(path))


# --- folder ---
#
# A bundle's folder appears whole or not at all, and replaces nothing but a bundle.


def check_target(folder: Path, *, force: bool) -> None:
    """Whether a bundle can be written to `folder`; call it before anything is spent.

    Raises:
        OutputError: it exists and is not empty (and not `force`), is no bundle, or its parent
            cannot be written.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise OutputError(f"{folder} is not a folder", hint="choose another output folder")
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / SUMS).is_file():
            raise OutputError(
                f"{folder} exists and is not a bundle, so it is never replaced",
                hint="choose another output folder",
            )
        if not force:
            raise OutputError(
                f"{folder} already holds a bundle",
                hint="give --force to replace it, or choose another output folder",
            )
    parent = next(p for p in folder.absolute().parents if p.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        raise OutputError(
            f"{parent} cannot be written",
            hint="choose an output folder that you can write to, or change its permissions",
        )


@contextmanager
def new_folder(folder: Path, *, force: bool) -> Iterator[Path]:
    """A draft beside `folder`, which it replaces when the block succeeds.

    Otherwise the draft is deleted.
    """
    from safetensors import SafetensorError

    draft = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
        yield draft
        for path in [*draft.rglob("*"), draft]:  # readable for all, as a public folder is
            path.chmod(0o755 if path.is_dir() else 0o644)
            sync(path)
        _replace(draft, folder, force=force)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise OutputError(
            f"cannot write the bundle {folder}: {reason}",
            hint="make room or allow writing, then resume the release",
        ) from None
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _replace(draft: Path, folder: Path, *, force: bool) -> None:
    """Put the draft in place. An old bundle is set aside first and comes back if that fails."""
    check_target(folder, force=force)  # again: time has passed
    aside = draft.with_name(draft.name.replace(".partial-", ".old-"))
    old = folder.exists()
    if old:
        os.replace(folder, aside)
    try:
        os.replace(draft, folder)
    except OSError:
        if old:
            os.replace(aside, folder)
        raise
    sync(folder.parent)
    # Whatever stands aside now, of this writing or of one that was killed, has been replaced.
    for kind in ("partial", "old"):
        for rubbish in folder.parent.glob(f".{folder.name}.{kind}-*"):
            shutil.rmtree(rubbish, ignore_errors=True)
