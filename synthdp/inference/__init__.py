"""Answers with intervals from what a bundle publishes: post-processing of its noisy tables."""
