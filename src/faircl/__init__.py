"""faircl: segmentation networks that learn new classes step by step, forget nothing and treat rare classes fairly."""

__version__ = "0.1.0"
