"""Releases in MLflow, for the steward's reviewers."""

from synthdp.tracking.mlflow_run import NullTracker, Tracker, log_later, tracker
from synthdp.tracking.note import AttackOutcome, Verdict, view_path

__all__ = ["AttackOutcome", "NullTracker", "Tracker", "Verdict", "log_later", "tracker", "view_path"]
