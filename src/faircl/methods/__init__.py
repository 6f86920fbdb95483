"""Continual methods, one file each, under the contract of `base`."""
