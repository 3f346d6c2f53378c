"""Partial ancestral graphs: what answers of tests say of causes where some causes are unseen."""
