"""What data parallel training does with its gradients."""
