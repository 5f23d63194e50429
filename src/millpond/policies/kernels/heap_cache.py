"""Compiled caches under LRU, FIFO, LFU, LRU-k and RAND, whose order changes only at a reference.

A reference costs a few steps of a heap.  The state carries on from batch to batch, a key may have several
rows, and new keys may come at any time.  A fetched key is always cached, unless it alone is larger than the
cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millpond.models.array_types import Bools, Ints
from millpond.policies.kernels import heap
from millpond.policies.kernels.compiled import compiled, inlined
from millpond.policies.kernels.growth import extend
from millpond.policies.kernels.heap import Heap
from millpond.policies.kernels.kinds import CacheScore

# Indices into `numbers`: keys held, rows held, references so far, the state of the random generator.
_FILLED, _ROWS, _NOW, _RANDOM = range(4)
# Spreads a small seed over all bits; odd, because the generator's state must not be zero.
_SPREAD = 0x9E3779B97F4A7C15
_BITS = 0x7FFFFFFFFFFFFFFF


class _CacheState(NamedTuple):
    numbers: Ints
    heap: Heap  # ordered by score, then by last reference
    weight: Ints  # by key: its rows
    seen: Ints  # by key: its references
    times: Ints  # the last references of each key, as a ring of `depth` entries


class HeapCache:
    """A cache of ``size`` rows under one score.  The caller numbers the keys 0, 1, …

    ``depth`` is the k of LRU_K, ``seed`` that of RANDOM.
    """

    def __init__(self, size: int, kind: CacheScore, depth: int = 2, seed: int = 0) -> None:
        self.size = size
        self._kind = kind
        empty = np.empty(0, np.int64)
        numbers = np.array([0, 0, 0, (2 * seed + 1) * _SPREAD & _BITS], np.int64)
        times = np.empty((depth if kind == CacheScore.LRU_K else 1, 0), np.int64)
        order = Heap(np.empty(size + 1, np.int64), empty, empty, empty)
        self._state = _CacheState(numbers, order, empty, empty, times)

    @property
    def rows(self) -> int:
        """The number of rows held."""
        return int(self._state.numbers[_ROWS])

    @property
    def held(self) -> Ints:
        """The keys held, in no particular order."""
        return self._state.heap.held[: self._state.numbers[_FILLED]].copy()

    @property
    def remembered(self) -> Ints:
        """The keys that :meth:`forget` must keep: those held."""
        return self.held

    @property
    def last_used(self) -> Ints:
        """By key, the step of its last reference; may be longer than the number of keys."""
        return self._state.heap.minor

    def refer(self, codes: Ints, weights: Ints) -> Bools:
        """Which of these references are hits; ``weights`` are the row counts of all keys known by now."""
        self._reserve(len(weights))
        hits = np.zeros(len(codes), np.bool_)
        _refer(codes, hits, self.size, int(self._kind), weights, self._state)
        return hits

    def forget(self, kept: Ints) -> None:
        """Renumber the keys: those in ``kept``, which includes all that are held, become 0, 1, …"""
        numbers, order, weight, seen, times = self._state
        codes = np.full(len(order.place), -1, np.int64)
        codes[kept] = np.arange(len(kept))
        filled = numbers[_FILLED]
        order.held[:filled] = codes[order.held[:filled]]
        order = Heap(order.held, order.place[kept], order.major[kept], order.minor[kept])
        times = np.ascontiguousarray(times[:, kept])
        self._state = _CacheState(numbers, order, weight[kept], seen[kept], times)

    def _reserve(self, count: int) -> None:
        numbers, (held, place, major, used), weight, seen, times = self._state
        order = Heap(held, extend(place, count, -1), extend(major, count, 0), extend(used, count, -1))
        by_key = extend(weight, count, 0), extend(seen, count, 0), extend(times, count, -1)
        self._state = _CacheState(numbers, order, *by_key)


@inlined
def _random_below(limit: int, numbers: Ints) -> int:
    """A number from 0 to ``limit`` - 1, from a xorshift generator."""
    state = numbers[_RANDOM]
    state ^= (state << 13) & _BITS
    state ^= state >> 7
    state ^= (state << 17) & _BITS
    numbers[_RANDOM] = state
    return int((state >> 8) % limit)


@compiled
def _refer(codes: Ints, hits: Bools, size: int, kind: int, weights: Ints, state: _CacheState) -> None:
    numbers, weight = state.numbers, state.weight
    order = state.heap
    for i in range(len(codes)):
        key, now = codes[i], numbers[_NOW]
        numbers[_NOW] = now + 1
        hit = order.place[key] >= 0
        hits[i] = hit
        _update_score(key, now, hit, kind, state)
        if hit:
            numbers[_ROWS] += weights[key] - weight[key]
            weight[key] = weights[key]
            if kind not in (CacheScore.FIFO, CacheScore.RANDOM):
                heap.sink(order.place[key], numbers[_FILLED], order)
            _evict(size, kind, state)
        elif weights[key] <= size:
            _evict(size - weights[key], kind, state)
            weight[key] = weights[key]
            numbers[_ROWS] += weights[key]
            heap.push(key, numbers[_FILLED], order)
            numbers[_FILLED] += 1


@inlined
def _update_score(key: int, now: int, hit: bool, kind: int, state: _CacheState) -> None:
    major, seen, times = state.heap.major, state.seen, state.times
    depth = times.shape[0]
    state.heap.minor[key] = now
    if kind == CacheScore.CACHED_LFU and not hit:
        seen[key] = 0
    if kind == CacheScore.LRU_K:
        times[seen[key] % depth, key] = now
    seen[key] += 1
    if kind in (CacheScore.LFU, CacheScore.CACHED_LFU):
        major[key] = seen[key]
    elif kind == CacheScore.LRU_K:
        # The ring's next entry is the depth-th last reference, or -1 if there were fewer.
        major[key] = times[seen[key] % depth, key]
    elif kind == CacheScore.LRU or (kind == CacheScore.FIFO and not hit):
        major[key] = now


@inlined
def _evict(room: int, kind: int, state: _CacheState) -> None:
    """Evict keys until at most ``room`` rows are held."""
    numbers, held = state.numbers, state.heap.held
    while numbers[_ROWS] > room:
        at = _random_below(numbers[_FILLED], numbers) if kind == CacheScore.RANDOM else 0
        gone = held[at]
        heap.remove(gone, numbers[_FILLED], state.heap)
        numbers[_FILLED] -= 1
        numbers[_ROWS] -= state.weight[gone]
