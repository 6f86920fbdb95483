"""Commands on a model in use."""
