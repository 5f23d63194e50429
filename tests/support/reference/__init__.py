"""Definitions of paper 3, written as the paper states them: tests compare the product with them."""
