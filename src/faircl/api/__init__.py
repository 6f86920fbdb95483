"""The functions and classes that ``import faircl`` exports."""
