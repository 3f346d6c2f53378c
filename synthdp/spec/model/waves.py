"""`waves`: a table that is collected again and again, and released each time."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Unit
from pydantic import Discriminator, Field, Tag

from synthdp.spec.model.fields import AS_TEXT, Model, Whole, key

WaveName = Annotated[str, AS_TEXT, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Disjoint(Model):
    """Nobody is in two waves: the one that took most counts."""

    disjoint: Annotated[str, Field(min_length=1, max_length=200)] = key(
        "what is fixed at entry and differs between waves, so that nobody is in two; nothing checks"
        " it, and the certificate says so",
        "birth_year",
    )


class Rotating(Model):
    """A rotating panel: the waves that took most count, as many as a person may be in."""

    rotating: Annotated[Whole, Field(ge=1, le=1000), Unit("waves")] = key(
        "most waves that one person is in; nothing checks it, and the certificate says so", 4
    )


def _people(given: Any) -> str:
    if not isinstance(given, dict):
        return type(given).__name__ if isinstance(given, Disjoint | Rotating) else "same"
    return "Rotating" if "rotating" in given else "Disjoint"


People = Annotated[
    Annotated[Literal["same"], Tag("same")]
    | Annotated[Disjoint, Tag("Disjoint")]
    | Annotated[Rotating, Tag("Rotating")],
    Discriminator(_people),
]


class EarlierWave(Model):
    """The bundle of the wave before."""

    bundle: str = key(
        "its folder, relative to the spec's; it has the noisy tables of all waves before it, too",
        "releases/clinic-2026/bundle",
    )
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = key(
        "the SHA-256 of its file SHA256SUMS", "0" * 64
    )


class Waves(Model):
    """Which wave of the series `dataset.id` this table is."""

    name: WaveName = key("the wave's own name; runs of one wave have one name", "2027")
    people: People = key(
        "who is in several waves: `same`, perhaps everyone, so that budgets add up; or one of",
        {"rotating": 4},
    )
    planned: Annotated[Whole, Field(ge=2, le=1000), Unit("waves")] | None = key(
        "waves that the cap is for, this one and those before counted in: a run that would not"
        " leave each one to come as much as it takes is refused",
        5,
        default=None,
    )
    after: EarlierWave | None = key(
        "the wave before, whose noisy tables help to know this one",
        {"bundle": "releases/clinic-2026/bundle", "sha256": "0" * 64},
        default=None,
    )

    @property
    def most(self) -> int | None:
        """How many waves one person may be in; None for all."""
        if isinstance(self.people, Rotating):
            return self.people.rotating
        return 1 if isinstance(self.people, Disjoint) else None
