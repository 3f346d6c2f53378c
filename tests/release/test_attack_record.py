"""What an audit record, its texts and the reports tell of a membership attack: all that the attack
told, of each attack its own figures.
"""

from dataclasses import replace

import numpy as np
import pytest

from synthdp.audit import attack_facts
from synthdp.bundle import Membership, audit_markdown, plain
from synthdp.report import audit_tables
from synthdp_attacks import (
    Claim,
    Codes,
    Fleet,
    MembershipReport,
    NoisyCounts,
    Public,
    attack_membership,
    attack_tables,
    shared_confidence,
)
from tests.attacks.runners import deadly
from tests.builders import audit_record, declared_attack, membership

pytestmark = pytest.mark.check

ROWS = np.random.default_rng(0).integers(3, size=(40, 2))
ASKED, RELEASES, CLAIM = 32, 400, Claim(1.0, 1e-5)


def ignorant(rows: Codes, *, seed_sequence: np.random.SeedSequence) -> Codes:
    return np.random.default_rng(seed_sequence).integers(3, size=(10, 2))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> MembershipReport:
    """Two declared attacks: the black box, one of whose pairs was lost, and one on tables, judged
    on many more releases.
    """
    rng = np.random.default_rng(1)
    fleet = Fleet(folder=tmp_path_factory.mktemp("fleet"), runner=deadly, attempts=2)
    black = attack_membership(
        ROWS,
        ignorant,
        public=Public((3, 3)),
        targets=[0],
        pairs=ASKED,
        rng=rng,
        fleet=fleet,
        claim=CLAIM,
        extractors=(),
        classifiers=(),
        elsewhere=1,
    )

    def measured(rows: Codes) -> list[NoisyCounts]:
        return [
            NoisyCounts(
                (0,), np.bincount(rows[:, 0], minlength=3) + rng.normal(scale=5, size=3), 5.0
            )
        ]

    tables = attack_tables(
        measured, ROWS[1:], ROWS, releases=RELEASES, claim=CLAIM, confidence=shared_confidence(2)
    )
    return replace(black, others=(tables,))


def test_facts_are_of_the_pairs_that_were_used_and_of_each_attack(report: MembershipReport) -> None:
    facts = attack_facts(report, pairs=ASKED)
    assert (facts.pairs, facts.pairs_dropped) == (31, 1)
    assert facts.attacks[0].models == report.main.models
    assert facts.warnings == report.warnings and any("dropped" in w for w in facts.warnings)
    assert facts.baseline
    assert facts.baseline.value == report.baseline.value
    assert facts.baseline.upper == report.baseline.upper
    black, tables = facts.attacks
    assert black.epsilon_provable == facts.epsilon_provable == report.epsilon_provable
    assert tables.models == RELEASES
    assert tables.epsilon_provable
    assert black.epsilon_provable
    assert tables.epsilon_provable > 3 * black.epsilon_provable
    for told, verdict in zip(facts.attacks, report.declared, strict=True):
        assert verdict.control and told.control
        assert told.control.model_dump() == {
            "value": verdict.control.value,
            "lower": verdict.control.lower,
            "upper": verdict.control.upper,
        }
        assert told.auc < told.auc_upper == verdict.row.auc.upper
    assert Membership.model_validate_json(facts.model_dump_json()) == facts
    whole = attack_facts(
        replace(report, remarks=(), dropped=0, verdict=replace(report.verdict, control=None)),
        pairs=ASKED,
    )
    assert (whole.pairs, whole.pairs_dropped) == (ASKED, 0) and whole.attacks[0].control is None


def test_texts_and_reports_tell_each_attack_its_own(report: MembershipReport) -> None:
    facts = attack_facts(report, pairs=ASKED)
    text = audit_markdown(audit_record(membership=facts))
    assert "31 pairs of shadow models (1 more were dropped" in text
    assert facts.baseline
    assert f"had {facts.baseline.value:.3f} (" in text
    assert all(f"- {plain(warning)}" in text for warning in facts.warnings)
    lines = {row[2:12]: row for row in text.splitlines()}
    listed = audit_record(membership=facts).model_dump() | {"refuted": ()}
    tables = {t.caption.split(" on simulated")[0]: t for t in audit_tables([listed])}
    rows = {
        row[0]: dict(zip(tables["Attacks"].headings, row, strict=True))
        for row in tables["Attacks"].rows
    }
    for a in facts.attacks:
        assert a.control and a.epsilon_provable and a.auc_upper
        line, control = lines[a.attack[:10]], a.control
        assert f"{control.value:.3f} ({control.lower:.3f} to {control.upper:.3f}) |" in line
        assert f"| {a.epsilon_provable:.3g} |" in line and f"(up to {a.auc_upper:.3f})" in line
        assert rows[a.attack]["could show at most"] == f"{a.epsilon_provable:.3g}"
        assert rows[a.attack]["AUC at most"] == f"{a.auc_upper:.3g}"
        assert rows[a.attack]["control"].startswith(f"{a.control.value:.3g} (")
    (row,) = tables["Membership attack"].rows
    assert row[:3] == ("one row", "31", "1") and row[-1].startswith(f"{facts.baseline.value:.3g} (")
    assert [w for (w,) in tables["Warnings of the attack"].rows] == list(facts.warnings)


def test_a_record_of_an_earlier_version_claims_nothing_that_it_lacks() -> None:
    facts = membership(declared_attack("elbo"), epsilon_provable=2.7)
    text = audit_markdown(audit_record(membership=facts))
    assert (
        "| elbo | 50 | 0.100 (-0.100 to 0.300) | none | 0.600 | 0 | not recorded | not refuted |"
        in text
    )
    assert "dropped" not in text and "histograms" not in text and "Before you believe" not in text
