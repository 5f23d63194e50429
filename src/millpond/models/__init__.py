"""Stochastic models of streams (paper 3): their identification, and score tables of tuples under them."""
