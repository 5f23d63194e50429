"""A filter that remembers which values were seen, in a fixed number of bits."""

from __future__ import annotations

import zlib

import numpy as np

from millpond.models.arrays import Bools, Ints

# Bits of a filter for each tuple of the budget, the fewest and the most; the hashes of a value.
BITS_A_TUPLE = 64
FEWEST_BITS, MOST_BITS = 1 << 23, 1 << 27
HASHES = 4
_ODD = np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.uint64(0xC2B2AE3D27D4EB4F)


class BloomFilter:
    """Bloom's: it knows every value that was added, and mistakes a few others for them."""

    def __init__(self, bits: int) -> None:
        self._bytes = np.zeros(bits // 8, np.uint8)
        self._set = 0

    def _places(self, hashes: Ints) -> Ints:
        one = hashes.astype(np.uint64) * _ODD
        two = (hashes.astype(np.uint64) ^ (one >> np.uint64(29))) * _OTHER | np.uint64(1)
        numbers = np.arange(HASHES, dtype=np.uint64)
        bits = np.uint64(len(self._bytes) * 8)
        found = ((one[:, None] + numbers[None, :] * two[:, None]) >> np.uint64(7)) % bits
        return found.astype(np.int64)

    def add(self, hashes: Ints) -> None:
        if not len(hashes):
            return
        places = np.unique(self._places(hashes))
        np.bitwise_or.at(self._bytes, places >> 3, (1 << (places & 7)).astype(np.uint8))
        self._set = int(np.bitwise_count(self._bytes).sum())

    def knows(self, hashes: Ints) -> Bools:
        if not self._set:
            return np.zeros(len(hashes), bool)
        places = self._places(hashes)
        found: Bools = ((self._bytes[places >> 3] >> (places & 7)) & 1).all(axis=1)
        return found

    @property
    def mistaken(self) -> float:
        """The chance that a new value is mistaken for an old one."""
        return float((self._set / (len(self._bytes) * 8)) ** HASHES)

    def state(self) -> bytes:
        return zlib.compress(self._bytes.tobytes(), 1) if self._set else b""

    def load(self, data: bytes) -> None:
        if data:
            self._bytes = np.frombuffer(zlib.decompress(data), np.uint8).copy()
            self._set = int(np.bitwise_count(self._bytes).sum())


def create_bloom_filter(memory: int, shards: int) -> BloomFilter:
    bits = min(MOST_BITS, max(FEWEST_BITS, BITS_A_TUPLE * memory)) // shards
    return BloomFilter(bits - bits % 8)
