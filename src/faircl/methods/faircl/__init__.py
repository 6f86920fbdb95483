"""FairCL (NeurIPS 2023): the method, its hyper-parameters, and the measurement of Proposition 1."""

from faircl.methods.faircl.method import FairCL, FairCLConfig

__all__ = ["FairCL", "FairCLConfig"]
