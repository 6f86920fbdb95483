"""Many runs on one GPU, chosen on validation images and scored on test images once, for ``benchmarks/real.py``."""
