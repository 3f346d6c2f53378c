"""The record of one release for MLflow, as a file in the steward's folder.

What MLflow did not get can be logged from it later.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from synthdp.errors import OutputError
from synthdp.files import parse_json, read_text, write_private
from synthdp.tracking.note import AttackOutcome, PublicationVerdict

FILE = Path("internal") / "tracking.json"  # in the release's output folder


@dataclass(kw_only=True)
class TrackingRecord:
    """What MLflow gets of one release.

    `spec` is the path of the spec, which names the store. The store's address is written nowhere:
    it may hold a password. `columns` are those that the spec declares (`registry.declared`), and
    `bundle` is the folder of a released one.
    """

    run: str
    dataset: str
    experiment: str
    spec: str
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    attacks: list[AttackOutcome] = field(default_factory=list)
    files: list[tuple[str, str | None]] = field(default_factory=list)
    columns: list[tuple[str, str, bool]] = field(default_factory=list)
    bundle: str | None = None
    verdict: PublicationVerdict | None = None

    def keep(self, out: Path) -> None:
        """Write it into the output folder `out`, for the steward alone.

        Paths of files are relative to `out`.
        """

        def inside(path: str) -> str:
            return str(Path(path).absolute().relative_to(out.absolute()))

        files = [(inside(file), folder) for file, folder in self.files]
        bundle = None if self.bundle is None else inside(self.bundle)
        write_private(
            out / FILE,
            _ADAPTER.dump_json(
                _ADAPTER.validate_python(asdict(self) | {"files": files, "bundle": bundle}),
                indent=1,
            ).decode()
            + "\n",
        )

    @classmethod
    def kept(cls, out: Path) -> TrackingRecord:
        """Read the record in the output folder `out`.

        Raises:
            OutputError: there is none, or it was damaged.
        """
        try:
            return _ADAPTER.validate_python(parse_json(read_text(out / FILE)))
        except (FileNotFoundError, NotADirectoryError):
            raise OutputError(
                f"{out} holds nothing to log: there is no {FILE}",
                hint="give the output folder of a release with tracking",
            ) from None
        except (OSError, ValueError, ValidationError):
            raise OutputError(
                f"{out / FILE} is damaged",
                hint="the bundle and the report beside it are whole without it",
            ) from None


_ADAPTER = TypeAdapter(TrackingRecord)
