"""Good trees in every layout, ways to break them, and what must come of each.

A case is a function that takes a good tree, breaks it, and returns `Reads` (what exactly) or `Refused` (in which
words).
"""

from .case import CASES, Reads, Refused
from .good import TREES
from .pictures import png

# isort: off
from . import roots, masks, names, splits, images, lists, layouts  # noqa: F401  adds to CASES, in this order
# isort: on

__all__ = ["CASES", "TREES", "Reads", "Refused", "png"]
