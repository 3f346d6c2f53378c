"""The bundle's report, made of published files alone."""
