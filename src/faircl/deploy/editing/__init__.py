"""Renaming, merging and dropping the classes of a model, without training."""
