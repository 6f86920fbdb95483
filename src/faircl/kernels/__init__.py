"""Triton kernels: what would otherwise pass through large tensors that need not exist."""
