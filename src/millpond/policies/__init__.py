"""What to keep when not everything fits: policies for joining and caching (paper 3)."""
