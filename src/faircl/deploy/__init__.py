"""A trained network in use: further classes, predictions, exports, networks from elsewhere."""
