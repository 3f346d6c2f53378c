"""The certificate: its facts, and its text."""
