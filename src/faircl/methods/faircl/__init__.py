"""FairCL (NeurIPS 2023): its hyper-parameters, the method, and the measurement of Proposition 1."""

from faircl.methods.faircl.config import FairCLConfig
from faircl.methods.faircl.method import FairCL

__all__ = ["FairCL", "FairCLConfig"]
