"""Counts the pairs that shed tuples of an equality join would have formed.

The keys with the most shed tuples are counted exactly, up to a fixed number of keys; the counts of the others
are added to AMS sketches (Alon, Gibbons, Matias, Szegedy: "Tracking Join and Self-Join Sizes in Limited
Storage").  The product of a sketch with a sketch of the arrivals is an unbiased estimate of the number of
pairs.  Several sketches with independent hash functions give independent estimates of all pairs since the
first batch.  Their spread is the error of their mean, whatever the streams look like.
"""

from __future__ import annotations

import zlib

import numpy as np

from millpond.engines.budgeted.hashing import hash_to_cells
from millpond.engines.budgeted.missed_results import MissedEstimate
from millpond.models.array_types import Floats, Ints

# The number of sketches, and the quantile of Student's t distribution that belongs to their spread.
SKETCHES = 16
_STUDENT = 2.131450
# Counters of all sketches of a side, and keys that are counted exactly; divided among the shards.
COUNTERS = 1 << 16
EXACT_KEYS = 1 << 12


class ShedKeys:
    """The join keys of the tuples shed on one side."""

    def __init__(self, shards: int) -> None:
        self._most = max(1, EXACT_KEYS // shards)
        self._keys = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._counters = np.zeros((SKETCHES, max(1, COUNTERS // SKETCHES // shards)))
        self._seed = 0

    def add(self, values: Ints) -> None:
        """Add the keys of tuples; the keys with the lowest counts move to the sketches."""
        keys, where = np.unique(np.concatenate([self._keys, values]), return_inverse=True)
        counts = np.bincount(where, np.concatenate([self._counts, np.ones(len(values))])).astype(np.int64)
        if len(keys) > self._most:
            stays = np.zeros(len(keys), bool)
            stays[np.argsort(-counts, kind="stable")[: self._most]] = True
            # The first keys choose the hash functions: random, but the same when a batch is repeated.
            self._seed = self._seed or zlib.crc32(keys.tobytes() + counts.tobytes()) + 1
            self._counters += self._sketch(keys[~stays], counts[~stays])
            keys, counts = keys[stays], counts[stays]
        self._keys, self._counts = keys, counts

    def count_pairs(self, arrived: Ints) -> Floats:
        """For each sketch, an estimate of the pairs of equal keys of shed tuples and arrivals."""
        keys, counts = np.unique(arrived, return_counts=True)
        exact = 0
        if len(self._keys) and len(keys):
            at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            exact = int(self._counts[at] @ np.where(self._keys[at] == keys, counts, 0))
        pairs: Floats = np.full(SKETCHES, float(exact))
        if len(keys) and self._counters.any():
            pairs += (self._counters * self._sketch(keys, counts)).sum(axis=1)
        return pairs

    def _sketch(self, keys: Ints, counts: Ints) -> Floats:
        """For each sketch, the sum of the signed counts of the keys in each bucket."""
        sums = np.empty_like(self._counters)
        cells = hash_to_cells(keys, self._counters.shape[1], self._seed, SKETCHES)
        for number, (buckets, signs) in enumerate(cells):
            sums[number] = np.bincount(buckets, signs * counts, len(sums[number]))
        return sums

    def save(self) -> bytes:
        counters = self._counters.astype(np.int64) if self._counters.any() else np.empty(0, np.int64)
        sizes = np.array([self._seed, len(self._keys)])
        return zlib.compress(b"".join(x.tobytes() for x in (sizes, self._keys, self._counts, counters)), 1)

    def load(self, data: bytes) -> None:
        numbers = np.frombuffer(zlib.decompress(data), np.int64)
        self._seed, size = map(int, numbers[:2])
        self._keys, self._counts, counters = np.split(numbers[2:], [size, 2 * size])
        if len(counters):
            self._counters = counters.reshape(SKETCHES, -1).astype(np.float64)


def estimate_pairs(pairs: Floats) -> MissedEstimate:
    """The mean of the sketches' estimates, and its error from their spread."""
    distance = _STUDENT**2 * float(pairs.var(ddof=1)) / SKETCHES
    return MissedEstimate(float(pairs.mean()), distance, distance)
