"""``python -m faircl``."""

from faircl.cli import main

main()
