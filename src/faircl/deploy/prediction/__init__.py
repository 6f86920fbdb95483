"""Masks, overlays and areas of image files: tiles, batches, outputs that are written whole."""
