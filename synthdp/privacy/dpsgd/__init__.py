"""DP-SGD: clipped sums of fixed shape, noise, and the training loop."""
