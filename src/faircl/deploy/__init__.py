"""The life of a trained network: taking one up from elsewhere, predicting, adding classes, exporting."""
