"""A run on disk: folder, checkpoints, records, environment."""
