"""Runs unbounded queries on a memory budget: it keeps the tuples with the highest expected benefit.

``plan`` derives a tree of binary joins, ``compile`` turns it into a program, and ``execute`` runs a
micro-batch.
"""
