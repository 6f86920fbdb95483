"""From samples to batches on the device: windows, augmentation, samplers, caches, prefetching."""
