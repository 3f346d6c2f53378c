"""Verification of a bundle by anyone, offline."""
