"""Using a trained network: predicting masks of images, large ones in tiles, and writing them to files."""
