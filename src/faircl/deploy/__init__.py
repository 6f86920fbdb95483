"""A trained model in use: what it predicts and what it does not know."""
