"""What an audit found, in Markdown: a section of the certificate, and what the terminal shows."""

from __future__ import annotations

from synthdp.bundle.certificate.audit_record import (
    SANITY,
    Advantage,
    Audit,
    AuditRecord,
    DeclaredAttack,
    Membership,
    Replay,
    TableNoise,
)
from synthdp.bundle.wording import plain
from synthdp.spec.wording import up

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
