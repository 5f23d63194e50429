"""Repairs: the smallest changes of a query's text that make it bounded.

text → outline → changes that may help → those that do, minimised → ranked.  Every repair is the user's own
text with a few edits, and has been decided again.
"""
