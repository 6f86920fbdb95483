"""Checks of a data set: every broken file is found and named before training starts."""
