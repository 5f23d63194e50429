"""Hash functions of the sketches.  They are part of the state format, so they must not change."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from millpond.models.array_types import Floats, Ints

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SKETCH_STEP, _ALL_BITS = 0x632BE59BD9B4E019, (1 << 64) - 1
_SKETCH_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def hash_to_buckets(values: Ints, width: int) -> Ints:
    """A bucket below ``width``, a power of two, for each value."""
    shift = np.uint64(64 - (width.bit_length() - 1))
    mixed = (values.astype(np.uint64) ^ (values.astype(np.uint64) >> np.uint64(31))) * _MULTIPLIER
    return (mixed >> shift).astype(np.int64) if width > 1 else np.zeros(len(values), np.int64)


def hash_to_cells(values: Ints, width: int, seed: int, sketches: int) -> Iterator[tuple[Ints, Floats]]:
    """For each sketch, a bucket below ``width``, a power of two, and a sign for each value.

    Buckets and signs are independent of each other and of those of other sketches (SplitMix64).
    """
    bits = np.uint64(width.bit_length() - 1)
    for number in range(sketches):
        start = (seed * sketches + number) * _SKETCH_STEP & _ALL_BITS
        mixed = values.astype(np.uint64) + np.uint64(start)
        for shift, multiplier in zip((30, 27), _SKETCH_MULTIPLIERS, strict=True):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * multiplier
        mixed ^= mixed >> np.uint64(31)
        signs = np.where(mixed >> np.uint64(63), 1.0, -1.0)
        yield (mixed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64), signs
