"""Packaged configurations."""
