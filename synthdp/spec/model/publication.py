"""`publication` and `signing`: what a public register is told, and who vouches for the bundle."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from synthdp.spec.model.fields import Flag, Model


class Curator(Model):
    """Who publishes the release, in the words of that registry."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="name of the organisation", examples=["Office of Statistics"]
    )
    type: Literal["Government", "Industry", "Nonprofit"] = Field(
        description="what it is", examples=["Government"]
    )


class Publication(Model):
    """What a public register asks about a release and only its publisher knows.

    With it the bundle holds `privacy/deployment.yaml`, a tier 3 record for the OpenDP Deployments
    Registry.
    """

    curators: Annotated[tuple[Curator, ...], Field(min_length=1, max_length=20)] = Field(
        description="who publishes the release",
        examples=[[{"name": "Office of Statistics", "type": "Government"}]],
    )
    intended_use: Annotated[str, Field(min_length=1)] = Field(
        description="what the release is for", examples=["teaching, and trying out methods"]
    )
    region: Annotated[str, Field(min_length=1)] = Field(
        description="the region that the data describe", examples=["United States of America"]
    )
    sector: (
        Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"] | None
    ) = Field(
        default=None, description="the sector that the data come from", examples=["Healthcare"]
    )
    justification: str | None = Field(
        default=None,
        description="how epsilon, delta and the settings were chosen, and why",
        examples=["the review board's limit for this table"],
    )
    authors: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="who fills in the record; default: the curators",
        examples=[["A. Steward"]],
    )


class Signing(Model):
    """Who signs the bundle. A spec names only the variable that says where the key lies."""

    key_env: Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]*$")] = Field(
        default="SYNTHDP_SIGNING_KEY",
        description="environment variable with the path of the private key (`synthdp keygen`)",
        examples=["CENSUS_SIGNING_KEY"],
    )
    required: Flag = Field(
        default=False,
        description="refuse to release without a key, in place of an unsigned bundle",
        examples=[True],
    )
