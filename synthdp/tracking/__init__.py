"""Releases in MLflow, for the steward's reviewers."""

from synthdp.tracking.mlflow_run import NullTracker, Tracker, tracker
from synthdp.tracking.note import AttackOutcome, Verdict, view_path

__all__ = ["AttackOutcome", "NullTracker", "Tracker", "Verdict", "tracker", "view_path"]
