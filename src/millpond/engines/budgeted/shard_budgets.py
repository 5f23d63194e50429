"""How the budget is shared out over the shards: by a small model of all of them that each one holds.

Every shard is told of the same sample of keys, from all shards.  From it each reckons which tuples would be
kept if there were one store for all, and so how much room each shard should have.  All find the same, so
that nobody has to tell anybody, and the shares always add up to the budget.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import exp

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted.frequency_sketch import hash_to_buckets
from millpond.models.arrays import Floats, Ints

# About so many tuples of the budget are represented, and at most so many keys are remembered.
REPRESENTED = 4096
MOST_KEYS = 8192
# This part of the budget is shared out evenly, whatever the sample says, and shares move half way at a time.
EVEN = 0.25
SAMPLE_SCHEMA = pa.schema([("v", pa.int64()), ("shard", pa.int32()), ("count", pa.int64())])
# Scores of a leaf's keys, given their values; None leaves them to the frequencies of the partners.
Scorer = Callable[[int, Ints], Floats | None]


def sampling_interval(memory: int) -> int:
    """Of how many keys one is in the sample, a power of two."""
    return 1 << max(0, (memory // REPRESENTED).bit_length() - 1)


def sample_keys(values: Ints, shards: Ints, memory: int) -> pa.Table:
    """The keys of the sample among some tuples, with their shards and how often they come."""
    chosen = hash_to_buckets(values ^ 0x5DEECE66D, sampling_interval(memory)) == 0
    keys, first, counts = np.unique(values[chosen], return_index=True, return_counts=True)
    columns = [pa.array(keys), pa.array(shards[chosen][first], pa.int32()), pa.array(counts)]
    return pa.table(columns, schema=SAMPLE_SCHEMA)


class ShardBudgets:
    """The sample, and the shares that follow from it."""

    def __init__(self, memory: int, shards: int, leaves: int) -> None:
        self._memory = memory
        self._keys = np.empty(0, np.int64)
        self._shards = np.empty(0, np.int64)
        self._counts = np.empty((0, leaves))
        self._parts = np.full(shards, 1 / shards)

    @property
    def shares(self) -> Ints:
        """The tuples that each shard may keep; they add up to the budget."""
        exact = self._parts * self._memory
        shares: Ints = np.floor(exact).astype(np.int64)
        order = np.argsort(shares - exact, kind="stable")
        shares[order[: self._memory - int(shares.sum())]] += 1
        return shares

    def observe(self, samples: Sequence[tuple[int, pa.Table]], arrived: int) -> None:
        """Learn the samples of a batch in which ``arrived`` tuples came, by the numbers of their leaves."""
        self._counts *= exp(-arrived / max(10 * self._memory, 10_000))
        for leaf, table in samples:
            values, counts = table.column("v").to_numpy(), table.column("count").to_numpy()
            if not len(values):
                continue
            new = ~np.isin(values, self._keys)
            fresh, first = np.unique(values[new], return_index=True)
            self._keys = np.concatenate([self._keys, fresh])
            owners = table.column("shard").to_numpy()[new][first]
            self._shards = np.concatenate([self._shards, owners.astype(np.int64)])
            self._counts = np.vstack([self._counts, np.zeros((len(fresh), self._counts.shape[1]))])
            order = np.argsort(self._keys, kind="stable")
            at = order[np.searchsorted(self._keys, values, sorter=order)]
            np.add.at(self._counts[:, leaf], at, counts)

    def settle(self, scorer: Scorer) -> None:
        """Reckon what would be kept of the sample, and move the shares towards it."""
        scores = [self._scores(leaf, scorer) for leaf in range(self._counts.shape[1])]
        score, supply = np.concatenate(scores), self._counts.T.reshape(-1)
        shard = np.tile(self._shards, len(scores))
        order = np.argsort(-score, kind="stable")
        room = self._memory / sampling_interval(self._memory)
        before = np.cumsum(supply[order]) - supply[order]
        kept = np.clip(room - before, 0, supply[order])
        wanted = np.bincount(shard[order], weights=kept, minlength=len(self._parts))
        if wanted.sum() > 0:
            target = EVEN / len(self._parts) + (1 - EVEN) * wanted / wanted.sum()
            self._parts = (self._parts + target) / 2
            self._parts /= self._parts.sum()
        self._forget(np.max(np.stack(scores), axis=0))

    def _scores(self, leaf: int, scorer: Scorer) -> Floats:
        found = scorer(leaf, self._keys)
        if found is not None:
            return found
        others = np.delete(self._counts, leaf, axis=1)
        return np.asarray(others.prod(axis=1), np.float64)

    def _forget(self, score: Floats) -> None:
        if len(self._keys) > MOST_KEYS:
            stays = np.sort(np.argsort(-score, kind="stable")[:MOST_KEYS])
            self._keys, self._shards, self._counts = (
                self._keys[stays],
                self._shards[stays],
                self._counts[stays],
            )

    def state(self) -> bytes:
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
