"""Writing the bundle of persons with visits, as `bundle.write` does that of one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from synthdp.bundle.content import (
    MODEL_FILES,
    REPORT,
    check_paid,
    check_target,
    new_folder,
    refuse,
    released,
)
from synthdp.bundle.descriptions import DATACARD, public_spec
from synthdp.bundle.linked import (
    LinkedBundle,
    as_one,
    certify_linked,
    linked_tables_json,
    persons_of,
    table_files,
    written_columns,
)
from synthdp.bundle.linked_texts import LINKED_DERIVED
from synthdp.bundle.noisy_values import ESTIMANDS, MARGINALS, sums_json
from synthdp.bundle.signing import Signer
from synthdp.bundle.table_files import write_csv, write_parquet
from synthdp.bundle.write import planned_facts, sum_and_sign, word, write_texts
from synthdp.ledger.entries import balance_at_reservation
from synthdp.model.visits import store
from synthdp.model.visits.fit import FittedVisits
from synthdp.model.visits.laws import VisitModel
from synthdp.privacy.mechanisms.sums import NoisyProducts
from synthdp.privacy.plan import MOMENTS, ReleasePlan
from synthdp.privacy.private import Receipt, Released
from synthdp.spec.model import LinkedSpec

if TYPE_CHECKING:
    from synthdp.ledger.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class LinkedContent:
    """All that goes into a bundle: both tables as frames, persons first, what was fitted, and
    figures of estimands, and sums of numbers, where the spec has any.
    """

    spec: LinkedSpec
    run: str
    plan: ReleasePlan
    synthetic: Released[tuple[pd.DataFrame, pd.DataFrame]]
    fitted: FittedVisits
    estimands: Released[dict[str, Any]] | None = None
    moments: Released[NoisyProducts] | None = None


def receipts_of(content: LinkedContent) -> dict[str, frozenset[Receipt]]:
    """Receipts of each file that came out of rows."""
    frames = released("synthetic", content.synthetic, tuple)
    tables = released("tables", content.fitted.tables, Mapping)
    model = released("model", content.fitted.model, VisitModel)
    if len(frames.value[0]) != persons_of(content.spec):
        refuse("synthetic", f"must have the spec's {persons_of(content.spec)} persons")
    found = {file: frames.receipts for pair in table_files(content.spec).values() for file in pair}
    if (content.moments is not None) != (content.plan.moments is not None):
        refuse("moments", "must be there where they are planned, and nowhere else")
    counted = tables.receipts
    if content.moments is not None:
        counted |= released("moments", content.moments, NoisyProducts).receipts
    found |= {MARGINALS: counted, **dict.fromkeys(MODEL_FILES, model.receipts)}
    if content.spec.graph.mode == "predict":
        found |= dict.fromkeys(("graph.json", "graph.svg"), tables.receipts)
    if (content.estimands is not None) != bool(content.spec.estimands):
        refuse("estimands", "must be there where the spec has any, and nowhere else")
    if content.estimands is not None:
        found[ESTIMANDS] = released("estimands", content.estimands, dict).receipts
    return found | {REPORT: frames.receipts | tables.receipts}


def write_linked(
    folder: Path,
    content: LinkedContent,
    *,
    ledger: Ledger,
    force: bool,
    signer: Signer | None = None,
    check: Callable[[LinkedBundle], None] = lambda _: None,
) -> Path:
    """Write the bundle of a release to `folder`, atomically; returns the folder; raises as
    `write.write_bundle`, and what `check` raises of the draft, which is then deleted.
    """
    receipts, planned = receipts_of(content), content.plan.stated_spends
    entries = check_paid(content.run, planned, receipts, ledger)
    check_target(folder, force=force)
    spec, plan = public_spec(content.spec), content.plan
    facts = certify_linked(
        spec,
        plan,
        run=content.run,
        planned=planned,
        entries=entries,
        group_epsilons=plan.group_epsilons,
        receipts=receipts,
        signer=signer.identity if signer else None,
        balance=(balance := balance_at_reservation(ledger.entries(), content.run)).to_json(),
    )
    columns, files = written_columns(spec), table_files(spec)
    tables, fitted = zip(files.items(), content.synthetic.value, strict=True), content.fitted
    moments = {} if content.moments is None else {MOMENTS: content.moments.value}
    counts = linked_tables_json(fitted.tables.value, plan, fitted.arrows.dependent)
    stated = {MARGINALS: counts | sums_json(moments)}
    stated |= {} if content.estimands is None else {ESTIMANDS: content.estimands.value}
    with new_folder(folder, force=force) as draft:
        for (name, (csv, parquet)), frame in tables:
            write_csv(frame, columns[name], draft / csv)
            write_parquet(draft / csv, columns[name], draft / parquet)
        store.save(fitted.model.value, draft)
        bundle = LinkedBundle(draft, as_one(spec), facts, entries[-1].at[:10], spec)
        write_texts(bundle, LINKED_DERIVED, entries, balance, stated)
        check(bundle)
        sum_and_sign(draft, facts, signer)
    return folder


def foresee_linked(spec: LinkedSpec, plan: ReleasePlan) -> None:
    """Compute and word all that a certificate will say of a plan, as `write.foresee` does."""
    spec = public_spec(spec)
    facts = certify_linked(spec, plan, **planned_facts(plan))
    word(LinkedBundle(Path(), as_one(spec), facts, "2000-01-01", spec), LINKED_DERIVED, DATACARD)
