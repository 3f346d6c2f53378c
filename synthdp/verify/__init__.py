"""Verification of a bundle by anyone, offline: files, ledger, epsilon, table, model,
certificate.
"""
