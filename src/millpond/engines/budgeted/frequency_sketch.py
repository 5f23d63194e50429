"""How often each value comes, in a fixed number of counters: a hash of the value chooses its counter."""

from __future__ import annotations

import zlib
from math import exp

import numpy as np

from millpond.models.arrays import Floats, Ints

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SIGN = np.uint64(0xD6E8FEB86659FD93)


def hash_to_buckets(values: Ints, width: int) -> Ints:
    """A number below ``width``, a power of two, for each value."""
    shift = np.uint64(64 - (width.bit_length() - 1))
    mixed = (values.astype(np.uint64) ^ (values.astype(np.uint64) >> np.uint64(31))) * _ODD
    return (mixed >> shift).astype(np.int64) if width > 1 else np.zeros(len(values), np.int64)


def hash_to_signs(values: Ints) -> Floats:
    """+1 or -1 for each value, independent of its bucket."""
    mixed = (values.astype(np.uint64) + np.uint64(0x632BE59BD9B4E019)) * _SIGN
    mixed ^= mixed >> np.uint64(32)
    return np.where((mixed * _ODD) >> np.uint64(63), 1.0, -1.0)


class FrequencySketch:
    """Counts of values, the old ones forgotten over ``horizon`` arrivals; None remembers them all."""

    def __init__(self, width: int, horizon: float | None) -> None:
        self._counts = np.zeros(width, np.float32)
        self._horizon = horizon
        self._total = 0.0

    def observe(self, values: Ints) -> None:
        if self._horizon is not None:
            kept = exp(-len(values) / self._horizon)
            self._counts *= np.float32(kept)
            self._total *= kept
        self._counts += np.bincount(hash_to_buckets(values, len(self._counts)), minlength=len(self._counts))
        self._total += len(values)

    def shares(self, values: Ints) -> Floats:
        """The share of what came that had each value."""
        counts = self._counts[hash_to_buckets(values, len(self._counts))].astype(np.float64)
        return counts / max(self._total, 1.0)

    def state(self) -> bytes:
        return zlib.compress(np.float64(self._total).tobytes() + self._counts.tobytes(), 1)

    def load(self, data: bytes) -> None:
        raw = zlib.decompress(data)
        self._total = float(np.frombuffer(raw[:8], np.float64)[0])
        self._counts = np.frombuffer(raw[8:], np.float32).copy()
