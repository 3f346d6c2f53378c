"""Code books as other programs write them, and what they say of a table's columns."""

from synthdp.spec.codebook.described import Codebook, Described, entry_of
from synthdp.spec.codebook.readers import FORMATS, read_codebook

__all__ = ["FORMATS", "Codebook", "Described", "entry_of", "read_codebook"]
