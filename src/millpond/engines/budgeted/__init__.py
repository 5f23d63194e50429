"""Unbounded queries under a budget: a fixed number of tuples is kept, those expected to be of most use."""
