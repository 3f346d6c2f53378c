"""The certificate as Markdown: what was released, what is guaranteed, and what is not.

The text is a function of a `Certificate` alone, so that `verify` can write it again and compare.
The guarantee is worded as in Tschantz, Sen and Datta, "SoK: Differential Privacy as a Causal
Property" (arXiv:1710.05899, as in the version published at IEEE S&P 2020): a bound on the causal
effect of one data point, with no assumption about correlations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from synthdp.bundle.audit_record import (
    SANITY,
    Advantage,
    Audit,
    AuditRecord,
    DeclaredAttack,
    Membership,
    Replay,
    TableNoise,
)
from synthdp.bundle.certificate import Certificate
from synthdp.errors import BudgetError
from synthdp.evaluate.dp_scores import LEVEL, ChargedScore
from synthdp.privacy.events.base import EventKind
from synthdp.privacy.events.kinds import (
    OF_BATCHES,
    SecretSampleDpEvent,
    event_from_json,
    kind_of,
    leaves,
)
from synthdp.privacy.noise import NoiseKind
from synthdp.privacy.plan import SCORES
from synthdp.spec.load.wording import up
from synthdp.spec.model import Column, Dataset, derived_of


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


# --- limits text ---
#
# The limits of the guarantee as Markdown: what is assumed public, and what is not covered.


def query_guarantee(c: Certificate) -> str:
    """Whose guarantee it is where a database's query made the rows."""
    if c.source != "sql":
        return ""
    whose = "each row of" if c.unit == "row" else "all rows of one id in"
    return (
        f"\n\nThe rows were the answer of a query to a database: the guarantee is for {whose} that"
        " answer, and holds for the people who are stored there if the query makes one row of each"
        " stored row."
    )


def assumed_markdown(c: Certificate) -> str:
    """The section on what is assumed to be public."""
    given = {
        "none": "that no causal graph was used",
        "given": "the causal graph, which the steward drew without looking at the rows",
        "validate": (
            "the causal graph, which the steward drew without looking at the rows; what was found"
            " about it was paid for"
        ),
        "learn": (
            "the arrows that the spec requires or forbids; the learned graph itself was paid for"
        ),
        "predict": (
            "the order of the columns, which is no causal graph: an arrow says that a column"
            " predicts a later one, and claims no cause; which pairs were measured, and which have"
            " an arrow, was chosen from noisy tables that were paid for"
        ),
    }[c.graph]
    if c.rows_kind == "public":
        rows = (
            f"the number of rows, declared as {c.rows:,}: it is treated as known to everyone and is"
            " not protected"
        )
    else:
        rows = f"a declared, approximate number of rows, {c.rows:,}; the exact number was not used"
    return "\n".join(
        [
            (
                "## What is assumed to be public\n\nThe guarantee holds if the steward chose these"
                " without looking at the rows:\n"
            ),
            f"- {_domain(c)};",
            f"- {rows};",
            f"- {given};",
            (
                "- the spec itself, with every setting of the mechanisms: `spec.yaml` (file paths,"
                " queries and addresses are left out)."
            ),
        ]
    )


def _domain(c: Certificate) -> str:
    if c.domain_from is None:
        return (
            f"the domain of all {c.columns} columns: names, types, categories, bounds, bins and"
            " spikes"
        )
    return (
        f"the names of all {c.columns} columns, and what the steward changed in their domain after"
        f" run `{c.domain_from.run}` had found it; that run itself was paid for"
    )


def not_covered_markdown(c: Certificate) -> str:
    """The section on what the guarantee does not cover."""
    lines = [
        (
            "Correlated rows: a bound on each data point's effect is not a bound on what correlated"
            " data points reveal together (see Groups)."
        ),
        (
            "Inference from others: what the rows of other people say about a person, with or"
            " without that person's row."
        ),
        _presence(c),
        fitting(c),
        "Timing: how long the release took, its memory use, and whether and when it was made.",
        _steward_alone(c),
        _other_releases(c),
    ]
    noises = noises_of(x.event for x in c.planned)
    if {"lattice", "rounded"} & noises:
        lattice = on_lattice(x.event for x in c.planned)
        lines.append(f"Floating-point arithmetic: {_arithmetic(noises, lattice)}")
    for gate in c.outside_gates:
        if gate.at_most is not None:
            bound = f"at most {gate.at_most:g}"
        else:
            bound = f"at least {gate.at_least:g}"
        lines.append(
            f"**The decision to publish**: the spec asked for `{gate.metric}` {bound}, a figure"
            " computed on real rows without noise. That this bundle exists says that it held; this"
            " is outside the guarantee."
        )
    return "\n".join(["## What is not covered\n", *(f"- {line}" for line in lines)])


def _steward_alone(c: Certificate) -> str:
    exception = "but for the scores above, " if c.scores else ""
    return (
        f"What the steward alone has: {exception}the internal report and the tracking server show"
        " figures computed on real rows without noise. They must not be published."
    )


def _arithmetic(noises: Set[NoiseKind], lattice: str) -> str:
    """What is assumed of noise that is not discrete and exact; `lattice` is `on_lattice`."""
    exactly = "that the generator's Gaussians are exactly Gaussian is assumed"
    if not lattice:
        return f"{exactly}. {_noise_on_tables(noises)}"
    return (
        f"{lattice} is a 64-bit Gaussian rounded to a public lattice, so the low bits of"
        f" a result tell nothing; {exactly}. {_noise_on_tables(noises)}"
    )


def _noise_on_tables(noises: Set[NoiseKind]) -> str:
    rounded = "is a 64-bit Gaussian rounded to whole numbers"
    if "discrete" not in noises:
        return f"Noise on tables {rounded}, on the same assumption."
    planned = "Noise on planned tables is discrete and exact"
    if "rounded" not in noises:
        return f"{planned}."
    return f"{planned}; on tables chosen during the search it {rounded}."


def _presence(c: Certificate) -> str:
    if c.adjacency == "add_remove":
        return (
            "Being in the source: the guarantee covers whether a data point was used, not what is"
            " known from elsewhere about who is in the source."
        )
    return (
        "Being in the source: whether someone's data point is in the table at all is not protected;"
        " only its content is."
    )


def fitting(c: Certificate) -> str:
    """What the existence of a release says about its table."""
    conditions = ["lacks a column", "has far more rows than declared"]
    if c.out_of_domain == "refuse":
        conditions.append("holds a value outside the declared domain")
    if c.unit == "id":
        conditions.append("has a row without an id")
    elif c.rows_kind == "public":
        conditions.append("has another number of rows than declared")
    return (
        f"That the table fitted: a table that {' or '.join(conditions)} is refused, so this release"
        " says that it was not so."
    )


def _other_releases(c: Certificate) -> str:
    cap = " No cap was declared for their sum."
    if c.cap:
        epsilon, delta = c.cap
        cap = f" The steward's ledger caps their sum at epsilon {epsilon:g}, delta {delta:g}."
    return f"Other releases of dataset `{c.dataset}`: their epsilons and deltas add to these.{cap}"


def noises_of(events: Iterable[Mapping[str, Any]]) -> set[NoiseKind]:
    """The kinds of noise inside `events`."""
    return {leaf.noise for leaf in _leaves(events) if leaf.noise is not None}


def on_lattice(events: Iterable[Mapping[str, Any]]) -> str:
    """What inside `events` has Gaussian noise on a lattice: a training, sums, both; empty: none."""
    trained = {leaf.name in OF_BATCHES for leaf in _leaves(events) if leaf.noise == "lattice"}
    if len(trained) == 2:
        return "the noise of training and of sums"
    return "the training's noise" if True in trained else "noise on sums" if trained else ""


def _leaves(events: Iterable[Mapping[str, Any]]) -> Iterator[EventKind]:
    return (leaf for event in events for leaf in leaves(event_from_json(event)))


# --- audit text ---
#
# What an audit found, in Markdown: a section of the certificate, and what the terminal shows.


ROWS = {
    "none": "No row was used.",
    "simulated": (
        "The rows were made up from the spec or from a released model, so these results are public."
    ),
    "real": (
        "**Confidential**: the rows were real, and these results are not covered by the guarantee."
    ),
}

NO_CANARIES = "Nothing is trained by DP-SGD in this plan, so no canaries were planted."


def audit_markdown(record: AuditRecord | None) -> str:
    """The section "Audits"; says so where there was none."""
    head = "## Audits\n\n"
    if record is None:
        return head + "None was recorded for this release. The guarantee does not rest on audits."
    parts = [
        f"Made by {record.program} on {record.day}. This is {SANITY}. {ROWS[record.rows]}",
        *([_replay(record.replay)] if record.replay else []),
        *([_tables(record.tables)] if record.tables else []),
        *([_statistical(record.audits)] if record.audits else []),
        *(
            [
                "Replayed only, for want of a statistical audit:"
                f" {'; '.join(map(plain, record.replay_only))}."
            ]
            if record.replay_only
            else []
        ),
        *([NO_CANARIES] if record.rows != "none" and not record.trains else []),
        *([_membership(record.membership)] if record.membership else []),
        _conclusion(record),
    ]
    return head + "\n\n".join(parts)


def _replay(replay: Replay) -> str:
    others = f"{len(replay.findings)} findings" if replay.findings else "Nothing else differed"
    return (
        f"*Record and replay*: {replay.mechanisms} mechanisms with this release's settings ran on"
        f" {replay.pairs} pairs of neighbouring made-up tables under the same noisy outputs. What"
        f" the noise hid differed by at most {replay.largest_share:.1%} of what the charged event"
        f" allows. {others}."
    )


def _tables(noise: TableNoise) -> str:
    return (
        f"*Published tables*: {noise.tables} noisy tables count the same rows, so they differ by"
        f" their noise alone. Their totals and margins, {noise.comparisons} independent"
        f" comparisons, differ by {noise.share:.2f} times the variance that was claimed; less noise"
        " would have let them agree better."
    )


def _statistical(audits: tuple[Audit, ...]) -> str:
    rows = [
        f"| {a.mechanism} | {a.method} | {a.unit_rows} | {a.runs} |"
        f" {'none' if a.epsilon is None else up(a.epsilon)} at {a.delta:g} | {a.epsilon_lower:.3g}"
        f" | {a.epsilon_provable:.3g} | {a.fault}: {a.power:.0%} |"
        f" {'**refuted**' if a.refuted else 'not refuted'} |"
        for a in audits
    ]
    return "\n".join(
        [
            (
                "*Statistical audits*, each with a strong adversary against one mechanism. The"
                " lower bound on epsilon holds with 95% confidence. Beside it stand the most that"
                " an audit of so many runs could have shown, and the chance that it would have"
                " noticed a fault. A claim counts as refuted after three alarms in a row. Where one"
                " row would be too well hidden for any audit to see a fault, the unit has"
                " several.\n"
            ),
            (
                "| mechanism | method | rows of the unit | runs | claimed epsilon | shown: at least"
                " | could show | would notice | claim |"
            ),
            "|---|---|---|---|---|---|---|---|---|",
            *rows,
        ]
    )


def _membership(attack: Membership) -> str:
    dropped = (
        f" ({attack.pairs_dropped} more were dropped, since a training always killed its worker)"
        if attack.pairs_dropped
        else ""
    )
    told = (
        f"*Membership attack* on the whole pipeline, {attack.pairs} pairs of shadow"
        f" models{dropped}: advantage over guessing {attack.advantage:.3f} (95% interval"
        f" {attack.lower:.3f} to {attack.upper:.3f}); the claim allows {attack.ceiling:.3f}."
    )
    if attack.unit is not None:
        told += f" The target is one unit with all its rows: {plain(attack.unit)}."
    if attack.baseline:
        told += (
            " Of histograms of columns, which never ask about the target, the same classifier had"
            f" {_interval(attack.baseline)}."
        )
    if attack.attacks:
        told += (
            " The first attack sees the synthetic rows alone; the others see the released model's"
            " likelihood of the target and the noisy tables. Bounds on epsilon hold with 95%"
            " confidence for all attacks together; beside each stands the most that so many models"
            " could have shown, and as a control the advantage where neither world has the target,"
            " which must be at chance.\n\n| attack | test models in each world | advantage |"
            " control | AUC | epsilon: at least | could show | claim"
            " |\n|---|---|---|---|---|---|---|---|\n" + "\n".join(map(_attack, attack.attacks))
        )
    if attack.warnings:
        told += "\n\nBefore you believe the first attack and the shadow models:\n\n" + "\n".join(
            f"- {plain(w)}" for w in attack.warnings
        )
    return told


def _attack(a: DeclaredAttack) -> str:
    cells = (
        plain(a.attack),
        str(a.models),
        f"{a.advantage:.3f} ({a.lower:.3f} to {a.upper:.3f})",
        "none" if a.control is None else _interval(a.control),
        f"{a.auc:.3f}" if a.auc_upper is None else f"{a.auc:.3f} (up to {a.auc_upper:.3f})",
        f"{a.epsilon_lower:.3g}",
        "not recorded" if a.epsilon_provable is None else f"{a.epsilon_provable:.3g}",
        "**refuted**" if a.refuted else "not refuted",
    )
    return f"| {' | '.join(cells)} |"


def _interval(gap: Advantage) -> str:
    return f"{gap.value:.3f} ({gap.lower:.3f} to {gap.upper:.3f})"


def _conclusion(record: AuditRecord) -> str:
    if record.refuted:
        return "**The claim is refuted**:\n\n" + "\n".join(
            f"- {finding}" for finding in record.refuted
        )
    return "Nothing found speaks against the claim."


# --- scores text ---
#
# Published scores in words: a sentence each, and the certificate's section on them.


WAYS = {"tv1": "one-way", "tv2": "two-way"}


def in_words(score: ChargedScore) -> str:
    """A score with its interval, as a sentence."""
    value = "hidden by the noise" if score.value is None else f"{score.value:.4f}"
    return f"{what(score)}: {value} ({LEVEL:.0%} interval {score.low:.4f} to {score.high:.4f})."


def what(score: ChargedScore) -> str:
    """What a score is of."""
    if score.target is None:
        return (
            f"Mean total variation of {score.tables} {WAYS[score.name]} tables, synthetic against"
            " real rows (0 is equal, 1 is disjoint)"
        )
    return (
        f"Share of held-out real rows whose {plain(score.target)} a logistic regression that learnt"
        " on synthetic rows tells right"
    )


def scores_markdown(c: Certificate) -> str:
    """The section of the certificate on scores: basis, cost, and the decisions that used them."""
    cost = next((p.epsilon for p in c.purposes if p.purpose == SCORES), None)
    rows = [
        f"| {what(s)} | {_value(s)} | {s.low:.4f} to {s.high:.4f} |"
        f" {', '.join(f'{n:,}' for n in s.counts)} | {s.sigma:.6g} |"
        for s in c.scores
    ]
    return "\n".join(
        [
            (
                "## Scores on real rows\n\nCounted on the original with Gaussian noise on whole"
                " counts, planned and charged like every look (purpose"
                f" `scores`{'' if cost is None else f', epsilon {cost:.4f} alone'}), so that they"
                " are inside the guarantee.\n"
            ),
            (
                f"| score | value | {LEVEL:.0%} interval | noisy counts | sigma"
                " |\n|---|---|---|---|---|"
            ),
            *rows,
            (
                "\nCounts are of misplaced rows (that would have to move for the real tables to"
                " have the synthetic shares), or of wrong and right answers. The number of rows"
                " that distances are divided by is estimated from the noisy tables in"
                " `marginals.json`. Intervals include the noise; those of shares of right answers"
                " also the choice of the held-out rows. They hold one by one, not all together."
                " What a model reaches that learnt on real rows was not released: it would cost far"
                " more."
            ),
            *_decided(c),
        ]
    )


def _value(score: ChargedScore) -> str:
    return "hidden by the noise" if score.value is None else f"{score.value:.4f}"


def _decided(c: Certificate) -> list[str]:
    for_gates = [
        f"`{g.metric}`"
        f" {f'at most {g.at_most:g}' if g.at_most is not None else f'at least {g.at_least:g}'}"
        for g in c.charged_gates
    ]
    if not for_gates:
        return []
    return [
        f"\nThe decision to publish also rested on {' and '.join(for_gates)}: on released scores"
        " alone, so that it is inside the guarantee."
    ]


# --- wording ---
#
# Words and numbers of the bundle's texts.


def plain(text: str) -> str:
    """A steward's words on one line, safe inside a Markdown table or sentence.

    No markup, link or picture in them is drawn.
    """
    words = " ".join(text.split()).replace("\\", "\\\\").replace("<", "&lt;").replace("`", "'")
    return re.sub(r"([|*_\[\]~])", r"\\\1", words)


def code(text: str) -> str:
    """A line of a Markdown code block, where nothing is markup."""
    return "    " + " ".join(text.split())


def title_of(dataset: Dataset) -> str:
    """The synthetic table's title, which says once that it is synthetic."""
    title = dataset.title or dataset.id
    return title if title.rstrip(" .)").lower().endswith("synthetic") else f"{title} (synthetic)"


def about_column(column: Column) -> str:
    """What a column holds, and what it is computed from; empty where neither was stated."""
    derived = derived_of(column)
    said = [
        column.description,
        None if derived is None else f"computed from other columns: {derived}",
    ]
    return "; ".join(s for s in said if s)
