"""What people read: tables, plots and one self-contained HTML page per run or comparison."""

from faircl.report.page import write_comparison_page, write_run_page
from faircl.report.run import Run, load_run
from faircl.report.run_tables import class_comparison_table, class_table, comparison_table, step_table
from faircl.report.tables import Column, Table

__all__ = [
    "Column",
    "Run",
    "Table",
    "class_comparison_table",
    "class_table",
    "comparison_table",
    "load_run",
    "step_table",
    "write_comparison_page",
    "write_run_page",
]
