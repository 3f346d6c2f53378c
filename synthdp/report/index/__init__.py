"""The index of a folder of releases: one static page, for those who have no MLflow."""
