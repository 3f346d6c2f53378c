"""The ledger of every charge: entries in a hash chain, kept in a database, and what is left to
spend.
"""
