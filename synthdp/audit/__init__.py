"""`synthdp audit`: attacks on a release, on a bundle, and on the mechanisms."""
