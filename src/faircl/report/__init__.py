"""What people read: plots, tables of a run or comparison, and self-contained HTML pages."""
