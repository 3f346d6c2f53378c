"""Signatures over a bundle, and the statement that is signed."""
