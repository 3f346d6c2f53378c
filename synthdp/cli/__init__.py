"""The command line: one file for each group of commands, and how results are printed."""
