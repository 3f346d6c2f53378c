"""Audits of the kernel's mechanisms on made-up public tables; no row of a user's table is ever read
here.
"""
