"""What benchmarks/unknown.py is made of: held-out classes, training, scoring pixels, tables."""
