"""Segmentation networks: each one is a `segmenter.Segmenter` of a backbone, a decoder and a growing classifier."""
