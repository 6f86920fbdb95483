"""Comparison of runs: rows over seeds, the front of accuracy and spread, paired differences, tables, plots, a page."""
