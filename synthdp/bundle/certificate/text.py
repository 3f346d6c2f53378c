"""The certificate as Markdown: what was released, what is guaranteed, and what is not.

The text is a function of a `Certificate` alone, so that `verify` can write it again and compare.
The guarantee is worded as in Tschantz, Sen and Datta, "SoK: Differential Privacy as a Causal
Property" (arXiv:1710.05899, as in the version published at IEEE S&P 2020): a bound on the causal
effect of one data point, with no assumption about correlations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from synthdp.bundle.certificate.audit_text import audit_markdown
from synthdp.bundle.certificate.facts import Certificate
from synthdp.bundle.certificate.limits_text import (
    assumed_markdown,
    not_covered_markdown,
    query_guarantee,
)
from synthdp.bundle.certificate.scores_text import scores_markdown
from synthdp.bundle.wording import code, plain
from synthdp.errors import BudgetError
from synthdp.privacy.events.kinds import SecretSampleDpEvent, event_from_json, kind_of
from synthdp.spec.wording import up


def render(certificate: Certificate) -> str:
    """The certificate as Markdown, for people."""
    scores = (scores_markdown,) if certificate.scores else ()
    parts = (
        _head,
        _guarantee,
        _meaning,
        _group_table,
        _released,
        *scores,
        _spends,
        assumed_markdown,
        not_covered_markdown,
        _audits,
        _how_to_verify,
    )
    return "\n\n".join(part(certificate) for part in parts) + "\n"


def _head(c: Certificate) -> str:
    return (
        f"# Privacy certificate: {plain(c.title or c.dataset)}\n\nRelease `{c.run}` of dataset"
        f" `{c.dataset}`: synthetic data and the model that made it.\n\n| | |\n|---|---|\n|"
        f" epsilon, everything together | **{up(c.epsilon)}** |\n| delta | {c.delta:g} |\n| epsilon"
        f" allowed by the spec | {c.epsilon_allowed:g} |\n{_domain_row(c)}| spent on this outcome |"
        f" {_spent(c)} |\n| unit of privacy | {_unit(c)} |\n| neighbouring tables |"
        f" {_neighbours(c)} |\n| made by | {c.program} |"
    )


def _domain_row(c: Certificate) -> str:
    if c.domain_from is None:
        return ""
    own = c.domain_from
    return (
        f"| beside that, for the columns' domain | epsilon {own.epsilon:g} at delta {own.delta:g},"
        f" in run `{own.run}`: **together {up(c.epsilon + own.epsilon)}** at"
        f" {c.delta + own.delta:g} |\n"
    )


def _spent(c: Certificate) -> str:
    if all(p.used for p in c.purposes):
        return "all that was planned"
    return (
        f"epsilon {up(c.epsilon_spent)}: less than was planned, and no bound for the run (see Every"
        " look at the rows)"
    )


def _unit(c: Certificate) -> str:
    if c.unit == "row":
        return f"one row: {plain(c.unit_meaning)}"
    return f"all rows of one id, at most {c.unit_rows} of which are used: {plain(c.unit_meaning)}"


def _neighbours(c: Certificate) -> str:
    if c.adjacency == "add_remove":
        return "add or remove one unit (`add_remove`)"
    return "replace one unit by any other (`replace_one`)"


def _guarantee(c: Certificate) -> str:
    act = "adding it, removing it" if c.adjacency == "add_remove" else "replacing it by any other"
    return (
        "## The guarantee\n\nIt bounds the causal effect of one *data point* on what was released."
        f" A data point D_i is what the table holds of one unit ({plain(c.unit_meaning)})."
        f" Intervening on it - do(D_i): {act} - changes the probability of any outcome by at most a"
        f" factor of {up(math.exp(c.epsilon), digits=2)} (e^{up(c.epsilon)}), plus {c.delta:g}:\n\n"
        f"    P[outcome | do(D_i = d)]  <=  e^{up(c.epsilon)} P[outcome | do(D_i = d')] +"
        f" {c.delta:g}\n\nfor every outcome, every i, and all values d and d'. This holds whatever"
        " anyone knows besides, and however the rows are correlated: it is a statement about an"
        " intervention, so it needs no assumption that rows are independent. Anything computed"
        " from the released files alone has the same guarantee.\n\nThe numbers are of everything"
        " that the run had planned before a row was read. Which planned looks it then took may"
        " depend on what earlier ones released, so only the whole plan bounds every outcome."
        + query_guarantee(c)
        + _domain_guarantee(c)
    )


def _domain_guarantee(c: Certificate) -> str:
    """What the numbers leave out where the domain came from rows."""
    if c.domain_from is None:
        return ""
    own = c.domain_from
    return (
        "\n\n**The domain of the columns came from the rows too.** Run"
        f" `{own.run}` found types, bounds and categories under differential privacy. It and"
        f" earlier searches together had epsilon {own.epsilon:g} and delta {own.delta:g}, from the"
        " same ledger. The numbers above are of"
        " this release, given that domain. A data point's effect on both, the domain in `spec.yaml`"
        f" and this release, is bounded by the sums: epsilon {up(c.epsilon + own.epsilon)}, delta"
        f" {c.delta + own.delta:g}."
    )


def _meaning(c: Certificate) -> str:
    return (
        "## What it does not say: data points are not statuses\n\nThe guarantee is about the *data"
        " point* (what was written down), not about the *status* it describes (what is true of a"
        " person). A status may reach the release by other people's data points as well:\n\n   "
        " Ada's status R1 ------> Byron's status R2\n         |                        |\n        "
        " v                        v\n    Ada's data point D1     Byron's data point D2     other"
        " data points\n         |                        |                        |\n         +----"
        " epsilon ----> release <---- epsilon --------+\n\n`effects.svg` draws this four times,"
        " once for each of the lines below.\n\nWorked example, with pure epsilon: Byron is Ada's"
        " son, and her genetic status R1 is a cause of his, R2.\n\n- do(D1), Ada's data point"
        " alone: **epsilon**.\n- do(R1), Ada's status: **2 epsilon**, half of it by way of Byron's"
        " data point.\n- do(R1, R2) at once, the *joint* effect: **2 epsilon**, since fixing R2"
        " masks what R1 does to it.\n- the *total* effect, R1's 2 epsilon plus R2's epsilon: **3"
        " epsilon**. It counts the loss of each of them.\n\nWhat can be inferred about a person"
        " from *other people's* rows - smoking causes cancer, so a smoker's risk is known - is not"
        " bounded by this or any other differential privacy guarantee."
    )


def _group_table(c: Certificate) -> str:
    def number(value: float | None) -> str:
        return "no bound" if value is None else up(value)

    rows = [
        f"| {g.size} | {number(g.joint_epsilon)} | {g.joint_delta:g} | {number(g.total_epsilon)} |"
        f" {g.total_delta:g} |"
        for g in c.groups
    ]
    head = (
        "## Groups\n\n*Joint effect*: intervening on k data points at once. *Total effect*: the"
        " effects of k people's statuses added up, where each status may be a cause of all the"
        " later ones (the worst case). Which one matters is a moral question: the joint effect"
        " where the k data points are about one person, the total effect where they are about k"
        " people. The total is a sum of k bounds, one for each status. Changing all k statuses"
        " reaches these k data points alone, so what tells that world from this one is bounded by"
        " the joint effect. 'No bound': group privacy shows nothing at this delta.\n\n| k | joint"
        " effect: epsilon | at delta | total effect, at most: epsilon | at delta"
        " |\n|---|---|---|---|---|"
    )
    return "\n".join([head, *rows, "", _repeated(c) + _domain_groups(c)])


def _domain_groups(c: Certificate) -> str:
    """What the table of groups leaves out where the domain came from rows."""
    if c.domain_from is None:
        return ""
    return (
        "\n\n**The lines are of this release alone.** What k data points change in the columns'"
        f" domain, which run `{c.domain_from.run}` found in the same rows, comes on top of line k."
        " It is not tabulated; for k > 1 it is more than the epsilon of one data point that is"
        " stated above."
    )


def _repeated(c: Certificate) -> str:
    if c.unit == "id":
        return (
            f"The unit is an id, so all its rows (at most {c.unit_rows} are used) count as one data"
            " point: line k = 1. A household, or a person with several ids, is a group."
        )
    return (
        "The unit is a single row. **A person with several rows is a group, not a unit**: someone"
        " with k rows has the joint effect of line k (with 5 rows, line k = 5), and not the"
        " guarantee stated above. A person with more rows than the table lists has no guarantee"
        " stated here."
    )


def _released(c: Certificate) -> str:
    number = {charge.entry: i for i, charge in enumerate(c.charges, start=1)}
    lines = []
    for file in c.released:
        receipts = sorted(file.receipts, key=lambda entry: number.get(entry, 0))
        paid_by = ", ".join(str(number.get(entry, entry)) for entry in receipts)
        lines.append(f"| `{file.file}` | {paid_by} |")
    return "\n".join(
        [
            (
                "## What was released\n\nFiles that came out of rows, and the spends (numbered"
                " below) that paid for them. All other files of the bundle are functions of the"
                " spec, the ledger and these.\n\n| file | paid for by |\n|---|---|"
            ),
            *lines,
            *_constraints(c),
            *_derived(c),
            *_amended(c),
        ]
    )


def _constraints(c: Certificate) -> list[str]:
    if not c.constraints:
        return []
    head = (
        "\nEvery synthetic row fulfils the constraints below. The model's rows that did not were"
        " left out, which is a function of these rows alone and costs no privacy; the original rows"
        " were never held to them.\n"
    )
    return [head, *map(code, c.constraints)]


def _derived(c: Certificate) -> list[str]:
    if not c.derived:
        return []
    head = (
        "\nThe columns below were computed from others of the same synthetic row, within their"
        " declared bounds. Their values in the original were not read.\n"
    )
    return [head, *(code(f"{name} = {text}") for name, text in c.derived)]


def _amended(c: Certificate) -> list[str]:
    if not c.amended:
        return []
    return [
        "\nAfter the budget was reserved the publisher changed the spec once or more (the ledger's"
        f" `amend` entries), in: {', '.join(map(plain, c.amended))}. These fields say what is done"
        " with released values: plan, budget and the rows that were looked at are those of the"
        " reservation."
    ]


def _spends(c: Certificate) -> str:
    charges = [
        f"| {i} | {plain(x.purpose)} | {plain(x.mechanism)} | {describe_event(x.event)} |"
        f" `{x.entry[:12]}` |"
        for i, x in enumerate(c.charges, start=1)
    ]
    purposes = [
        f"| {plain(p.purpose)} | {up(p.epsilon)} | {'yes' if p.used else 'planned, unused'} |"
        for p in c.purposes
    ]
    return "\n".join(
        [
            (
                "## Every look at the rows\n\n| | purpose | mechanism | noise | ledger entry"
                " |\n|---|---|---|---|---|"
            ),
            *charges,
            (
                f"\nEpsilon of each planned purpose alone, at delta {c.delta:g}. The total is"
                " composed from all planned events at once by privacy loss distributions, so it is"
                " not the sum of these.\n\n| purpose | epsilon | used |\n|---|---|---|"
            ),
            *purposes,
            f"| **everything together** | **{up(c.epsilon)}** | |",
            *_unused(c),
            *_secret_sample(c),
            (
                "\nOne epsilon and delta are one point of a curve. `profile.json` and `profile.svg`"
                " hold the whole of it: delta at every epsilon. At epsilon 0, delta bounds the"
                " advantage (true minus false positive rate) of any test for one data point."
            ),
        ]
    )


def _unused(c: Certificate) -> list[str]:
    """The smaller epsilon of an outcome with unused planned looks, and what it does not mean."""
    unused = [plain(p.purpose) for p in c.purposes if not p.used]
    if not unused:
        return []
    return [
        f"\nPlanned and unused: {', '.join(unused)}. The looks that were taken compose to epsilon"
        f" {up(c.epsilon_spent)}. That describes this outcome; it is no bound for the run, as other"
        " outcomes might have taken more looks. The steward's ledger counts what was reserved for"
        " all of them."
    ]


def _secret_sample(c: Certificate) -> list[str]:
    """What a training on a secret sample of the units counts on."""
    events = (event_from_json(p.event) for p in c.planned)
    rates = {e.rate for e in events if isinstance(e, SecretSampleDpEvent)}
    if not rates:
        return []
    return [
        "\nEach training was on a secret sample of the data points, drawn once for all of its"
        f" steps: a data point was in it with probability {min(rates):.6g}, by a coin of its own."
        " Who was in it, and how many, is published nowhere and was not stored; epsilon counts on"
        " that."
    ]


def _audits(c: Certificate) -> str:
    return audit_markdown(c.audit)


def _how_to_verify(c: Certificate) -> str:
    return (
        "## How to verify\n\n    synthdp verify .          # in the bundle's folder; needs no"
        " network, no ledger, no rows\n    sha256sum -c SHA256SUMS   # files only\n\n`verify`"
        " recomputes the hashes of the run's ledger entries (`privacy/ledger.json`), holds each"
        " charge against the plan in `privacy/certificate.json`, composes the planned events again"
        " into an epsilon, compares it with this certificate and the spec, checks each file"
        " against the spec, computes the profile again, and writes this text and the pictures"
        " again from `privacy/certificate.json`. It cannot prove that the steward ran the program"
        f" as stated: that needs trust in the steward.\n\n{_signature(c)}"
    )


def _signature(c: Certificate) -> str:
    if c.signer is None:
        return (
            "**This bundle is unsigned.** Its files fit each other, and nothing in it proves who"
            " made it: get it, or the hash of `SHA256SUMS`, from a place that you trust."
        )
    return (
        "This bundle is signed: `privacy/statement.intoto.json` (an in-toto statement in a DSSE"
        f" envelope) names every file by its SHA-256, under the key\n\n    {c.signer}\n\nAnyone can"
        " make a key. Get the publisher's by another way than this bundle, and run `synthdp verify"
        " . --key signing-key.pub.pem`."
    )


def describe_event(event: Mapping[str, Any]) -> str:
    """One event in words, with its noise scale."""
    try:
        return kind_of(event_from_json(event)).words()
    except BudgetError:
        return plain(str(event.get("event", "unknown")).replace("_", " "))
