"""Readers, mask decoding, the built-in scenes, batches."""
