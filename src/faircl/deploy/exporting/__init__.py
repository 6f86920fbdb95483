"""A trained network for other programs: ONNX, torch.export, Hugging Face folders, each checked against it."""
