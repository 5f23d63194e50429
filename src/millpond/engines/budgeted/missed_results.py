"""How many results are missed because of what was shed.

For equal values: what was shed is summed into counters, each value with a sign of its own, so that the
product with what arrives estimates the pairs without bias (the join size of Alon, Gibbons, Matias and
Szegedy).  For any other condition a random sample of what was shed stands for all of it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from millpond.engines.budgeted.frequency_sketch import hash_to_buckets, hash_to_signs
from millpond.models.arrays import Floats, Ints


@dataclass(frozen=True)
class MissedEstimate:
    """A number, and the variance of its error."""

    value: float = 0.0
    variance: float = 0.0

    def __add__(self, other: MissedEstimate) -> MissedEstimate:
        return MissedEstimate(self.value + other.value, self.variance + other.variance)

    def times(self, factor: float) -> MissedEstimate:
        return MissedEstimate(self.value * factor, self.variance * factor * factor)


def add_signed_counts(values: Ints, width: int) -> Floats:
    return np.asarray(np.bincount(hash_to_buckets(values, width), hash_to_signs(values), width), np.float64)


class AmsSketch:
    """A sketch of the values of the tuples shed on one side."""

    def __init__(self, width: int) -> None:
        self._counters = np.zeros(width)

    def add(self, values: Ints) -> None:
        if len(values):
            self._counters += add_signed_counts(values, len(self._counters))

    def pairs(self, arrived: Ints) -> MissedEstimate:
        """The pairs of equal values between what was shed and what arrived."""
        if not len(arrived) or not self._counters.any():
            return MissedEstimate()
        other = add_signed_counts(arrived, len(self._counters))
        moments = np.square(self._counters).sum() * np.square(other).sum()
        return MissedEstimate(float((self._counters * other).sum()), float(moments) / len(self._counters))

    def state(self) -> bytes:
        return zlib.compress(self._counters.astype(np.float32).tobytes(), 1)

    def load(self, data: bytes) -> None:
        self._counters = np.frombuffer(zlib.decompress(data), np.float32).astype(np.float64)


def count_equal_pairs(left: Ints, right: Ints) -> int:
    """The pairs of equal values."""
    if not len(left) or not len(right):
        return 0
    values, counts = np.unique(left, return_counts=True)
    others, times = np.unique(right, return_counts=True)
    at = np.searchsorted(values, others)
    known = (at < len(values)) & (values[np.minimum(at, len(values) - 1)] == others)
    return int(counts[at[known]] @ times[known])


def update_reservoir(
    rng: np.random.Generator, size: int, seen: int, sample: int, new: int
) -> tuple[Ints, Ints]:
    """Which places of a sample of ``seen`` items are replaced by which of the ``new`` ones.

    Algorithm R, at once: of places chosen several times the last choice stands.
    """
    free = max(0, min(size - sample, new))
    numbers = np.arange(free, new)
    chosen = rng.integers(0, seen + numbers + 1)
    hit = chosen < size
    places = np.concatenate([np.arange(sample, sample + free), chosen[hit]])
    return places, np.concatenate([np.arange(free), numbers[hit]])
