"""Adding classes to a model in use: new images, one more step without the old data, and the verdict on it."""
