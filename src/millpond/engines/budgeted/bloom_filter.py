"""A Bloom filter: it remembers which values were added, in a fixed number of bits."""

from __future__ import annotations

import zlib

import numpy as np

from millpond.models.array_types import Bools, Ints

BITS_PER_TUPLE = 64  # of the budget
MIN_BITS, MAX_BITS = 1 << 23, 1 << 27
HASHES = 4
_FIRST_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SECOND_MULTIPLIER = np.uint64(0xC2B2AE3D27D4EB4F)


class BloomFilter:
    """Contains every value that was added, and a few others (false positives)."""

    def __init__(self, bits: int) -> None:
        self._bytes = np.zeros(bits // 8, np.uint8)
        self._bits_set = 0

    def _bit_positions(self, hashes: Ints) -> Ints:
        """The bits of each value, by double hashing."""
        first = hashes.astype(np.uint64) * _FIRST_MULTIPLIER
        step = (hashes.astype(np.uint64) ^ (first >> np.uint64(29))) * _SECOND_MULTIPLIER | np.uint64(1)
        numbers = np.arange(HASHES, dtype=np.uint64)
        bits = np.uint64(len(self._bytes) * 8)
        positions = ((first[:, None] + numbers[None, :] * step[:, None]) >> np.uint64(7)) % bits
        return positions.astype(np.int64)

    def add(self, hashes: Ints) -> None:
        if not len(hashes):
            return
        positions = np.unique(self._bit_positions(hashes))
        np.bitwise_or.at(self._bytes, positions >> 3, (1 << (positions & 7)).astype(np.uint8))
        self._bits_set = int(np.bitwise_count(self._bytes).sum())

    def contains(self, hashes: Ints) -> Bools:
        """False only for values that were certainly never added."""
        if not self._bits_set:
            return np.zeros(len(hashes), bool)
        positions = self._bit_positions(hashes)
        found: Bools = ((self._bytes[positions >> 3] >> (positions & 7)) & 1).all(axis=1)
        return found

    @property
    def false_positive_rate(self) -> float:
        """The probability that the filter contains a value that was never added."""
        return float((self._bits_set / (len(self._bytes) * 8)) ** HASHES)

    def save(self) -> bytes:
        return zlib.compress(self._bytes.tobytes(), 1) if self._bits_set else b""

    def load(self, data: bytes) -> None:
        if data:
            self._bytes = np.frombuffer(zlib.decompress(data), np.uint8).copy()
            self._bits_set = int(np.bitwise_count(self._bytes).sum())


def create_bloom_filter(memory: int, shards: int) -> BloomFilter:
    """An empty filter for one of several shards, sized for a budget of ``memory`` tuples in all."""
    bits = min(MAX_BITS, max(MIN_BITS, BITS_PER_TUPLE * memory)) // shards
    return BloomFilter(bits - bits % 8)
