"""Priv-PC: PC by sieve and examine."""
