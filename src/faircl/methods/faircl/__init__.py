"""FairCL (NeurIPS 2023): `method` has the losses and steps, `config` the hyper-parameters; the others are parts."""

from faircl.methods.faircl.config import FairCLConfig, FairCLPaperConfig
from faircl.methods.faircl.method import FairCL, FairCLPaper

__all__ = ["FairCL", "FairCLConfig", "FairCLPaper", "FairCLPaperConfig"]
