"""Labels that a model suggests for new images, in files that people correct: a folder, CVAT, Label Studio."""
