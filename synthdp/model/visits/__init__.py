"""The model of persons with visits (`synthdp.data.visits`), of noisy tables alone."""
