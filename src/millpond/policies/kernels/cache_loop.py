"""Caching under a budget, reference by reference, as machine code.

The fetched row need not be cached: under scores that look ahead it is a candidate like the cached ones, and
the lowest goes.  The classic policies always take it in.  Of equal scores the least recently referenced goes.
Keys are numbered 0, 1, … by :func:`numbered`.  :class:`millpond.policies.store.CacheStore` says the same in
plain Python.  The classic policies are :mod:`millpond.policies.kernels.ordered`'s.
"""

from __future__ import annotations

import numpy as np

from millpond.models.arrays import Bools, Floats, Ints
from millpond.policies.kernels.compiled import compiled
from millpond.policies.kernels.join_loop import Placed, _look_up, no_table
from millpond.policies.kernels.ordered import CACHED_LFU, FIFO, LFU, LRU, LRU_K, RANDOM, OrderedCache

# What a score is made of, where the order changes without a reference.
TABLE, NEXT_USE = 0, 4
__all__ = [
    "CACHED_LFU",
    "FIFO",
    "LFU",
    "LRU",
    "LRU_K",
    "NEXT_USE",
    "RANDOM",
    "TABLE",
    "numbered",
    "run_cache",
]

# The step of a reference that never comes.
NEVER = 1 << 60


def numbered(keys: Ints) -> Ints:
    """The keys as numbers from 0 on."""
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def next_uses(codes: Ints) -> Ints:
    """For each reference, the step of the next one to the same key."""
    following = np.full(len(codes), NEVER, np.int64)
    order = np.argsort(codes, kind="stable")
    same = codes[order[1:]] == codes[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    return following


def run_cache(
    keys: Ints, size: int, kind: int, table: Placed | None = None, depth: int = 2, seed: int = 0
) -> Bools:
    """Which references are hits when the lowest scores of the given kind go.

    LFU is perfect (it counts every reference ever seen), CACHED_LFU forgets a row with its eviction; LRU_K
    ranks by the ``depth``-th last reference; NEXT_USE is the offline optimum, longest forward distance with
    bypass.
    """
    codes = numbered(keys)
    count = int(codes.max(initial=-1)) + 1
    if kind not in (TABLE, NEXT_USE):
        return OrderedCache(size, kind, depth, seed).refer(codes, np.ones(count, np.int64))
    placed = table if table is not None else no_table()
    if kind == TABLE and table is None:
        raise ValueError("scores by table need a table")
    following = next_uses(codes) if kind == NEXT_USE else np.zeros(1, np.int64)
    return _loop(
        np.ascontiguousarray(keys, np.int64), codes, count, size, kind == TABLE, following,
        placed.scores[0], placed.factors[0], placed.shape, placed.row, placed.origin,
    )  # fmt: skip


@compiled
def _loop(
    keys: Ints, codes: Ints, count: int, size: int, tabled: bool, following: Ints,
    scores: Floats, factors: Floats, shape: Ints, row: Ints, origin: Ints,
) -> Bools:  # fmt: skip
    hits = np.zeros(len(keys), np.bool_)
    slot = np.full(count, -1, np.int64)
    held = np.empty(size + 1, np.int64)
    used = np.full(count, -1, np.int64)
    due = np.full(count, NEVER, np.int64)
    value = np.zeros(count, np.int64)
    filled = 0
    for t in range(len(keys)):
        key = codes[t]
        used[key] = t
        value[key] = keys[t]
        if not tabled:
            due[key] = following[t]
        if slot[key] >= 0:
            hits[t] = True
            continue
        slot[key] = filled
        held[filled] = key
        filled += 1
        if filled <= size:
            continue
        worst = -1
        lowest = np.inf
        for i in range(filled):
            candidate = held[i]
            if tabled:
                score = _look_up(scores[row[t]], factors, shape, origin[t], value[candidate])
            else:
                score = -float(due[candidate])
            if score < lowest or (score == lowest and used[candidate] < used[held[worst]]):
                lowest = score
                worst = i
        slot[held[worst]] = -1
        filled -= 1
        if worst < filled:
            held[worst] = held[filled]
            slot[held[worst]] = worst
    return hits
