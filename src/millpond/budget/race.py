"""LRU against perfect LFU: the cache discards as the one does whose shadow has had more hits lately.

The part of :mod:`millpond.budget.shadow` whose work a reference does not grow with the cache.
"""

from __future__ import annotations

import numpy as np

from millpond.budget import heap
from millpond.budget.ordered import grown
from millpond.budget.shadow import CLEARLY, MEMORY
from millpond.compiled import compiled
from millpond.stochastic.arrays import Bools, Floats, Ints

# The shadows of the two policies, and the cache itself, which stands in the order of both.
_BY_USE, _BY_COUNT, _REAL = range(3)
# In the state's numbers: references so far, whether LFU leads.
_NOW, _LEADER = range(2)


class RaceCache:
    """A cache of ``size`` rows; its state goes on from batch to batch, and keys may be of several rows."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._numbers = np.zeros(2, np.int64)
        self._margins = np.zeros(2)  # hits of LFU that LRU missed less the opposite, and both
        self._filled = np.zeros(4, np.int64)
        self._rows = np.zeros(3, np.int64)
        self._held = np.empty((4, size + 1), np.int64)
        self._place = np.empty((4, 0), np.int64)
        self._used, self._seen = (np.empty(0, np.int64) for _ in range(2))

    @property
    def rows(self) -> int:
        """Rows held by the cache itself."""
        return int(self._rows[_REAL])

    @property
    def held(self) -> Ints:
        """The keys held, in no particular order."""
        return self._held[_REAL, : self._filled[_REAL]].copy()

    @property
    def remembered(self) -> Ints:
        """The keys held by the cache or a shadow."""
        return np.unique(np.concatenate([h[:n] for h, n in zip(self._held, self._filled, strict=True)]))

    @property
    def last_used(self) -> Ints:
        """The step of each key's last reference."""
        return self._used

    def refer(self, codes: Ints, weights: Ints) -> Bools:
        """Which of these references are hits; ``weights`` are the rows of every key known by now."""
        self._grow(weights)
        hits = np.zeros(len(codes), np.bool_)
        _refer(
            codes, hits, self.size, weights, self._numbers, self._margins, self._filled, self._rows,
            self._held, self._place, self._used, self._seen, MEMORY, CLEARLY,
        )  # fmt: skip
        return hits

    def forget(self, kept: Ints) -> None:
        """Number the keys anew: those kept, among them all that are held anywhere, become 0, 1, …"""
        numbers = np.full(len(self._used), -1, np.int64)
        numbers[kept] = np.arange(len(kept))
        for held, filled in zip(self._held, self._filled, strict=True):
            held[:filled] = numbers[held[:filled]]
        self._place = np.ascontiguousarray(self._place[:, kept])
        self._used, self._seen = self._used[kept], self._seen[kept]

    def _grow(self, weights: Ints) -> None:
        missing = len(weights) - self._place.shape[1]
        if missing > 0:
            self._place = np.hstack([self._place, np.full((4, missing), -1, np.int64)])
        self._used, self._seen = grown(self._used, len(weights), -1), grown(self._seen, len(weights), 0)
        for cache in (_BY_USE, _BY_COUNT, _REAL):
            self._rows[cache] = weights[self._held[cache, : self._filled[cache]]].sum()


@compiled
def _refer(
    codes: Ints, hits: Bools, size: int, weights: Ints, numbers: Ints, margins: Floats, filled: Ints,
    rows: Ints, held: Ints, place: Ints, used: Ints, seen: Ints, memory: float, clearly: float,
) -> None:  # fmt: skip
    hit_by = np.zeros(3, np.bool_)
    for i in range(len(codes)):
        key = codes[i]
        used[key] = numbers[_NOW]
        numbers[_NOW] += 1
        seen[key] += 1
        for cache in range(3):
            hit_by[cache] = place[cache, key] >= 0
            counted = cache == _REAL and numbers[_LEADER] == 1
            room = size
            if not hit_by[cache]:
                if weights[key] > size:
                    continue
                room -= weights[key]
            else:
                _moved(cache, key, filled, held, place, used, seen)
            while rows[cache] > room:
                at = 3 if counted else cache
                gone = held[at, 0]
                _drop(cache, gone, filled, held, place, used, seen)
                rows[cache] -= weights[gone]
            if not hit_by[cache]:
                _take(cache, key, filled, held, place, used, seen)
                rows[cache] += weights[key]
        hits[i] = hit_by[_REAL]
        margins *= 1 - 1 / memory
        if hit_by[_BY_COUNT] != hit_by[_BY_USE]:
            margins[0] += 1.0 if hit_by[_BY_COUNT] else -1.0
            margins[1] += 1.0
        if margins[0] <= 0.0:
            numbers[_LEADER] = 0
        elif margins[0] > clearly * np.sqrt(margins[1]):
            numbers[_LEADER] = 1


@compiled
def _orders(cache: int) -> tuple[int, int]:
    """The first and the last of the heaps of a cache."""
    return (_REAL, 3) if cache == _REAL else (cache, cache)


@compiled
def _moved(cache: int, key: int, filled: Ints, held: Ints, place: Ints, used: Ints, seen: Ints) -> None:
    first, last = _orders(cache)
    for at in range(first, last + 1):
        major = seen if at % 2 == 1 else used
        heap.sink(place[at, key], filled[at], held[at], place[at], major, used)


@compiled
def _take(cache: int, key: int, filled: Ints, held: Ints, place: Ints, used: Ints, seen: Ints) -> None:
    first, last = _orders(cache)
    for at in range(first, last + 1):
        major = seen if at % 2 == 1 else used
        heap.push(key, filled[at], held[at], place[at], major, used)
        filled[at] += 1


@compiled
def _drop(cache: int, key: int, filled: Ints, held: Ints, place: Ints, used: Ints, seen: Ints) -> None:
    first, last = _orders(cache)
    for at in range(first, last + 1):
        major = seen if at % 2 == 1 else used
        heap.remove(key, filled[at], held[at], place[at], major, used)
        filled[at] -= 1
