"""Caches whose rows stand in an order that only a reference changes: a few steps of a heap a reference.

The state goes on from batch to batch, keys may be of several rows each, and new keys may come at any time.
A fetched key is always taken in, unless it alone is larger than the cache.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from millpond.models.arrays import Bools, Floats, Ints
from millpond.policies.kernels import heap
from millpond.policies.kernels.compiled import compiled

# What the order is: random, or by references, or by when a key was fetched.  CACHED_LFU forgets the count of
# a key with its eviction; LRU_K goes by the `depth`-th last reference.
RANDOM, LFU, LRU_K, FIFO, LRU, CACHED_LFU = 1, 2, 3, 5, 6, 7
# In the state's numbers: keys held, rows held, references so far, the random generator.
_FILLED, _ROWS, _NOW, _RANDOM = range(4)
Array = TypeVar("Array", Ints, Bools, Floats)
# Spreads a small seed over all bits; odd, as the generator's state must not be zero.
_SPREAD = 0x9E3779B97F4A7C15
_BITS = 0x7FFFFFFFFFFFFFFF


class OrderedCache:
    """A cache of ``size`` rows in one of the orders above.  Keys are numbered 0, 1, … by the caller."""

    def __init__(self, size: int, kind: int, depth: int = 2, seed: int = 0) -> None:
        self.size = size
        self._kind = kind
        self._numbers = np.array([0, 0, 0, (2 * seed + 1) * _SPREAD & _BITS], np.int64)
        self._held = np.empty(size + 1, np.int64)
        self._place = np.empty(0, np.int64)
        self._weight = np.empty(0, np.int64)
        self._used = np.empty(0, np.int64)
        self._major = np.empty(0, np.int64)
        self._times = np.empty((depth if kind == LRU_K else 1, 0), np.int64)
        self._seen = np.empty(0, np.int64)

    @property
    def rows(self) -> int:
        """Rows held."""
        return int(self._numbers[_ROWS])

    @property
    def held(self) -> Ints:
        """The keys held, in no particular order."""
        return self._held[: self._numbers[_FILLED]].copy()

    @property
    def remembered(self) -> Ints:
        """The keys held by any cache there is: this one."""
        return self.held

    @property
    def last_used(self) -> Ints:
        """The step of each key's last reference; there may be room for more keys."""
        return self._used

    def refer(self, codes: Ints, weights: Ints) -> Bools:
        """Which of these references are hits; ``weights`` are the rows of every key known by now."""
        self._grow(len(weights))
        hits = np.zeros(len(codes), np.bool_)
        _refer(
            codes, hits, self.size, self._kind, weights, self._numbers, self._held, self._place, self._weight,
            self._used, self._seen, self._major, self._times,
        )  # fmt: skip
        return hits

    def forget(self, kept: Ints) -> None:
        """Number the keys anew: those kept, among them all that are held, become 0, 1, …"""
        numbers = np.full(len(self._place), -1, np.int64)
        numbers[kept] = np.arange(len(kept))
        filled = self._numbers[_FILLED]
        self._held[:filled] = numbers[self._held[:filled]]
        self._place, self._weight, self._used = self._place[kept], self._weight[kept], self._used[kept]
        self._seen, self._major, self._times = (
            self._seen[kept],
            self._major[kept],
            np.ascontiguousarray(self._times[:, kept]),
        )

    def _grow(self, count: int) -> None:
        self._place = grown(self._place, count, -1)
        self._weight = grown(self._weight, count, 0)
        self._used = grown(self._used, count, -1)
        self._seen = grown(self._seen, count, 0)
        self._major = grown(self._major, count, 0)
        self._times = grown(self._times, count, -1)


def grown(values: Array, count: int, fill: int) -> Array:
    """The values with room for ``count`` in the last dimension; at least doubled, so as to grow seldom."""
    missing = count - values.shape[-1]
    if missing <= 0:
        return values
    room = (*values.shape[:-1], max(missing, values.shape[-1]))
    return np.concatenate([values, np.full(room, fill, values.dtype)], axis=-1)


@compiled
def random_below(limit: int, numbers: Ints) -> int:
    """A number from 0 to ``limit`` - 1, by a xorshift generator."""
    state = numbers[_RANDOM]
    state ^= (state << 13) & _BITS
    state ^= state >> 7
    state ^= (state << 17) & _BITS
    numbers[_RANDOM] = state
    return int((state >> 8) % limit)


@compiled
def _refer(
    codes: Ints, hits: Bools, size: int, kind: int, weights: Ints, numbers: Ints, held: Ints, place: Ints,
    weight: Ints, used: Ints, seen: Ints, major: Ints, times: Ints,
) -> None:  # fmt: skip
    depth = times.shape[0]
    for i in range(len(codes)):
        key, now = codes[i], numbers[_NOW]
        numbers[_NOW] = now + 1
        hit = place[key] >= 0
        hits[i] = hit
        used[key] = now
        if kind == CACHED_LFU and not hit:
            seen[key] = 0
        if kind == LRU_K:
            times[seen[key] % depth, key] = now
        seen[key] += 1
        if kind in (LFU, CACHED_LFU):
            major[key] = seen[key]
        elif kind == LRU_K:
            # The ring's next entry is the depth-th last reference, or -1 where there were fewer.
            major[key] = times[seen[key] % depth, key]
        elif kind == LRU or (kind == FIFO and not hit):
            major[key] = now
        if hit:
            numbers[_ROWS] += weights[key] - weight[key]
            weight[key] = weights[key]
            if kind not in (FIFO, RANDOM):
                heap.sink(place[key], numbers[_FILLED], held, place, major, used)
            _evict(size, kind, numbers, held, place, weight, major, used)
        elif weights[key] <= size:
            _evict(size - weights[key], kind, numbers, held, place, weight, major, used)
            weight[key] = weights[key]
            numbers[_ROWS] += weights[key]
            heap.push(key, numbers[_FILLED], held, place, major, used)
            numbers[_FILLED] += 1


@compiled
def _evict(
    room: int, kind: int, numbers: Ints, held: Ints, place: Ints, weight: Ints, major: Ints, used: Ints
) -> None:
    """Let keys go until no more than ``room`` rows are held."""
    while numbers[_ROWS] > room:
        gone = held[random_below(numbers[_FILLED], numbers) if kind == RANDOM else 0]
        heap.remove(gone, numbers[_FILLED], held, place, major, used)
        numbers[_FILLED] -= 1
        numbers[_ROWS] -= weight[gone]
