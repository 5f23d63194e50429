"""Long random runs against independent answers; a slice of each is in the suite."""
