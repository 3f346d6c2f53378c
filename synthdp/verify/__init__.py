"""Verification of a bundle by anyone, offline: files, ledger, epsilon, table, model, certificate."""

from synthdp.verify.checks import VerifyReport, inspect_bundle, verify_bundle

__all__ = ["VerifyReport", "inspect_bundle", "verify_bundle"]
