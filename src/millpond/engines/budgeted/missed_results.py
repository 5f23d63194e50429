"""Estimates how many results a join misses because tuples were shed.

For equality joins, an AMS sketch summarises the join keys of shed tuples; its product with a sketch of the
arrivals is an unbiased estimate of the number of matching pairs (Alon, Gibbons, Matias, Szegedy: "Tracking
Join and Self-Join Sizes in Limited Storage").  For other conditions, a random sample represents the shed
tuples.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from millpond.engines.budgeted.hashing import hash_to_buckets, hash_to_signs
from millpond.models.array_types import Floats, Ints


@dataclass(frozen=True)
class MissedEstimate:
    """An estimated number of results, and the variance of its error."""

    value: float = 0.0
    variance: float = 0.0

    def __add__(self, other: MissedEstimate) -> MissedEstimate:
        return MissedEstimate(self.value + other.value, self.variance + other.variance)

    def __sub__(self, other: MissedEstimate) -> MissedEstimate:
        """What was added since the earlier estimate ``other``."""
        return MissedEstimate(self.value - other.value, self.variance - other.variance)

    def scale(self, factor: float) -> MissedEstimate:
        return MissedEstimate(self.value * factor, self.variance * factor * factor)


class AmsSketch:
    """An AMS sketch of the join keys of the tuples shed on one side."""

    def __init__(self, width: int) -> None:
        self._counters = np.zeros(width)

    def add(self, values: Ints) -> None:
        if len(values):
            self._counters += _sum_signs(values, len(self._counters))

    def estimate_pairs(self, arrived: Ints) -> MissedEstimate:
        """The pairs of equal values between the shed tuples and the arrivals."""
        if not len(arrived) or not self._counters.any():
            return MissedEstimate()
        other = _sum_signs(arrived, len(self._counters))
        moments = np.square(self._counters).sum() * np.square(other).sum()
        return MissedEstimate(float((self._counters * other).sum()), float(moments) / len(self._counters))

    def save(self) -> bytes:
        return zlib.compress(self._counters.astype(np.float32).tobytes(), 1)

    def load(self, data: bytes) -> None:
        self._counters = np.frombuffer(zlib.decompress(data), np.float32).astype(np.float64)


def _sum_signs(values: Ints, width: int) -> Floats:
    """The sum of the signs of the values in each bucket."""
    return np.asarray(np.bincount(hash_to_buckets(values, width), hash_to_signs(values), width), np.float64)


def count_equal_pairs(left: Ints, right: Ints) -> int:
    """The exact number of pairs of equal values."""
    if not len(left) or not len(right):
        return 0
    values, counts = np.unique(left, return_counts=True)
    others, times = np.unique(right, return_counts=True)
    at = np.searchsorted(values, others)
    known = (at < len(values)) & (values[np.minimum(at, len(values) - 1)] == others)
    return int(counts[at[known]] @ times[known])


def choose_replacements(
    rng: np.random.Generator, size: int, seen: int, sample: int, new: int
) -> tuple[Ints, Ints]:
    """Reservoir sampling (algorithm R) of ``new`` items at once.

    The reservoir has room for ``size`` items and holds ``sample`` of the ``seen`` ones.  Returns its
    positions that are overwritten and the numbers of the new items that go there; where a position occurs
    several times, the last one counts.
    """
    free = max(0, min(size - sample, new))
    numbers = np.arange(free, new)
    chosen = rng.integers(0, seen + numbers + 1)
    hit = chosen < size
    positions = np.concatenate([np.arange(sample, sample + free), chosen[hit]])
    return positions, np.concatenate([np.arange(free), numbers[hit]])
