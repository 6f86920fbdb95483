"""Reports: plots, tables of a run or comparison, self-contained HTML pages."""
