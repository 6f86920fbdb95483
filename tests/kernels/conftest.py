"""Kernels run on the CPU, in Triton's interpreter."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
