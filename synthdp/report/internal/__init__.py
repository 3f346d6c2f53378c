"""The steward's report, which shows figures of real rows; confidential."""
