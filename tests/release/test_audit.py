"""`synthdp audit` end to end: what it finds, where it goes, and what a release makes of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from synthdp.audit import plan
from synthdp.audit.plan import confirmed
from synthdp.bundle import (
    CONFIDENTIAL_FILE,
    PUBLIC_FILE,
    AuditRecord,
    Replay,
    audit_markdown,
    spends_of,
)
from synthdp.data import Domain
from synthdp.errors import OutputError, VerifyError
from synthdp.model import plan_for
from synthdp.release import release
from synthdp.report import audit_tables
from synthdp.spec import load_spec
from synthdp.verify import verify_bundle
from tests.builders import audit_record, declared_attack, membership, one_audit
from tests.release.conftest import certificate

pytestmark = pytest.mark.check


def narrow(tiny: Any) -> Any:
    """The tiny spec of two columns: an audit goes through pairs of rows for each."""
    tiny.write(graph={"mode": "given", "edges": ["sex -> smoker"]})
    spec = yaml.safe_load(tiny.spec.read_text(encoding="utf-8"))
    left_out = [name for name in spec["columns"] if name not in ("sex", "smoker")]
    spec["columns"] = {name: spec["columns"][name] for name in ("sex", "smoker")}
    spec["dataset"]["source"]["drop"] = left_out
    tiny.spec.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return tiny


def test_certificate_and_report_tell_the_simulated_audit(tiny: Any) -> None:
    audited = narrow(tiny)
    table = tiny.folder / "table.csv"
    table.rename(tiny.folder / "hidden.csv")  # neither reads rows nor opens a ledger
    plan.audit(tiny.spec, rows="simulated", out=tiny.out, pairs=2)
    assert not (tiny.folder / ".synthdp").exists()
    (tiny.folder / "hidden.csv").rename(table)
    release(tiny.spec, out=tiny.out)
    text = (audited.bundle / "privacy" / "certificate.md").read_text(encoding="utf-8")
    assert "Record and replay" in text
    assert "canaries in the gradient" in text
    assert "Nothing found speaks against the claim." in text
    stated = certificate(audited.bundle)["audit"]
    assert stated["rows"] == "simulated"
    assert [a["method"] for a in stated["audits"]] == ["one run, 5000 canaries in the gradient"]
    assert len(stated["replay_only"]) == 1
    assert stated["replay"]["findings"] == []
    assert verify_bundle(audited.bundle).ok
    page = (audited.out / "internal" / "internal.html").read_text(encoding="utf-8")
    assert "Statistical audits on simulated rows" in page
    assert "found nothing that speaks against the claim" in page


@pytest.mark.slow
def test_no_budget_is_spent_and_no_row_read_without_rows(tiny: Any, synthdp: Any) -> None:
    tiny.write()
    (tiny.folder / "table.csv").unlink()
    printed = synthdp("audit", tiny.spec, "--replay", "--out", tiny.out, "--json")
    assert printed.code == 0
    facts = json.loads(printed.out)
    assert facts["rows"] == "none" and facts["audits"] == [] and facts["replay"]["pairs"] > 50
    assert not (tiny.folder / ".synthdp").exists()


@pytest.mark.slow
def test_an_audit_on_real_rows_stays_inside(tiny: Any) -> None:
    tiny.write()
    record, path = plan.audit(tiny.spec, rows="real", out=tiny.out, pairs=1)
    assert path == tiny.out / CONFIDENTIAL_FILE
    assert record.rows == "real"
    assert not (tiny.out / PUBLIC_FILE).exists()
    release(tiny.spec, out=tiny.out)
    assert certificate(tiny.bundle)["audit"] is None
    page = (tiny.out / "internal" / "internal.html").read_text(encoding="utf-8")
    assert "Statistical audits on real rows" in page


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes), encoding="utf-8")


def audit_file(tiny: Any) -> Path:
    """What an audit of the tiny spec writes, without making one."""
    loaded = load_spec(tiny.write().spec)
    spends = spends_of(plan_for(loaded, Domain.from_spec(loaded.columns)))
    replay = Replay(mechanisms=2, pairs=90, largest_share=0.99, findings=())
    tiny.out.mkdir()
    path: Path = tiny.out / PUBLIC_FILE
    path.write_text(
        audit_record(rows="none", spends=spends, replay=replay).model_dump_json(),
        encoding="utf-8",
    )
    return path


def test_an_audit_of_another_plan_is_refused_before_anything_is_spent(tiny: Any) -> None:
    audit_file(tiny)
    tiny.write(privacy={"epsilon": 0.9})
    with pytest.raises(OutputError, match="other spends"):
        release(tiny.spec, out=tiny.out)
    assert tiny.kinds() == []


def test_a_refuted_claim_is_not_released(tiny: Any) -> None:
    path = audit_file(tiny)
    replay = json.loads(path.read_text())["replay"]
    edit(path, replay=replay | {"findings": ["NoisyMarginals: moved"]})
    with pytest.raises(VerifyError, match="refutes the claim: NoisyMarginals: moved"):
        release(tiny.spec, out=tiny.out)
    assert tiny.kinds() == []


def test_a_damaged_record_and_one_on_real_rows_are_refused(tiny: Any) -> None:
    path = audit_file(tiny)
    real = path.read_bytes().replace(b'"none"', b'"real"', 1)
    for content in (b"{}", b"not json", b"\xff", real):
        path.write_bytes(content)
        told = "other spends" if content == real else "not an audit record"
        with pytest.raises(OutputError, match=told):
            release(tiny.spec, out=tiny.out)
    assert tiny.kinds() == []


def test_every_figure_of_an_audit_has_its_heading() -> None:
    record = audit_record(rows="real", audits=(confirmed(lambda: one_audit()),))
    (table,) = audit_tables([record.model_dump() | {"refuted": ()}])
    (row,) = table.rows
    told = dict(zip(table.headings, row, strict=True))
    assert told["mechanism"] == "m"
    assert told["runs"] == "100"
    assert told["would notice"] == "half the noise: 90%"
    assert told["claim"] == "not refuted"


def test_every_declared_attack_is_told() -> None:
    black = declared_attack("targeted with random_forest", epsilon_provable=2.7)
    changes = {"advantage": 0.9, "epsilon_lower": 2.5, "epsilon_provable": 2.7, "refuted": True}
    white = declared_attack("elbo with lira_online", **changes)
    attack = membership(black, white, refuted=True)
    record = audit_record(membership=attack)
    text = audit_markdown(record)
    assert (
        r"| elbo with lira\_online | 50 | 0.900 (-0.100 to 0.300) | none | 0.600 | 2.5 | 2.7 |"
        r" **refuted** |" in text
    )
    assert "The claim is refuted" in text and record.refuted
    tables = {
        t.caption.split(" on ")[0]: t
        for t in audit_tables([record.model_dump() | {"refuted": record.refuted}])
    }
    told = [
        dict(zip(tables["Attacks"].headings, row, strict=True)) for row in tables["Attacks"].rows
    ]
    assert [(t["attack"], t["claim"]) for t in told] == [
        ("targeted with random_forest", "not refuted"),
        ("elbo with lira_online", "refuted"),
    ]
    older = record.model_copy(update={"membership": attack.model_copy(update={"attacks": ()})})
    assert "elbo" not in audit_markdown(older)  # a record of an earlier version


@pytest.mark.parametrize(
    ("alarms", "refuted"),
    [
        ([False], False),
        ([True, False], False),
        ([True, True, False], False),
        ([True] * 3, True),
    ],
)
def test_one_alarm_is_not_a_refutation(alarms: list[bool], refuted: bool) -> None:
    rounds = iter(alarms)
    fact = confirmed(lambda: one_audit(refuted=next(rounds)))
    assert fact.refuted is refuted
    assert list(rounds) == []


def test_only_the_spends_that_were_audited_are_covered(tiny: Any) -> None:
    record = AuditRecord.model_validate_json(audit_file(tiny).read_text())
    charges = [(s.purpose, s.event) for s in record.spends]
    assert record.covers(charges) and record.covers(charges[:1])
    assert not record.covers([("measure", {"event": "nothing"})])
    assert not record.covers([*charges, ("another", charges[0][1])])
