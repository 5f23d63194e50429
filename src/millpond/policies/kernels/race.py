"""LRU against perfect LFU: the cache discards as the one does whose shadow has had more hits lately.

The part of :mod:`millpond.policies.kernels.shadow` whose work a reference does not grow with the cache.
"""

from __future__ import annotations

import numpy as np

from millpond.models.arrays import Bools, Floats, Ints
from millpond.policies.kernels import heap
from millpond.policies.kernels.compiled import compiled
from millpond.policies.kernels.ordered import grown
from millpond.policies.kernels.shadow import CLEARLY, MEMORY

# The shadows of the two policies, and the cache itself, which stands in the order of both.
_BY_USE, _BY_COUNT, _REAL = range(3)
# The orders by use are rings, one of LRU's shadow and one of the cache; those by count are heaps.
_SHADOW, _CACHE = range(2)
# In the state's numbers: references so far, whether LFU leads.
_NOW, _LEADER = range(2)


class RaceCache:
    """A cache of ``size`` rows; its state goes on from batch to batch, and keys may be of several rows."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._numbers = np.zeros(2, np.int64)
        self._margins = np.zeros(2)  # hits of LFU that LRU missed less the opposite, and both
        self._rows = np.zeros(3, np.int64)
        # By key, in each ring: the places of those used before and after it, -1 where it is not there.  The
        # oldest comes after the place 0, which is no key's: key n is at n + 1.
        self._rings = np.full((2, 2, 1), 0, np.int64)
        # In each heap: how many keys, which, and where a key stands.
        self._filled = np.zeros(2, np.int64)
        self._held = np.empty((2, size + 1), np.int64)
        self._place = np.empty((2, 0), np.int64)
        self._used, self._seen = (np.empty(0, np.int64) for _ in range(2))

    @property
    def rows(self) -> int:
        """Rows held by the cache itself."""
        return int(self._rows[_REAL])

    @property
    def held(self) -> Ints:
        """The keys held, in no particular order."""
        return self._held[_CACHE, : self._filled[_CACHE]].copy()

    @property
    def remembered(self) -> Ints:
        """The keys held by the cache or a shadow."""
        ringed = np.flatnonzero(self._rings[_SHADOW, 0, 1:] >= 0)
        return np.union1d(np.union1d(self.held, self._held[_SHADOW, : self._filled[_SHADOW]]), ringed)

    @property
    def last_used(self) -> Ints:
        """The step of each key's last reference."""
        return self._used

    def refer(self, codes: Ints, weights: Ints) -> Bools:
        """Which of these references are hits; ``weights`` are the rows of every key known by now."""
        self._grow(weights)
        hits = np.zeros(len(codes), np.bool_)
        _refer(
            codes, hits, self.size, weights, self._numbers, self._margins, self._rows, self._rings,
            self._filled, self._held, self._place, self._used, self._seen, MEMORY, CLEARLY,
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
        places = np.append(-1, numbers) + 1
        rings = self._rings[:, :, np.append(0, kept + 1)]
        self._rings = np.where(rings >= 0, places[rings], -1)

    def _grow(self, weights: Ints) -> None:
        self._place = grown(self._place, len(weights), -1)
        self._rings = grown(self._rings, len(weights) + 1, -1)
        self._used, self._seen = grown(self._used, len(weights), -1), grown(self._seen, len(weights), 0)
        shadow = np.flatnonzero(self._rings[_SHADOW, 0, 1 : len(weights) + 1] >= 0)
        by_count = self._held[_SHADOW, : self._filled[_SHADOW]]
        self._rows[:] = weights[shadow].sum(), weights[by_count].sum(), weights[self.held].sum()


@compiled
def _refer(
    codes: Ints, hits: Bools, size: int, weights: Ints, numbers: Ints, margins: Floats, rows: Ints,
    rings: Ints, filled: Ints, held: Ints, place: Ints, used: Ints, seen: Ints, memory: float, clearly: float,
) -> None:  # fmt: skip
    hit_by = np.zeros(3, np.bool_)
    for i in range(len(codes)):
        key = codes[i]
        used[key] = numbers[_NOW]
        numbers[_NOW] += 1
        seen[key] += 1
        for cache in range(3):
            order = _CACHE if cache == _REAL else _SHADOW
            in_ring, in_heap = cache != _BY_COUNT, cache != _BY_USE
            hit = place[order, key] >= 0 if in_heap else rings[order, 0, key + 1] >= 0
            hit_by[cache] = hit
            room = size
            if hit:
                if in_ring:
                    _leave(key, rings[order])
                    _join(key, rings[order])
                if in_heap:
                    heap.sink(place[order, key], filled[order], held[order], place[order], seen, used)
            elif weights[key] <= size:
                room -= weights[key]
            else:
                continue
            counted = not in_ring or (in_heap and numbers[_LEADER] == 1)
            while rows[cache] > room:
                gone = held[order, 0] if counted else rings[order, 1, 0] - 1
                if in_ring:
                    _leave(gone, rings[order])
                if in_heap:
                    heap.remove(gone, filled[order], held[order], place[order], seen, used)
                    filled[order] -= 1
                rows[cache] -= weights[gone]
            if not hit:
                if in_ring:
                    _join(key, rings[order])
                if in_heap:
                    heap.push(key, filled[order], held[order], place[order], seen, used)
                    filled[order] += 1
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
def _join(key: int, ring: Ints) -> None:
    """Become the last used."""
    newest = ring[0, 0]
    ring[1, newest] = key + 1
    ring[0, key + 1] = newest
    ring[1, key + 1] = 0
    ring[0, 0] = key + 1


@compiled
def _leave(key: int, ring: Ints) -> None:
    before, after = ring[0, key + 1], ring[1, key + 1]
    ring[1, before] = after
    ring[0, after] = before
    ring[0, key + 1] = ring[1, key + 1] = -1
