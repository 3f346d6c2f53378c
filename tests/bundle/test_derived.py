"""Every derived file is what its function makes of the others: no byte of it can be changed."""

import shutil
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthdp.bundle import DEPLOYMENT, DERIVED, FILES, INNOVATIONS, PRIMARY, Bundle
from synthdp.files import SUMS
from synthdp.verify import CHECKS, Reader
from synthdp.verify.rewritten import rewritten

ALWAYS = [file for file in DERIVED if file != INNOVATIONS]  # that one needs a wave before


@cache
def reader_of(folder: Path) -> Reader:
    """A reader whose spec, ledger and certificate are read and right."""
    reader = Reader(folder)
    for name in ("spec", "ledger", "certificate"):
        assert list(CHECKS[name][1](reader)) == []
    return reader


@pytest.fixture(scope="module")
def bundle(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(made, tmp_path_factory.mktemp("derived") / "bundle"))


def test_a_bundle_has_primary_and_derived_files_and_their_sums(bundle: Path) -> None:
    there = {p.relative_to(bundle).as_posix() for p in bundle.rglob("*") if p.is_file()}
    assert there == {*PRIMARY, *ALWAYS, SUMS} and {*FILES} == there - {DEPLOYMENT, SUMS}


@pytest.mark.parametrize("file", ALWAYS)
def test_a_derived_file_follows_from_what_is_stated(bundle: Path, file: str) -> None:
    text = DERIVED[file].make(Bundle.stated(bundle))
    assert text is not None and text.encode() == (bundle / file).read_bytes()


@pytest.mark.check
@pytest.mark.parametrize("file", ALWAYS)
def test_any_changed_byte_is_refused(bundle: Path, file: str) -> None:
    """One byte is replaced, put in or taken out, by what is text still or no longer."""
    reader, kept = reader_of(bundle), (bundle / file).read_bytes()
    assert list(rewritten(reader, file)) == []

    @settings(max_examples=30, deadline=None)
    @given(
        place=st.integers(0, len(kept) - 1),
        byte=st.binary(min_size=0, max_size=1),
        put=st.booleans(),
    )
    def spoil(place: int, byte: bytes, put: bool) -> None:
        changed = kept[:place] + byte + kept[place + (not put) :]
        (bundle / file).write_bytes(changed)
        try:
            found = list(rewritten(reader, file))
        except ValueError:  # no text any more
            found = ["no text"]
        assert bool(found) is (changed != kept)

    try:
        spoil()
    finally:
        (bundle / file).write_bytes(kept)


@pytest.mark.check
def test_verify_runs_the_rule_on_every_derived_file(bundle: Path) -> None:
    """With all else read and right, each file's change is a problem of that file."""
    reader = reader_of(bundle)
    for file in ALWAYS:
        kept = (bundle / file).read_bytes()
        (bundle / file).write_bytes(kept + b" ")
        found = [p for _, check in list(CHECKS.values())[3:] for p in _told(check, reader, file)]
        (bundle / file).write_bytes(kept)
        assert found, file


def _told(check: object, reader: Reader, file: str) -> list[str]:
    return [p for p in check(reader) if p.startswith(f"{file}: ")]  # type: ignore[operator]
