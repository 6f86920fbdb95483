"""Adoption: a network that was trained elsewhere becomes the first step of a run."""
