"""Audits of the kernel's mechanisms on constructed public tables; no row of a user is read here."""
