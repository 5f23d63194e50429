"""Queries on Spark Structured Streaming.

``run`` (for files) and ``sql`` (for views of a session) build a ``job``, and ``engines`` chooses the engine
that turns it into a streaming DataFrame.  ``sources`` reads the tables, ``operators`` runs in the Python
workers, and ``sink`` writes results and rejected rows.
"""
