"""`synthdp release`: the run from a spec to a bundle, and the internal report."""
