"""FairCL (NeurIPS 2023): its hyper-parameters, the method, and the measurement of Proposition 1."""

from faircl.methods.faircl.config import FairCLConfig, FairCLPaperConfig
from faircl.methods.faircl.method import FairCL, FairCLPaper

__all__ = ["FairCL", "FairCLConfig", "FairCLPaper", "FairCLPaperConfig"]
