"""Records of training: metrics.jsonl always; TensorBoard, Weights & Biases and MLflow where the settings name them."""
