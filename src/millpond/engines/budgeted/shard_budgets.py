"""Divides the budget among the shards, without communication between them.

Every shard receives the same sample of join keys from all shards.  From it, each one computes which tuples a
single store would keep, and hence how much of the budget every shard should get.  The computation is
deterministic, so all shards agree, and their budgets always add up to the whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import exp

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted.hashing import hash_to_buckets
from millpond.models.array_types import Floats, Ints

# The sample represents about REPRESENTED_TUPLES tuples of the budget, and has at most MAX_KEYS keys.
REPRESENTED_TUPLES = 4096
MAX_KEYS = 8192
# This part of the budget is divided evenly, whatever the sample shows.
EVEN_PART = 0.25
SAMPLE_SCHEMA = pa.schema([("v", pa.int64()), ("shard", pa.int32()), ("count", pa.int64())])
_SEED = 0x5DEECE66D
# Scores the keys of a leaf; None leaves the scores to the frequencies of the partners.
KeyScorer = Callable[[int, Ints], Floats | None]


def sampling_interval(memory: int) -> int:
    """N such that about one in N keys is in the sample; a power of two."""
    return 1 << max(0, (memory // REPRESENTED_TUPLES).bit_length() - 1)


def sample_keys(values: Ints, shards: Ints, memory: int) -> pa.Table:
    """The sampled keys among some tuples, with their shards and counts.  A hash decides which."""
    chosen = hash_to_buckets(values ^ _SEED, sampling_interval(memory)) == 0
    keys, first, counts = np.unique(values[chosen], return_index=True, return_counts=True)
    columns = [pa.array(keys), pa.array(shards[chosen][first], pa.int32()), pa.array(counts)]
    return pa.table(columns, schema=SAMPLE_SCHEMA)


class ShardBudgets:
    """The sample of keys, and the budget of each shard."""

    def __init__(self, memory: int, shards: int, leaves: int) -> None:
        self._memory = memory
        self._keys = np.empty(0, np.int64)
        self._shards = np.empty(0, np.int64)
        self._counts = np.empty((0, leaves))
        self._parts = np.full(shards, 1 / shards)

    @property
    def tuples(self) -> Ints:
        """The number of tuples that each shard may keep; they add up to the budget."""
        exact = self._parts * self._memory
        tuples: Ints = np.floor(exact).astype(np.int64)
        order = np.argsort(tuples - exact, kind="stable")
        tuples[order[: self._memory - int(tuples.sum())]] += 1
        return tuples

    def observe(self, samples: Sequence[tuple[int, pa.Table]], arrived: int) -> None:
        """Add the samples of a batch of ``arrived`` tuples, each with the number of its leaf."""
        self._counts *= exp(-arrived / max(10 * self._memory, 10_000))
        for leaf, table in samples:
            values, counts = table.column("v").to_numpy(), table.column("count").to_numpy()
            if not len(values):
                continue
            is_new = ~np.isin(values, self._keys)
            new, first = np.unique(values[is_new], return_index=True)
            self._keys = np.concatenate([self._keys, new])
            owners = table.column("shard").to_numpy()[is_new][first]
            self._shards = np.concatenate([self._shards, owners.astype(np.int64)])
            self._counts = np.vstack([self._counts, np.zeros((len(new), self._counts.shape[1]))])
            order = np.argsort(self._keys, kind="stable")
            at = order[np.searchsorted(self._keys, values, sorter=order)]
            np.add.at(self._counts[:, leaf], at, counts)

    def rebalance(self, scorer: KeyScorer) -> None:
        """Compute what a single store would keep of the sample, and move the budgets half way towards it."""
        scores = [self._score_keys(leaf, scorer) for leaf in range(self._counts.shape[1])]
        score, supply = np.concatenate(scores), self._counts.T.reshape(-1)
        shard = np.tile(self._shards, len(scores))
        order = np.argsort(-score, kind="stable")
        room = self._memory / sampling_interval(self._memory)
        before = np.cumsum(supply[order]) - supply[order]
        kept = np.clip(room - before, 0, supply[order])
        wanted = np.bincount(shard[order], weights=kept, minlength=len(self._parts))
        if wanted.sum() > 0:
            target = EVEN_PART / len(self._parts) + (1 - EVEN_PART) * wanted / wanted.sum()
            self._parts = (self._parts + target) / 2
            self._parts /= self._parts.sum()
        self._forget_keys(np.max(np.stack(scores), axis=0))

    def _score_keys(self, leaf: int, scorer: KeyScorer) -> Floats:
        found = scorer(leaf, self._keys)
        if found is not None:
            return found
        others = np.delete(self._counts, leaf, axis=1)
        return np.asarray(others.prod(axis=1), np.float64)

    def _forget_keys(self, score: Floats) -> None:
        """Drop the keys with the lowest scores if there are too many."""
        if len(self._keys) > MAX_KEYS:
            stays = np.sort(np.argsort(-score, kind="stable")[:MAX_KEYS])
            self._keys, self._shards = self._keys[stays], self._shards[stays]
            self._counts = self._counts[stays]

    def save(self) -> bytes:
        pieces = (self._parts, self._keys, self._shards, self._counts)
        return zlib.compress(b"".join(piece.tobytes() for piece in pieces), 1)

    def load(self, data: bytes) -> None:
        if not data:
            return
        raw = zlib.decompress(data)
        shards, leaves = len(self._parts), self._counts.shape[1]
        keys = (len(raw) // 8 - shards) // (2 + leaves)
        ends = np.cumsum([0, shards, keys, keys, keys * leaves]) * 8
        parts, found, owners, counts = (raw[a:b] for a, b in pairwise(ends))
        self._parts = np.frombuffer(parts, np.float64).copy()
        self._keys = np.frombuffer(found, np.int64).copy()
        self._shards = np.frombuffer(owners, np.int64).copy()
        self._counts = np.frombuffer(counts, np.float64).reshape(keys, leaves).copy()
