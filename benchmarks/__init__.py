"""One command for each published table; results are CSV files and plots, never assertions on
time.
"""
