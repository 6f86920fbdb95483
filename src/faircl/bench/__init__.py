"""Benchmarks of training steps, losses, evaluation and data loading, beside plain PyTorch baselines."""
