"""Descriptions of the table for other programs and for people."""
