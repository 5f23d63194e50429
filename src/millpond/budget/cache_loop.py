"""Caching under a budget, reference by reference, as machine code.

The fetched row need not be cached: under scores that look ahead it is a candidate like the cached ones, and
the lowest goes.  The classic policies always take it in.  Of equal scores the least recently referenced goes.
Keys are numbered 0, 1, … by :func:`numbered`.  :class:`millpond.budget.store.CacheStore` says the same in
plain Python.
"""

from __future__ import annotations

import numpy as np

from millpond.budget.join_loop import Placed, _look_up, no_table
from millpond.compiled import compiled
from millpond.stochastic.arrays import Bools, Floats, Ints

# What a score is made of.
TABLE, RANDOM, LFU, LRU_K, NEXT_USE, FIFO, LRU, CACHED_LFU = range(8)
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


class CacheRun:
    """A cache in the midst of its references: it can go on by other scores than before."""

    def __init__(self, keys: Ints, size: int, depth: int = 2, seed: int = 0) -> None:
        self._codes = numbered(keys)
        count = int(self._codes.max(initial=-1)) + 1
        self._keys = np.ascontiguousarray(keys, np.int64)
        self._size = size
        self._seed = seed
        self._next = 0
        self.hits: Bools = np.zeros(len(keys), np.bool_)
        self._slot = np.full(count, -1, np.int64)
        self._held = np.empty(size + 1, np.int64)
        self._filled = np.zeros(1, np.int64)
        self._used = np.full(count, -1, np.int64)
        self._seen = np.zeros(count, np.int64)
        self._due = np.full(count, NEVER, np.int64)
        self._value = np.zeros(count, np.int64)
        self._times = np.full((count, depth), -1, np.int64)  # the last `depth` references, in a ring

    def play(self, stop: int, kind: int, table: Placed | None = None) -> None:
        """Go on up to reference ``stop``; the table is placed against the references played now."""
        if kind == TABLE and table is None:
            raise ValueError("scores by table need a table")
        placed = table if table is not None else no_table()
        following = next_uses(self._codes) if kind == NEXT_USE else np.zeros(1, np.int64)
        _loop(
            self._next, stop, self._keys, self._codes, self._size, kind, following,
            placed.scores[0], placed.factors[0], placed.shape, placed.row, placed.origin, self._seed,
            self.hits, self._slot, self._held, self._filled, self._used, self._seen, self._due, self._value,
            self._times,
        )  # fmt: skip
        self._next = stop


def run_cache(
    keys: Ints, size: int, kind: int, table: Placed | None = None, depth: int = 2, seed: int = 0
) -> Bools:
    """Which references are hits when the lowest scores of the given kind go.

    LFU is perfect (it counts every reference ever seen), CACHED_LFU forgets a row with its eviction; LRU_K
    ranks by the ``depth``-th last reference; NEXT_USE is the offline optimum, longest forward distance with
    bypass.
    """
    if kind in (LRU, FIFO):
        return _list_loop(numbered(keys), size, kind == LRU)
    run = CacheRun(keys, size, depth, seed)
    run.play(len(keys), kind, table)
    return run.hits


@compiled
def _list_loop(codes: Ints, size: int, recency: bool) -> Bools:
    """LRU and FIFO by a doubly linked list over the keys: constant work a reference."""
    count = codes.max() + 1 if len(codes) else 0
    hits = np.zeros(len(codes), np.bool_)
    before = np.full(count + 1, count, np.int64)  # entry `count` is the head of the ring
    after = np.full(count + 1, count, np.int64)
    cached = np.zeros(count, np.bool_)
    held = 0
    for t in range(len(codes)):
        key = codes[t]
        if cached[key]:
            hits[t] = True
            if not recency:
                continue
            after[before[key]] = after[key]
            before[after[key]] = before[key]
        else:
            if held == size:
                oldest = after[count]
                cached[oldest] = False
                after[count] = after[oldest]
                before[after[oldest]] = count
            else:
                held += 1
            cached[key] = True
        newest = before[count]
        after[newest] = key
        before[key] = newest
        after[key] = count
        before[count] = key
    return hits


@compiled
def _loop(
    start: int, stop: int, keys: Ints, codes: Ints, size: int, kind: int, following: Ints,
    scores: Floats, factors: Floats, shape: Ints, row: Ints, origin: Ints, seed: int,
    hits: Bools, slot: Ints, held: Ints, count: Ints, used: Ints, seen: Ints, due: Ints, value: Ints,
    times: Ints,
) -> None:  # fmt: skip
    depth = times.shape[1]
    filled = count[0]
    if start == 0:
        np.random.seed(seed)
    for t in range(start, stop):
        key = codes[t]
        used[key] = t
        times[key, seen[key] % depth] = t
        seen[key] += 1
        value[key] = keys[t]
        if kind == NEXT_USE:
            due[key] = following[t]
        if slot[key] >= 0:
            hits[t] = True
            continue
        slot[key] = filled
        held[filled] = key
        filled += 1
        if kind == CACHED_LFU:
            seen[key] = 1
        if filled <= size:
            continue
        worst = -1
        lowest = np.inf
        candidates = filled if kind in (TABLE, NEXT_USE) else filled - 1
        for i in range(candidates):
            candidate = held[i]
            if kind == TABLE:
                score = _look_up(scores[row[t - start]], factors, shape, origin[t - start], value[candidate])
            elif kind in (LFU, CACHED_LFU):
                score = float(seen[candidate])
            elif kind == LRU_K:
                # The ring's next entry is the depth-th last reference, or -1 where there were fewer.
                score = float(times[candidate, seen[candidate] % depth])
            elif kind == NEXT_USE:
                score = -float(due[candidate])
            elif kind == LRU:
                score = float(used[candidate])
            else:
                score = np.random.random()
            if score < lowest or (score == lowest and used[candidate] < used[held[worst]]):
                lowest = score
                worst = i
        slot[held[worst]] = -1
        filled -= 1
        if worst < filled:
            held[worst] = held[filled]
            slot[held[worst]] = worst
    count[0] = filled
