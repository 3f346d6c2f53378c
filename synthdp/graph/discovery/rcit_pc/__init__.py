"""PC with the randomized conditional independence test."""
