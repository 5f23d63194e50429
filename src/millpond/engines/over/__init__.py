"""Window functions over one stream: rows leave a reorder buffer in the order of time.

``compile`` makes the program of a plan, ``execute`` runs a micro-batch, ``state`` stores what is kept.
"""
