"""Eviction policies for joining and caching in a fixed memory (paper 3).

``registry`` lists them all.  Each policy has its own module (``lru``, ``heeb``, ``rehearse``, …) with a class
that defines it on NumPy arrays, through the interface in ``policy``; ``store`` runs any of them.  ``kernels``
has compiled loops that give the same results, fast.
"""
