"""Loops of the policies that Numba compiles, with the arrays they work on as named tuples."""
