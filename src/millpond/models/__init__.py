"""What the future of a stream may bring: models, and the benefit of a tuple under them (paper 3)."""
