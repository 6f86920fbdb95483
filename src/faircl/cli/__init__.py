"""The command line."""

from __future__ import annotations

import os
import sys

ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""Environment variables that torch reads its allocator's settings from."""


def main() -> None:
    """Entry point of the ``faircl`` command."""
    configure_allocator()
    from faircl.cli.app import run

    run()


def configure_allocator() -> None:
    """Let CUDA memory segments grow, which wastes less of them, unless the user has set the allocator's options.

    Must be called before torch is imported.
    """
    if sys.platform == "linux" and not any(name in os.environ for name in ALLOCATOR):
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # the name that all versions of torch know
