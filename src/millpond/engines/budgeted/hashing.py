"""Hash functions of the sketches.  They are part of the state format, so they must not change."""

from __future__ import annotations

import numpy as np

from millpond.models.array_types import Floats, Ints

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SIGN_OFFSET = np.uint64(0x632BE59BD9B4E019)
_SIGN_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)


def hash_to_buckets(values: Ints, width: int) -> Ints:
    """A bucket below ``width``, a power of two, for each value."""
    shift = np.uint64(64 - (width.bit_length() - 1))
    mixed = (values.astype(np.uint64) ^ (values.astype(np.uint64) >> np.uint64(31))) * _MULTIPLIER
    return (mixed >> shift).astype(np.int64) if width > 1 else np.zeros(len(values), np.int64)


def hash_to_signs(values: Ints) -> Floats:
    """+1 or -1 for each value, independent of its bucket."""
    mixed = (values.astype(np.uint64) + _SIGN_OFFSET) * _SIGN_MULTIPLIER
    mixed ^= mixed >> np.uint64(32)
    return np.where((mixed * _MULTIPLIER) >> np.uint64(63), 1.0, -1.0)
