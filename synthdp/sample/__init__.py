"""`synthdp sample`: rows from a bundle, with columns given or set."""
