"""The configuration of a run: a typed tree, packaged recipes, published tables."""
