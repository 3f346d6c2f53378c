"""Bundles of strangers: `verify`, `sample` and `budget --check` end in the declared error, in
bounded time and memory.
"""

import copy
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synthdp.bundle import FILES, STATEMENT
from synthdp.files import SUMS
from synthdp.ledger import entry_hash

pytestmark = pytest.mark.check

LEDGER, CERTIFICATE = "privacy/ledger.json", "privacy/certificate.json"
Spoil = Callable[[Path], object]


def write(name: str, content: str | bytes) -> Spoil:
    return lambda bundle: (bundle / name).write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )


def edit(name: str, change: Callable[[Any], object]) -> Spoil:
    def spoil(bundle: Path) -> None:
        content = json.loads((bundle / name).read_text())
        change(content)
        (bundle / name).write_text(json.dumps(content))

    return spoil


def forge(change: Callable[[dict[str, Any]], object], *, entry: int = 1) -> Spoil:
    """Change the body of a ledger entry, with every hash as it must be."""

    def spoil(content: dict[str, Any]) -> None:
        change(content["entries"][entry]["body"])
        before: dict[str, Any] | None = None
        for e in content["entries"]:
            if before is not None and e["seq"] == before["seq"] + 1:
                e["previous"] = before["hash"]
            e["hash"] = entry_hash(**{k: v for k, v in e.items() if k != "hash"})
            before = e

    return edit(LEDGER, spoil)


def event(new: Any) -> Spoil:
    return forge(lambda body: body.update(event=new))


def many_charges(content: dict[str, Any]) -> None:
    one = content["entries"][1]
    content["entries"] += [{**copy.deepcopy(one), "seq": 100 + i} for i in range(20_000)]


def gaussian(noise: Any) -> dict[str, Any]:
    return {"event": "gaussian", "noise_multiplier": noise}


def wrapped(times: int) -> Any:
    inner: Any = gaussian(5.0)
    for _ in range(times):
        inner = {"event": "repeated", "count": 1, "of": inner}
    return inner


def replaced(name: str, old: str, new: str) -> Spoil:
    def spoil(bundle: Path) -> None:
        text = (bundle / name).read_text()
        assert old in text
        (bundle / name).write_text(text.replace(old, new, 1))

    return spoil


def pipe(name: str) -> Spoil:
    return lambda bundle: ((bundle / name).unlink(), os.mkfifo(bundle / name))


def link(name: str, target: str) -> Spoil:
    return lambda bundle: ((bundle / name).unlink(), (bundle / name).symlink_to(target))


def sparse(name: str, size: int) -> Spoil:
    return lambda bundle: os.truncate(bundle / name, size)


PICKLE = b"cos\nsystem\n(S'touch /tmp/it-ran'\ntR."
EDGE = {"from": "sex", "to": "smoker", "directed": True, "provenance": "given"}
JSON = ("marginals.json", LEDGER, CERTIFICATE, "graph.json", "model.json", "datapackage.json")
DEEP, WIDE, NUMBERS = (
    "[" * 10_000_000,
    "[" + "{}," * 5_000_000 + "{}]",
    "[" + "1," * 8_000_000 + "1]",
)

BUNDLES: dict[str, Spoil] = {
    # files and folders
    "a strange file": write("notes.txt", "x"),
    "a file of the same name but for case": write("readme.md", "x"),
    "a hidden file": write(".hidden", "x"),
    "a strange folder": lambda bundle: (bundle / "sub").mkdir(),
    "a file instead of a folder": lambda bundle: (
        shutil.rmtree(bundle / "privacy"),
        (bundle / "privacy").write_text("x"),
    ),
    "a link to a secret": link("README.md", "/etc/passwd"),
    "a link to itself": link("graph.json", "graph.json"),
    "a link to a folder": lambda bundle: (
        shutil.move(bundle / "privacy", bundle.parent / "p"),
        (bundle / "privacy").symlink_to(bundle.parent / "p"),
    ),
    "a device": link("graph.svg", "/dev/zero"),
    "a name with a terminal escape": write("\x1b[2J\x1b]0;x\x07", "x"),
    "a name that is no text": lambda bundle: Path(
        os.fsdecode(os.fsencode(bundle) + b"/\xff\xfe")
    ).write_text("x"),
    "a checksum of a path that climbs": lambda bundle: (bundle / SUMS).write_text(
        (bundle / SUMS).read_text() + "0" * 64 + "  ../../etc/passwd\n"
    ),
    "a checksum of an absolute path": lambda bundle: (bundle / SUMS).write_text(
        (bundle / SUMS).read_text() + "0" * 64 + "  /etc/passwd\n"
    ),
    "a million checksums": write(SUMS, ("0" * 64 + "  x\n") * 200_000),
    "checksums that are no text": write(SUMS, bytes(range(256)) * 100),
    **{
        f"a pipe for {name}": pipe(name)
        for name in ("synthetic.csv", "model.json", "model.safetensors", "spec.yaml", LEDGER, SUMS)
    },
    **{
        f"{name} of a terabyte": sparse(name, 1 << 40)
        for name in ("synthetic.csv", "model.safetensors", "model.json", "README.md", LEDGER, SUMS)
    },
    **{f"{name} is empty": write(name, b"") for name in (*FILES, SUMS)},
    **{
        f"{name} is a pickle": write(name, PICKLE)
        for name in ("model.safetensors", "model.json", LEDGER, "synthetic.csv", "marginals.json")
    },
    # the spec
    "spec: alias bomb": write("spec.yaml", "a: &a [x]\nb: &b [*a, *a]\n"),
    "spec: python object": write(
        "spec.yaml", "!!python/object/apply:os.system ['touch /tmp/it-ran']"
    ),
    "spec: a path that climbs": replaced("spec.yaml", "path: visits.csv", "path: ../../etc/passwd"),
    "spec: a file URL": replaced("spec.yaml", "path: visits.csv", "path: file:///etc/passwd"),
    "spec: a billion rows": replaced("spec.yaml", "rows: 200", "rows: 2000000000"),
    # JSON
    **{f"{name}: nested deeply": write(name, DEEP) for name in JSON},
    **{f"{name}: millions of maps": write(name, WIDE) for name in ("marginals.json", LEDGER)},
    **{
        f"{name}: millions of numbers": write(name, NUMBERS)
        for name in ("graph.json", "privacy/profile.json")
    },
    "duplicate keys": replaced(LEDGER, '"entries"', '"entries": [], "entries"'),
    "NaN": replaced("marginals.json", '"sigma": 12.0', '"sigma": NaN'),
    "infinity in digits": replaced("marginals.json", '"sigma": 12.0', '"sigma": 1e999'),
    "a number of a thousand digits": replaced(
        "marginals.json", '"sigma": 12.0', f'"sigma": {"9" * 1000}'
    ),
    "a number of a million digits": replaced(
        "marginals.json", '"sigma": 12.0', f'"sigma": {"9" * 1_000_000}'
    ),
    "half a character": replaced(LEDGER, '"purpose": "measure"', '"purpose": "\\ud800"'),
    "UTF-16": lambda bundle: (bundle / LEDGER).write_bytes(
        (bundle / LEDGER).read_text().encode("utf-16")
    ),
    "text for a map": write(LEDGER, '"x"'),
    "entries that are none": edit(LEDGER, lambda c: c.update(entries=[1, None, "x", []])),
    "entries of other keys": edit(LEDGER, lambda c: c["entries"][0].update(__class__="x")),
    "a list for a number": edit(LEDGER, lambda c: c["entries"][0].update(seq=[1])),
    "twenty thousand charges": edit(LEDGER, many_charges),
    "certificate: edited": edit(CERTIFICATE, lambda c: c.update(epsilon=0.1)),
    "certificate: groups of a trillion": edit(
        CERTIFICATE, lambda c: c["groups"].append({**c["groups"][0], "size": 10**12})
    ),
    "certificate: ten thousand groups": edit(
        CERTIFICATE,
        lambda c: c.update(groups=[{**c["groups"][0], "size": i + 1} for i in range(10_000)]),
    ),
    "certificate: other types": edit(
        CERTIFICATE, lambda c: c.update(charges={"a": 1}, epsilon="x")
    ),
    # events that would take days, or mean nothing
    "event: hardly any noise": event(gaussian(1e-9)),
    "event: noise without end": event(
        {"event": "discrete_gaussian", "sigma": 1e12, "sensitivity": 1}
    ),
    "event: hardly any noise on counts": event(
        {"event": "rounded_gaussian", "sigma": 1e-9, "sensitivity": 1}
    ),
    "event: counts of no rows": event(
        {"event": "rounded_gaussian", "sigma": 5.0, "sensitivity": 0}
    ),
    "event: choices with hardly any noise": event(
        {"event": "gumbel_max", "scale": 1e-9, "sensitivity": 1, "rows": 1}
    ),
    "event: no noise": event(gaussian(0)),
    "event: negative noise": event(gaussian(-1.0)),
    "event: a quintillion times": event(
        {"event": "repeated", "count": 10**18, "of": gaussian(5.0)}
    ),
    "event: no times": event({"event": "repeated", "count": 0, "of": gaussian(5.0)}),
    "event: minus one times": event({"event": "repeated", "count": -1, "of": gaussian(5.0)}),
    "event: a million strong steps": event(
        {
            "event": "repeated",
            "count": 10**6,
            "of": {"event": "poisson_sampled", "rate": 1.0, "of": gaussian(0.05)},
        }
    ),
    "event: rate above one": event({"event": "poisson_sampled", "rate": 2.0, "of": gaussian(1.0)}),
    "event: rate zero": event({"event": "poisson_sampled", "rate": 0, "of": gaussian(1.0)}),
    "event: mixture of thousands": event(
        {
            "event": "mixture_of_gaussians",
            "noise_multiplier": 1.0,
            "sensitivities": list(range(5000)),
            "chances": [1 / 5000] * 5000,
        }
    ),
    "event: mixture of nothing": event(
        {
            "event": "mixture_of_gaussians",
            "noise_multiplier": 1.0,
            "sensitivities": [],
            "chances": [],
        }
    ),
    "event: mixture beyond all rows": event(
        {
            "event": "mixture_of_gaussians",
            "noise_multiplier": 1.0,
            "sensitivities": [0.0, 1e9],
            "chances": [0.5, 0.5],
        }
    ),
    "event: wrapped two hundred times": event(wrapped(200)),
    "event: wrapped without end": event(wrapped(450)),
    "event: a hundred thousand at once": event({"event": "all", "of": [gaussian(5.0)] * 100_000}),
    "event: text for noise": event(gaussian("1.0")),
    "event: true for noise": event(gaussian(True)),
    "event: unknown": event({"event": "__import__"}),
    "event: none": event(None),
    # graph, table, pictures
    "graph: a cycle": edit(
        "graph.json", lambda c: c["edges"].append({**EDGE, "from": "visits", "to": "sex"})
    ),
    "graph: a hundred thousand arrows": edit(
        "graph.json", lambda c: c.update(edges=[EDGE] * 100_000)
    ),
    "graph: a hundred thousand columns": edit(
        "graph.json", lambda c: c.update(nodes=[f"n{i}" for i in range(100_000)])
    ),
    "graph: groups that are none": edit(
        "graph.json", lambda c: c.update(groups=[1], latent={"a": 1})
    ),
    "picture: an event handler": replaced("graph.svg", "</svg>", '<rect onload="x()"/></svg>'),
    "picture: an animated link": replaced(
        "graph.svg",
        "</svg>",
        '<a><animate attributeName="href" values="java&#115;cript:x()"/></a></svg>',
    ),
    "picture: a style that fetches": replaced(
        "graph.svg", "</svg>", "<style>@import url(//evil.org/x)</style></svg>"
    ),
    "table: a million columns": write(
        "synthetic.csv", ",".join(f"c{i}" for i in range(1_000_000)) + "\n"
    ),
    "table: a cell of 200 MB": lambda bundle: (bundle / "synthetic.csv").write_bytes(
        (bundle / "synthetic.csv").read_bytes() + b"x" * 200_000_000
    ),
    "table: formulas": replaced("synthetic.csv", "female", "=cmd|' /C calc'!A0"),
    "noisy counts: shapes beyond memory": edit(
        "marginals.json", lambda c: c["tables"][0].update(shape=[10**9, 10**9])
    ),
    "noisy counts: text": edit(
        "marginals.json",
        lambda c: c["tables"][0].update(counts=["x"] * len(c["tables"][0]["counts"])),
    ),
    "statement: no envelope": write(STATEMENT, "[]"),
    "statement: not base64": write(
        STATEMENT,
        json.dumps({"payloadType": "x", "payload": "\u00e9", "signatures": [{"sig": "!"}]}),
    ),
    "statement: nested": write(STATEMENT, DEEP),
}


@pytest.mark.parametrize("mended", [True, False])
@pytest.mark.parametrize("name", BUNDLES)
def test_a_bad_bundle_is_refused(
    synthdp: Callable[..., Any],
    figure: Callable[..., None],
    mend: Spoil,
    bundle: Path,
    name: str,
    mended: bool,
) -> None:
    BUNDLES[name](bundle)
    if mended and "terabyte" in name:
        pytest.skip("its checksum would take an hour")
    if (
        mended
        and (bundle / "privacy").is_dir()
        and not (bundle / "privacy").is_symlink()
        and SUMS not in name
        and "checksum" not in name
    ):
        mend(bundle)
    ended = synthdp("verify", bundle, megabytes=1500, seconds=60)
    assert ended.code == 6 and ended.declared, ended.printed[-3000:]
    assert "problem" in ended.printed and len(ended.printed) < 200_000
    assert not any(c in ended.printed for c in "\x1b\x07") and not Path("/tmp/it-ran").exists()
    figure("bad inputs refused with the declared error", 1, 1)


def test_the_bundle_that_is_spoilt_was_good(
    synthdp: Callable[..., Any], mend: Spoil, bundle: Path
) -> None:
    """Else every refusal above would mean nothing; mending its checksums changes nothing."""
    mend(bundle)
    ended = synthdp("verify", bundle)
    assert ended.code == 0, ended.printed


@pytest.mark.parametrize("name", [*FILES, SUMS])
def test_a_file_of_another_valid_bundle_is_noticed(
    synthdp: Callable[..., Any],
    mend: Spoil,
    two_bundles: tuple[Path, Path],
    bundle: Path,
    name: str,
) -> None:
    other = two_bundles[1] / name
    if other.read_bytes() == (bundle / name).read_bytes():
        pytest.skip("the two runs have the same")
    shutil.copy(other, bundle / name)
    if name != SUMS:
        mend(bundle)
    ended = synthdp("verify", bundle)
    if name == "synthetic.csv":
        assert (
            "datapackage.json: does not describe" in ended.printed
        )  # its size and hash are published twice
    assert ended.code == 6 and ended.declared, ended.printed[-3000:]


@pytest.mark.parametrize(
    "what", ["nothing", "a file", "a pipe", "a link", "an empty folder", "a device"]
)
def test_what_is_no_bundle(synthdp: Callable[..., Any], tmp_path: Path, what: str) -> None:
    path = tmp_path / "b"
    {
        "nothing": lambda: None,
        "a file": lambda: path.write_text("x"),
        "a pipe": lambda: os.mkfifo(path),
        "a link": lambda: path.symlink_to(tmp_path),
        "an empty folder": path.mkdir,
        "a device": lambda: path.symlink_to("/dev/zero"),
    }[what]()
    for command in (
        ("verify", path),
        ("sample", path, "--rows", 1),
        ("budget", "--ledger", path, "--check", path),
        ("resume", path),
    ):
        ended = synthdp(*command, seconds=20)
        assert ended.code != 0 and ended.declared, (command, ended.code, ended.printed)


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in BUNDLES
        if LEDGER in n
        or "entr" in n
        or "key" in n
        or n in ("half a character", "UTF-16", "a list for a number")
    ],
)
def test_budget_check_refuses_a_bad_bundle(
    synthdp: Callable[..., Any], bundle: Path, name: str
) -> None:
    BUNDLES[name](bundle)
    ended = synthdp(
        "budget",
        "--ledger",
        bundle.parent / "ledger.db",
        "--check",
        bundle,
        megabytes=1500,
        seconds=30,
    )
    assert ended.code == 6 and ended.declared, ended.printed[-3000:]


def test_budget_check_of_a_good_bundle(synthdp: Callable[..., Any], bundle: Path) -> None:
    assert synthdp("budget", "--ledger", bundle.parent / "ledger.db", "--check", bundle).code == 0


@pytest.mark.parametrize(
    "content", [b"", b"not a database", b"SQLite format 3\0" + b"\xff" * 4000, PICKLE]
)
def test_a_ledger_that_is_none(synthdp: Callable[..., Any], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ledger.db").write_bytes(content)
    ended = synthdp("budget", "--ledger", tmp_path / "ledger.db")
    assert ended.declared and (ended.code == 3 or content == b""), (
        ended.printed
    )  # an empty file is an empty ledger
