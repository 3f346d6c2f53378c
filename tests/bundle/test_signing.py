"""Keys, signatures and the signed statement: what was signed is what is there, by whom it says."""

import base64
import json
import shutil
import stat
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from synthdp import Bundle
from synthdp.bundle import (
    FILES,
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    PRIVATE_NAME,
    PUBLIC_NAME,
    STATEMENT,
    STATEMENT_TYPE,
    Signer,
    identity,
    key_of,
    load_public_key,
    load_signer,
    make_keys,
    make_statement,
    open_envelope,
    pae,
    sha256,
    sign,
    write_bundle,
)
from synthdp.errors import OutputError, VerifyError
from synthdp.files import SUMS
from synthdp.spec.model import Signing
from synthdp.verify import STATED, index_of, inspect_bundle, verify_bundle

PKCS8, PLAIN, PEM = (
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
    serialization.Encoding.PEM,
)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def signer(keys: tuple[Path, Path]) -> Signer:
    loaded = load_signer(Signing(), environment={"SYNTHDP_SIGNING_KEY": str(keys[0])})
    assert loaded is not None
    return loaded


@pytest.fixture(scope="module")
def signed(
    tmp_path_factory: pytest.TempPathFactory, build: Callable[..., Any], signer: Signer
) -> Path:
    folder = tmp_path_factory.mktemp("signed")
    release = build(folder)
    return write_bundle(
        folder / "bundle", release.content, ledger=release.ledger, force=False, signer=signer
    )


@pytest.fixture
def bundle(signed: Path, tmp_path: Path) -> Path:
    """A signed copy to spoil."""
    return Path(shutil.copytree(signed, tmp_path / "copy"))


def problems(bundle: Path, key: Path | None = None) -> str:
    return "\n".join(
        inspect_bundle(bundle, key=None if key is None else load_public_key(key)).problems
    )


def envelope(bundle: Path) -> Any:
    return json.loads((bundle / STATEMENT).read_text())


def resign(bundle: Path, signer: Signer, change: Callable[[Any], object]) -> None:
    """Change the statement and sign it again, as its own signer could."""
    statement = json.loads(base64.b64decode(envelope(bundle)["payload"]))
    change(statement)
    (bundle / STATEMENT).write_text(json.dumps(sign(statement, signer)))


class TestKeys:
    def test_private_key_is_for_its_owner_alone(self, keys: tuple[Path, Path]) -> None:
        private, public = keys
        assert (private.name, public.name) == (PRIVATE_NAME, PUBLIC_NAME)
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
        assert stat.S_IMODE(public.stat().st_mode) == 0o644
        assert private.read_text().startswith("-----BEGIN PRIVATE KEY-----")
        assert public.read_text().startswith("-----BEGIN PUBLIC KEY-----")

    def test_keys_are_fresh_and_belong_together(
        self, keys: tuple[Path, Path], signer: Signer, tmp_path: Path
    ) -> None:
        assert identity(load_public_key(keys[1])) == signer.identity
        assert identity(load_public_key(make_keys(tmp_path)[1])) != signer.identity
        assert identity(key_of(signer.identity)) == signer.identity

    @pytest.mark.parametrize("name", [PRIVATE_NAME, PUBLIC_NAME])
    def test_keys_are_never_replaced(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_text("old")
        with pytest.raises(OutputError, match="never replaced"):
            make_keys(tmp_path)
        assert [p.name for p in tmp_path.iterdir()] == [name]
        assert (tmp_path / name).read_text() == "old"

    def test_unwritable_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(OutputError, match="cannot write keys"):
            make_keys(tmp_path / "file" / "keys")

    def test_signer_does_not_show_its_key(self, signer: Signer, keys: tuple[Path, Path]) -> None:
        assert repr(signer) == "Signer()" and str(signer) == "Signer()"

    def test_no_key_is_no_signer_unless_required(self) -> None:
        assert load_signer(Signing(), environment={}) is None
        assert load_signer(Signing(), environment={"SYNTHDP_SIGNING_KEY": ""}) is None
        with pytest.raises(OutputError, match="SYNTHDP_SIGNING_KEY names no key"):
            load_signer(Signing(required=True), environment={})

    def test_the_spec_names_the_variable(self, keys: tuple[Path, Path]) -> None:
        assert (
            load_signer(Signing(key_env="CLINIC"), environment={"CLINIC": str(keys[0])}) is not None
        )
        assert (
            load_signer(
                Signing(key_env="CLINIC"), environment={"SYNTHDP_SIGNING_KEY": str(keys[0])}
            )
            is None
        )

    @pytest.mark.parametrize(
        ("content", "match"),
        [
            (None, "cannot read the key that SYNTHDP_SIGNING_KEY names: No such file"),
            (b"hello", "no private key in PEM"),
            (b"", "no private key in PEM"),
            (
                ec.generate_private_key(ec.SECP256R1()).private_bytes(PEM, PKCS8, PLAIN),
                "not ed25519, the only algorithm",
            ),
            (
                rsa.generate_private_key(65537, 2048).private_bytes(PEM, PKCS8, PLAIN),
                "not ed25519, the only algorithm",
            ),
            (
                ed25519.Ed25519PrivateKey.generate().private_bytes(
                    PEM, PKCS8, serialization.BestAvailableEncryption(b"x")
                ),
                "is encrypted",
            ),
        ],
        ids=["missing", "text", "empty", "ec", "rsa", "encrypted"],
    )
    def test_private_keys_that_cannot_be_used(
        self, tmp_path: Path, content: bytes | None, match: str
    ) -> None:
        path = tmp_path / "key.pem"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(OutputError, match=match):
            load_signer(Signing(), environment={"SYNTHDP_SIGNING_KEY": str(path)})

    def test_public_keys_that_cannot_be_used(self, tmp_path: Path, keys: tuple[Path, Path]) -> None:
        other = ec.generate_private_key(ec.SECP256R1()).public_key()
        (tmp_path / "ec.pem").write_bytes(
            other.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        for path, match in (
            (keys[0], "holds a private key, which nobody should be given"),
            (tmp_path / "ec.pem", "not an ed25519 key, the only algorithm"),
            (tmp_path / "none.pem", "No such file"),
        ):
            with pytest.raises(VerifyError, match=match):
                load_public_key(path)

    @pytest.mark.parametrize(
        "text", ["rsa:00", "ed25519:00", "ed25519:" + "AB" * 32, "ed25519:" + "zz" * 32, ""]
    )
    def test_identities_that_are_none(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"not supported|64 lower-case|non-hexadecimal"):
            key_of(text)


class TestEnvelope:
    def test_encoding_is_that_of_the_dsse_protocol(self) -> None:
        """The protocol's own example, and a type of several bytes to a letter."""
        assert (
            pae("http://example.com/HelloWorld", b"hello world")
            == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
        )
        assert pae("é", b"") == "DSSEv1 2 é 0 ".encode()

    def test_type_and_payload_cannot_run_into_each_other(self) -> None:
        assert pae("a", b"b 1 c") != pae("a 5 b", b"c") and pae("ab", b"") != pae("a", b"b")

    def test_openssl_accepts_the_signature(
        self, signed: Path, keys: tuple[Path, Path], tmp_path: Path
    ) -> None:
        """Another implementation of ed25519 and of PEM, over bytes that are put together by
        hand.
        """
        content = envelope(signed)
        payload = base64.b64decode(content["payload"])
        (tmp_path / "message").write_bytes(
            f"DSSEv1 {len(PAYLOAD_TYPE)} {PAYLOAD_TYPE} {len(payload)} ".encode() + payload
        )
        (tmp_path / "signature").write_bytes(base64.b64decode(content["signatures"][0]["sig"]))
        command = [
            "openssl",
            "pkeyutl",
            "-verify",
            "-pubin",
            "-inkey",
            keys[1],
            "-rawin",
            "-in",
            tmp_path / "message",
            "-sigfile",
            tmp_path / "signature",
        ]
        if shutil.which("openssl") is None:
            pytest.skip("needs openssl")
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0
        (tmp_path / "message").write_bytes(
            (tmp_path / "message").read_bytes().replace(b"clinic", b"cliniC", 1)
        )
        assert subprocess.run(command, capture_output=True, check=False).returncode != 0

    def test_url_safe_base64_is_read_too(self, signed: Path) -> None:
        content = envelope(signed)
        safe = json.loads(
            json.dumps(content)
            .replace("+", "-")
            .replace("application/vnd.in-toto-json", PAYLOAD_TYPE)
        )
        safe["payload"], safe["signatures"][0]["sig"] = (
            t.replace("/", "_") for t in (safe["payload"], safe["signatures"][0]["sig"])
        )
        assert open_envelope(safe) == open_envelope(content)

    def test_statement_names_every_file(self, signed: Path) -> None:
        statement = json.loads(open_envelope(envelope(signed)).payload)
        assert (statement["_type"], statement["predicateType"]) == (STATEMENT_TYPE, PREDICATE_TYPE)
        files = {p.relative_to(signed).as_posix() for p in signed.rglob("*") if p.is_file()} - {
            STATEMENT
        }
        assert {s["name"]: s["digest"]["sha256"] for s in statement["subject"]} == {
            n: sha256(signed / n) for n in files
        }
        assert files > {*FILES, SUMS} and statement["predicate"] == json.loads(
            (signed / "privacy/certificate.json").read_text()
        )


class TestVerify:
    def test_signed_by_the_given_key(
        self, signed: Path, keys: tuple[Path, Path], signer: Signer
    ) -> None:
        report = verify_bundle(signed, key=keys[1])
        assert report.ok and report.signer == signer.identity and report.origin_checked
        assert f"signed by {signer.identity}, the key that was given; " in report.established
        assert report.established.endswith("by its owner")

    def test_without_a_key_the_origin_is_not_checked(self, signed: Path) -> None:
        report = verify_bundle(signed)
        assert report.ok and not report.origin_checked and "was not checked" in report.established

    def test_certificate_and_readme_name_the_key(
        self, signed: Path, made: Path, signer: Signer
    ) -> None:
        text = (signed / "privacy/certificate.md").read_text()
        assert f"    {signer.identity}\n" in text
        assert "unsigned" not in text
        assert "publisher's signature" in (signed / "README.md").read_text()
        assert "**This bundle is unsigned.**" in (made / "privacy/certificate.md").read_text()
        assert "is unsigned" in (made / "README.md").read_text()

    def test_the_bundle_does_not_tell_where_the_key_lies(
        self, signed: Path, keys: tuple[Path, Path]
    ) -> None:
        everything = b"".join(p.read_bytes() for p in signed.rglob("*") if p.is_file())
        secret = keys[0].read_bytes().splitlines()[1]
        assert secret not in everything
        assert b"PRIVATE KEY" not in everything
        assert str(keys[0].parent).encode() not in everything

    def test_unsigned_bundle(self, made: Path, keys: tuple[Path, Path]) -> None:
        report = verify_bundle(made)
        assert report.ok
        assert report.signer is None
        assert report.established.endswith(
            "unsigned; that the program ran as stated is vouched for by nobody"
        )
        with pytest.raises(VerifyError, match="this bundle is unsigned, and a key was given"):
            verify_bundle(made, key=keys[1])

    def test_wrong_key(self, bundle: Path, tmp_path: Path) -> None:
        found = problems(bundle, make_keys(tmp_path / "other")[1])
        assert "its signature is not of the key that was given" in found
        assert "the certificate names the key ed25519:" in found

    def test_from_python(self, bundle: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
        assert Bundle(bundle).verify(key=keys[1]).origin_checked
        assert not Bundle(bundle).verify().origin_checked
        with pytest.raises(VerifyError, match="is not of the key that was given"):
            Bundle(bundle).verify(key=str(make_keys(tmp_path / "other")[1]))

    def test_of_an_index(self, bundle: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
        """With a key it has what the key signed; without, what its own sums list."""
        page, now = tmp_path / "index.html", datetime(2026, 5, 4, tzinfo=UTC)
        of = partial(index_of, bundle.parent, page=page, now=now, verify=True)
        assert not of(key=load_public_key(keys[1])).damaged
        ((_, why),) = of(key=load_public_key(make_keys(tmp_path / "other")[1])).damaged
        assert "is not of the key that was given" in str(why)
        for name in STATED:
            kept = (bundle / name).read_bytes()
            (bundle / name).write_bytes(kept + b"\n")
            ((_, why),) = index_of(bundle.parent, page=page, now=now).damaged
            assert f"{name} in" in str(why) and "was changed" in str(why)
            (bundle / name).write_bytes(kept)

    def test_edited_payload(self, bundle: Path, keys: tuple[Path, Path]) -> None:
        content = envelope(bundle)
        payload = base64.b64decode(content["payload"]).replace(
            b'"epsilon_allowed":3.0', b'"epsilon_allowed":2.0'
        )
        content["payload"] = base64.b64encode(payload).decode()
        (bundle / STATEMENT).write_text(json.dumps(content))
        found = problems(bundle, keys[1])
        assert (
            "its signature is not of the key that was given, or what was signed was changed"
            in found
        )
        assert "its predicate is not this bundle's" in found
        assert "its signature is not of the key that the certificate names" in problems(bundle)

    def test_envelope_of_another_bundle(
        self,
        bundle: Path,
        build: Callable[..., Any],
        signer: Signer,
        keys: tuple[Path, Path],
        tmp_path: Path,
    ) -> None:
        (tmp_path / "x").mkdir()
        release = build(tmp_path / "x", run="run-2")
        other = write_bundle(
            tmp_path / "x" / "bundle",
            release.content,
            ledger=release.ledger,
            force=False,
            signer=signer,
        )
        shutil.copy(other / STATEMENT, bundle / STATEMENT)
        found = problems(bundle, keys[1])
        assert "signature is not" not in found  # it is a good one, of another release
        assert "its subject synthetic.csv has another digest" in found
        assert "its predicate is not this bundle's" in found

    def test_stripped_statement(self, bundle: Path, keys: tuple[Path, Path]) -> None:
        (bundle / STATEMENT).unlink()
        assert "statement.intoto.json: is missing; the certificate says that ed25519:" in problems(
            bundle
        )
        assert "this bundle is unsigned, and a key was given" in problems(bundle, keys[1])

    def test_statement_in_an_unsigned_bundle(
        self, made: Path, signed: Path, tmp_path: Path
    ) -> None:
        copy = Path(shutil.copytree(made, tmp_path / "copy"))
        shutil.copy(signed / STATEMENT, copy / STATEMENT)
        assert (
            "does not belong in this bundle; its certificate says that it is unsigned"
            in problems(copy)
        )

    def test_changed_file_with_mended_checksums(
        self, bundle: Path, keys: tuple[Path, Path]
    ) -> None:
        path = bundle / "synthetic.csv"
        first, *rest = path.read_text().splitlines(keepends=True)
        path.write_text("".join([first, *rest[1:], rest[0]]))
        (bundle / SUMS).write_text(
            "".join(
                f"{sha256(bundle / line[66:])}  {line[66:]}\n"
                for line in (bundle / SUMS).read_text().splitlines()
            )
        )
        found = problems(bundle, keys[1])
        assert "its subject synthetic.csv has another digest" in found
        assert f"its subject {SUMS} has another digest" in found

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (lambda s: s["subject"].pop(), "is not among its subjects"),
            (
                lambda s: s["subject"].append({"name": "extra", "digest": {"sha256": "0" * 64}}),
                "its subject 'extra' is not a file of this bundle",
            ),
            (lambda s: s["subject"].append(s["subject"][0]), "is listed twice"),
            (
                lambda s: s["subject"][0].update(digest={"md5": "0" * 32}),
                "has no sha256, the only digest that is supported",
            ),
            (
                lambda s: s["subject"][0]["digest"].update(sha256="0" * 64),
                "has another digest than the file",
            ),
            (lambda s: s.update(subject="all"), "names no files"),
            (
                lambda s: s.update(_type="https://in-toto.io/Statement/v0.1"),
                "is not an in-toto statement of type",
            ),
            (
                lambda s: s.update(predicateType="https://slsa.dev/provenance/v1"),
                "its predicate is 'https://slsa.dev/provenance/v1'; only",
            ),
            (lambda s: s["predicate"].update(epsilon=0.1), "its predicate is not this bundle's"),
        ],
        ids=[
            "missing",
            "extra",
            "twice",
            "digest",
            "other",
            "none",
            "type",
            "predicate-type",
            "predicate",
        ],
    )
    def test_signed_statement_about_something_else(
        self,
        bundle: Path,
        signer: Signer,
        keys: tuple[Path, Path],
        change: Callable[[Any], object],
        problem: str,
    ) -> None:
        resign(bundle, signer, change)
        for key in (None, keys[1]):
            found = problems(bundle, key)
            assert problem in found and "signature is not" not in found

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (
                lambda e: e.update(payloadType="application/json"),
                "holds 'application/json'; only application/vnd.in-toto+json is supported",
            ),
            (lambda e: e.update(signatures=[]), "an envelope without a signature"),
            (
                lambda e: e["signatures"][0].update(sig="AAAA"),
                "has no ed25519 signature, the only algorithm that is supported",
            ),
            (
                lambda e: e["signatures"][0].update(sig="not base64!"),
                "a signature of the envelope is not base64",
            ),
            (lambda e: e.update(payload=7), "the payload of the envelope is missing"),
            (lambda e: e.clear(), "is not a DSSE envelope"),
        ],
        ids=["type", "none", "short", "base64", "payload", "empty"],
    )
    def test_envelope_that_is_none(
        self, bundle: Path, keys: tuple[Path, Path], change: Callable[[Any], object], problem: str
    ) -> None:
        content = envelope(bundle)
        change(content)
        (bundle / STATEMENT).write_text(json.dumps(content))
        report = inspect_bundle(bundle, key=load_public_key(keys[1]))
        assert problem in "\n".join(report.problems) and not report.origin_checked

    def test_key_hint_decides_nothing(self, bundle: Path, keys: tuple[Path, Path]) -> None:
        content = envelope(bundle)
        content["signatures"] = [
            {"keyid": "x", "sig": base64.b64encode(bytes(64)).decode()},
            {"sig": content["signatures"][0]["sig"]},
        ]
        (bundle / STATEMENT).write_text(json.dumps(content))
        assert verify_bundle(bundle, key=keys[1]).origin_checked

    def test_forger_with_a_key_of_their_own(
        self, bundle: Path, keys: tuple[Path, Path], tmp_path: Path
    ) -> None:
        """Without the publisher's key a forgery is consistent; with it, it is found."""
        forger = load_signer(
            Signing(), environment={"SYNTHDP_SIGNING_KEY": str(make_keys(tmp_path / "forger")[0])}
        )
        assert forger is not None
        statement = make_statement(
            {n: sha256(bundle / n) for n in (*FILES, SUMS)},
            json.loads((bundle / "privacy/certificate.json").read_text()),
        )
        (bundle / STATEMENT).write_text(json.dumps(sign(statement, forger)))
        assert "its signature is not of the key that was given" in problems(bundle, keys[1])


class TestProgram:
    """What the command line and a release do with keys."""

    def _run(self, *arguments: str | Path) -> Any:
        from typer.testing import CliRunner

        from synthdp.cli.main import app

        return CliRunner().invoke(app, [str(a) for a in arguments])

    def test_keygen_and_verify(
        self, signed: Path, keys: tuple[Path, Path], signer: Signer, tmp_path: Path
    ) -> None:
        made = self._run("keygen", tmp_path / "k", "--json")
        assert made.exit_code == 0
        assert Path(json.loads(made.stdout)["public"]) == tmp_path / "k" / PUBLIC_NAME
        assert "PRIVATE" not in made.output and (tmp_path / "k" / PRIVATE_NAME).exists()
        facts = json.loads(self._run("verify", signed, "--key", keys[1], "--json").stdout)
        assert facts["valid"] and facts["signed_by"] == signer.identity and facts["origin_checked"]
        assert "was not checked" in self._run("verify", signed).stdout
        wrong = self._run("verify", signed, "--key", tmp_path / "k" / PUBLIC_NAME)
        assert isinstance(wrong.exception, VerifyError) and wrong.exception.exit_code == 6

    def test_unsigned_is_said(self, made: Path) -> None:
        """The first line says whose word is left, and nothing is called valid."""
        shown = self._run("verify", made)
        assert shown.stdout.startswith(
            f"{made}: agrees with itself; unsigned; that the program ran as stated is vouched for"
            " by nobody\n"
        )
        assert "valid" not in shown.stdout
        facts = json.loads(self._run("verify", made, "--json").stdout)
        assert facts["signed_by"] is None and not facts["origin_checked"]

    def test_release_without_a_key_that_is_required_spends_nothing(
        self, spec_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from synthdp.release import release

        monkeypatch.delenv("CLINIC_SIGNING_KEY", raising=False)
        text = spec_text.replace(
            "CLINIC_SIGNING_KEY}", "CLINIC_SIGNING_KEY, required: true}"
        ).replace("/home/steward/ledger.db", f"{tmp_path}/ledger.db")
        (tmp_path / "spec.yaml").write_text(text)
        with pytest.raises(OutputError, match="CLINIC_SIGNING_KEY names no key"):
            release(tmp_path / "spec.yaml", out=tmp_path / "out")
        assert [p.name for p in tmp_path.iterdir()] == ["spec.yaml"]

    def test_release_hands_the_signer_to_the_bundle(
        self, release: Any, keys: tuple[Path, Path], signer: Signer
    ) -> None:
        from types import SimpleNamespace as Names

        from synthdp.release import publish

        content = release.content
        job: Any = Names(
            spec=release.spec,
            folder=Names(run=content.run),
            plan=Names(stated_spends=content.planned, group_epsilons=content.group_epsilons),
            bundle=release.folder / "bundle",
            ledger=release.ledger,
            audit=None,
            signer=signer,
            waves=(),
        )
        fitted: Any = Names(
            synthesizer=content.model,
            tables=content.tables,
            graph=Names(released=None, graph=content.graph, report=None),
            heaps=None,
            prior=None,
        )
        assert verify_bundle(
            publish(job, fitted, content.synthetic, force=False), key=keys[1]
        ).origin_checked
