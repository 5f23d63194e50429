"""The scores that the compiled loops know, as enums that Numba compiles to integers."""

from __future__ import annotations

from enum import IntEnum


class JoinScore(IntEnum):
    """The score by which a join loop evicts tuples."""

    TABLE = 0  # a score table, such as HEEB's
    RANDOM = 1
    PROB = 2
    LIFE = 3
    FIFO = 4
    LRU = 5
    LFU = 6
    PLAN = 7  # a plan made in advance, such as OPT-offline's


class CacheScore(IntEnum):
    """The score by which a cache evicts rows."""

    TABLE = 0  # a score table, such as HEEB's
    RANDOM = 1
    LFU = 2  # perfect: counts every reference ever seen
    LRU_K = 3
    NEXT_USE = 4  # LFD with bypass, the offline optimum
    FIFO = 5
    LRU = 6
    CACHED_LFU = 7  # forgets the count of a key on its eviction
    REUSE = 8  # the reuse model
