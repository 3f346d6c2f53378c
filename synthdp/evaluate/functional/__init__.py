"""Columns that look like functions of others, or bound by them; confidential."""
