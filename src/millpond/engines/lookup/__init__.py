"""Joins a stream with relations that stay in their databases: rows are looked up by key and cached.

``declaration`` reads the options of a lookup relation, ``database`` finds its table, ``plan`` chooses the
keys, and ``lookup_join`` runs the join on Arrow batches.
"""
