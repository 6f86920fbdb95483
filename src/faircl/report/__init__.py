"""What people read: tables, plots and one self-contained HTML page per run or comparison.

Names are loaded when asked for: pages need torch, plots of data do not and must come quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_FILES = ("tables", "run", "run_tables", "page")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for file in _FILES:
            module = import_module(f"{__name__}.{file}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
