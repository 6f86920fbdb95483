"""Networks under the one contract of `segmenter`."""
