"""The ledger of every charge: a hash chain in a database, and what is left to spend."""
