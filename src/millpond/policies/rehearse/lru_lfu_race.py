"""REHEARSE with two policies only, LRU and perfect LFU, for large caches.

As in :mod:`.shadow_caches`, the cache evicts by the policy whose shadow had clearly more hits recently; but
the cost of a reference does not grow with the size of the cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millpond.models.array_types import Bools, Floats, Ints
from millpond.policies.kernels import heap
from millpond.policies.kernels.compiled import compiled, inlined
from millpond.policies.kernels.growth import extend
from millpond.policies.kernels.heap import Heap
from millpond.policies.rehearse.shadow_caches import CLEARLY, MEMORY

# The three caches: the shadows of LRU and LFU, and the real one, which is kept in both orders.
_LRU, _LFU, _REAL = range(3)
# The orders of a shadow and of the real cache: by last use as linked rings, by count as heaps.
_SHADOW, _CACHE = range(2)
# Indices into `numbers`: references so far; whether LFU leads.
_NOW, _LEADER = range(2)


class _RaceState(NamedTuple):
    numbers: Ints
    margins: Floats  # recent hits of LFU that LRU missed less the opposite, and their sum
    rows: Ints  # by cache
    # By order: the places before and after each key, -1 for a key that is not in the ring.  Key n is at place
    # n + 1; place 0 is the head, and the oldest key comes after it.
    rings: Ints
    filled: Ints  # by order: the number of keys in the heap
    held: Ints
    place: Ints
    used: Ints  # by key: the step of its last reference
    seen: Ints  # by key: its references


class RaceCache:
    """A cache of ``size`` rows.  Its state carries on from batch to batch; a key may have several rows."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._state = _RaceState(
            np.zeros(2, np.int64),
            np.zeros(2),
            np.zeros(3, np.int64),
            np.zeros((2, 2, 1), np.int64),
            np.zeros(2, np.int64),
            np.empty((2, size + 1), np.int64),
            np.empty((2, 0), np.int64),
            np.empty(0, np.int64),
            np.empty(0, np.int64),
        )

    @property
    def rows(self) -> int:
        """The number of rows in the real cache."""
        return int(self._state.rows[_REAL])

    @property
    def held(self) -> Ints:
        """The keys in the real cache, in no particular order."""
        return self._heap_keys(_CACHE).copy()

    def _heap_keys(self, order: int) -> Ints:
        return self._state.held[order, : self._state.filled[order]]

    def _lru_shadow_keys(self) -> Ints:
        return np.flatnonzero(self._state.rings[_SHADOW, 0, 1:] >= 0)

    @property
    def remembered(self) -> Ints:
        """The keys in the real cache or a shadow."""
        return np.union1d(np.union1d(self.held, self._heap_keys(_SHADOW)), self._lru_shadow_keys())

    @property
    def last_used(self) -> Ints:
        """By key, the step of its last reference."""
        return self._state.used

    def refer(self, codes: Ints, weights: Ints) -> Bools:
        """Which of these references are hits; ``weights`` are the row counts of all keys known by now."""
        self._reserve(weights)
        hits = np.zeros(len(codes), np.bool_)
        _refer(codes, hits, self.size, weights, self._state)
        return hits

    def forget(self, kept: Ints) -> None:
        """Renumber the keys: those in ``kept``, which includes all that are remembered, become 0, 1, …"""
        state = self._state
        codes = np.full(len(state.used), -1, np.int64)
        codes[kept] = np.arange(len(kept))
        for held, filled in zip(state.held, state.filled, strict=True):
            held[:filled] = codes[held[:filled]]
        places = np.append(-1, codes) + 1
        rings = state.rings[:, :, np.append(0, kept + 1)]
        self._state = state._replace(
            rings=np.where(rings >= 0, places[rings], -1),
            place=np.ascontiguousarray(state.place[:, kept]),
            used=state.used[kept],
            seen=state.seen[kept],
        )

    def _reserve(self, weights: Ints) -> None:
        state, count = self._state, len(weights)
        self._state = state._replace(
            rings=extend(state.rings, count + 1, -1),
            place=extend(state.place, count, -1),
            used=extend(state.used, count, -1),
            seen=extend(state.seen, count, 0),
        )
        caches = self._lru_shadow_keys(), self._heap_keys(_SHADOW), self.held
        state.rows[:] = [weights[keys].sum() for keys in caches]


@compiled
def _refer(codes: Ints, hits: Bools, size: int, weights: Ints, state: _RaceState) -> None:
    numbers, margins, used, seen = state.numbers, state.margins, state.used, state.seen
    hit_by = np.zeros(3, np.bool_)
    for i in range(len(codes)):
        key = codes[i]
        used[key] = numbers[_NOW]
        numbers[_NOW] += 1
        seen[key] += 1
        for cache in range(3):
            hit_by[cache] = _refer_cache(cache, key, size, weights, state)
        hits[i] = hit_by[_REAL]
        margins[:] *= 1 - 1 / MEMORY
        if hit_by[_LFU] != hit_by[_LRU]:
            margins[0] += 1.0 if hit_by[_LFU] else -1.0
            margins[1] += 1.0
        if margins[0] <= 0.0:
            numbers[_LEADER] = 0
        elif margins[0] > CLEARLY * np.sqrt(margins[1]):
            numbers[_LEADER] = 1


@inlined
def _refer_cache(cache: int, key: int, size: int, weights: Ints, state: _RaceState) -> bool:
    """Look up a key in one of the caches, and cache it; return whether it is a hit."""
    order = _CACHE if cache == _REAL else _SHADOW
    in_ring, in_heap = cache != _LFU, cache != _LRU
    ring, filled, rows = state.rings[order], state.filled, state.rows
    by_count = Heap(state.held[order], state.place[order], state.seen, state.used)
    hit = by_count.place[key] >= 0 if in_heap else ring[0, key + 1] >= 0
    room = size
    if hit:
        if in_ring:
            _leave_ring(key, ring)
            _join_ring(key, ring)
        if in_heap:
            heap.sink(by_count.place[key], filled[order], by_count)
    elif weights[key] <= size:
        room -= weights[key]
    else:
        return False
    evicts_by_count = not in_ring or (in_heap and state.numbers[_LEADER] == 1)
    while rows[cache] > room:
        gone = by_count.held[0] if evicts_by_count else ring[1, 0] - 1
        if in_ring:
            _leave_ring(gone, ring)
        if in_heap:
            heap.remove(gone, filled[order], by_count)
            filled[order] -= 1
        rows[cache] -= weights[gone]
    if not hit:
        if in_ring:
            _join_ring(key, ring)
        if in_heap:
            heap.push(key, filled[order], by_count)
            filled[order] += 1
        rows[cache] += weights[key]
    return bool(hit)


@inlined
def _join_ring(key: int, ring: Ints) -> None:
    """Make a key the most recently used."""
    newest = ring[0, 0]
    ring[1, newest] = key + 1
    ring[0, key + 1] = newest
    ring[1, key + 1] = 0
    ring[0, 0] = key + 1


@inlined
def _leave_ring(key: int, ring: Ints) -> None:
    before, after = ring[0, key + 1], ring[1, key + 1]
    ring[1, before] = after
    ring[0, after] = before
    ring[0, key + 1] = ring[1, key + 1] = -1
