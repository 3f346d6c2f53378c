"""Releases in MLflow, for the steward's reviewers."""

from synthdp import door

__getattr__ = door(
    __name__,
    "mlflow_run store",
)
