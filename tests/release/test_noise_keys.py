"""Noise of a run never follows from what the run has stored: a resumed run draws anew, and who has
its folder has no key.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from synthdp.privacy.noise import Streams
from synthdp.privacy.session import Session
from synthdp.release import open_session, resume
from tests.release.conftest import interrupt

pytestmark = pytest.mark.check

PROTECTING = ("noise", "sampling", "latent")


def key_of(generator: np.random.Generator) -> int:
    low, high = generator.bit_generator.state["state"]["key"].tolist()
    return int(low) + (int(high) << 64)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the operating system gave for keys, in order."""
    given: list[int] = []
    true = secrets.randbits

    def randbits(bits: int) -> int:
        given.append(true(bits))
        return given[-1]

    monkeypatch.setattr(secrets, "randbits", randbits)
    return given


def test_every_opening_of_a_run_draws_its_noise_anew_and_its_held_out_rows_never(
    tiny: Any, keys: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With noise from a stored key a resumed run would repeat it."""
    opened: list[tuple[Streams, set[int]]] = []

    def session(*own: Any, streams: Streams, **named: Any) -> None:
        Session(*own, streams=streams, **named)
        opened.append((streams, set(keys)))
        raise KeyboardInterrupt

    monkeypatch.setattr(open_session, "Session", session)
    tiny.write()
    starts: list[Callable[[], object]] = [
        tiny.release,
        lambda: resume(tiny.out),
        lambda: resume(tiny.out),
    ]
    for start in starts:
        keys.clear()
        with pytest.raises(KeyboardInterrupt):
            start()
    assert tiny.kinds() == ["cap", "reserve"]
    for streams, given in opened:
        assert {
            key_of(getattr(streams, name)) for name in PROTECTING
        } <= given  # from the operating system, in this very opening
    assert len(
        {key_of(getattr(streams, name)) for streams, _ in opened for name in PROTECTING}
    ) == 3 * len(PROTECTING)
    held = {key_of(streams.holdout) for streams, _ in opened}
    assert len(held) == 1 and not held & {
        key_of(getattr(streams, name)) for streams, _ in opened for name in PROTECTING
    }


def test_what_an_interrupted_run_leaves_behind_holds_no_key_of_noise(
    tiny: Any, keys: list[int]
) -> None:
    """By any spelling: digits, hexadecimal digits, or bytes of either order."""
    tiny.write()
    interrupt(tiny, "measure and train", 12)
    left = {p: p.read_bytes() for p in tiny.folder.rglob("*") if p.is_file()}
    assert any(p.name == "state.json" for p in left)
    assert any(p.suffix == ".safetensors" for p in left)
    assert len(keys) >= 4
    for key in (k for k in keys if k >= 2**64):
        width = (key.bit_length() + 7) // 8
        spelled = [
            str(key).encode(),
            f"{key:x}".encode(),
            key.to_bytes(width, "big"),
            key.to_bytes(width, "little"),
        ]
        assert not [
            p.name for p, content in left.items() if any(text in content for text in spelled)
        ]
