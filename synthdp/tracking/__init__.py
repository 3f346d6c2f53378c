"""Releases in MLflow, for the steward's reviewers."""
