"""How often each value arrives, estimated with a fixed number of counters."""

from __future__ import annotations

import zlib
from math import exp

import numpy as np

from millpond.engines.budgeted.hashing import hash_to_buckets
from millpond.models.array_types import Floats, Ints


class FrequencySketch:
    """Counts values in hash buckets.

    Counts decay exponentially over ``horizon`` arrivals; with None they never decay.
    """

    def __init__(self, width: int, horizon: float | None) -> None:
        self._counts = np.zeros(width, np.float32)
        self._horizon = horizon
        self._total = 0.0

    def observe(self, values: Ints) -> None:
        if self._horizon is not None:
            decay = exp(-len(values) / self._horizon)
            self._counts *= np.float32(decay)
            self._total *= decay
        width = len(self._counts)
        self._counts += np.bincount(hash_to_buckets(values, width), minlength=width)
        self._total += len(values)

    def relative_frequencies(self, values: Ints) -> Floats:
        """The estimated share of the arrivals that had each value."""
        counts = self._counts[hash_to_buckets(values, len(self._counts))].astype(np.float64)
        return counts / max(self._total, 1.0)

    def save(self) -> bytes:
        return zlib.compress(np.float64(self._total).tobytes() + self._counts.tobytes(), 1)

    def load(self, data: bytes) -> None:
        raw = zlib.decompress(data)
        self._total = float(np.frombuffer(raw[:8], np.float64)[0])
        self._counts = np.frombuffer(raw[8:], np.float32).copy()
