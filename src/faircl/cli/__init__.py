"""The command line."""

from __future__ import annotations


def main() -> None:
    """Entry point of the ``faircl`` command."""
    from faircl.cli.app import run

    run()
