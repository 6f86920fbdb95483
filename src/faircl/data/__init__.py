"""Images and masks: decoding, pixel counts per class, and the contract of a reader."""
