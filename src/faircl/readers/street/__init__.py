"""Procedural street scenes: `layout` places objects, `canvas` projects them, `textures` colours them."""
