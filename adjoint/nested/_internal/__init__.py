"""Where programs written for PyTorch find the class of nested tensors."""
