"""The command line."""

from __future__ import annotations

import os
import sys

ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""Environment variables that torch reads its allocator's settings from."""


def main() -> None:
    """Entry point of the ``faircl`` command."""
    use_memory_well()
    from faircl.cli.app import run

    run()


def use_memory_well() -> None:
    """Let a GPU's memory grow in place, unless somebody has chosen: recordings fill it without gaps then.

    Must come before torch.
    """
    if sys.platform == "linux" and not any(name in os.environ for name in ALLOCATOR):
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # known to all versions
