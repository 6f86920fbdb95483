"""The fast path: fused kernels in the place of a network's modules, CUDA graphs, torch.compile."""
