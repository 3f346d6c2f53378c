"""Engines that count a table where its rows lie: they give counts to the kernel, and no rows."""
