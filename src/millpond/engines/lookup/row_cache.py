"""A cache of the rows of a lookup relation, by key; misses are fetched from the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.engines.lookup.key_cache import KeyCache
from millpond.engines.lookup.row_fetcher import RowFetcher
from millpond.models.array_types import Bools, Ints
from millpond.policies.kernels.growth import extend

# Policies need statistics of keys that are not cached: of _REMEMBERED_FACTOR times the cache's size,
# or of _MIN_REMEMBERED keys if that is more.
_REMEMBERED_FACTOR = 16
_MIN_REMEMBERED = 65_536


@dataclass(frozen=True, eq=False)
class LookupAnswer:
    """For each lookup: its ``first`` row in ``table``, its ``count`` of rows, and whether it was a hit."""

    table: pa.Table
    first: Ints
    count: Ints
    hits: Bools

    def iterate_pairs(self, most: int) -> Iterator[tuple[Ints, pa.Table]]:
        """Every lookup with each of its rows, in order and at most ``most`` at a time."""
        ends = np.cumsum(self.count)
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, most):
            numbers = np.arange(start, min(start + most, total))
            reference = np.searchsorted(ends, numbers, side="right")
            row = self.first[reference] + numbers - (ends - self.count)[reference]
            yield reference, self.table.take(pa.array(row))


class RowCache:
    """Caches at most ``size`` rows by the columns ``key``; a key without rows counts as one row.

    The keys of a batch that are not cached, or were fetched more than ``ttl`` seconds ago, are fetched
    together.
    """

    def __init__(
        self,
        fetcher: RowFetcher,
        keys: KeyCache,
        size: int,
        key: Sequence[str],
        ttl: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher = fetcher
        self._keys = keys
        self._key = list(key)
        self._ttl = ttl
        self._clock = clock
        self._max_remembered = max(_REMEMBERED_FACTOR * size, _MIN_REMEMBERED)
        self._numbers: dict[Any, int] = {}
        self._table = fetcher.schema.empty_table()
        # By the number of a key: its first row, the number of rows, when they were fetched, whether they are
        # cached.
        self._first = np.empty(0, np.int64)
        self._count = np.empty(0, np.int64)
        self._fetched = np.empty(0, np.float64)
        self._kept = np.empty(0, np.bool_)

    @property
    def rows(self) -> int:
        """The number of cached rows; a key without rows counts as one."""
        return self._keys.rows

    @property
    def table(self) -> pa.Table:
        """The cached rows."""
        return self._table

    def key_type(self, name: str) -> pa.DataType:
        """The type of a column of the key."""
        return self._fetcher.schema.field(name).type

    def look_up(self, columns: Sequence[pa.Array]) -> LookupAnswer:
        """Looks up keys, which are given as one array without NULL for each column of the key."""
        codes, values = self._number_keys(columns)
        distinct, places = np.unique(codes, return_index=True)
        now = self._clock()
        fresh = self._kept[distinct]
        stale = np.zeros(len(distinct), np.bool_)
        if self._ttl is not None:
            stale = fresh & (self._fetched[distinct] < now - self._ttl)
            fresh = fresh & ~stale
        missing, at = distinct[~fresh], places[~fresh]
        if len(missing):
            self._fetch(missing, [column.take(pa.array(at)) for column in columns], now)
        hits = self._keys.refer(codes, values, np.maximum(self._count, 1))
        if stale.any():
            hits[places[stale]] = False
        answer = LookupAnswer(self._table, self._first[codes], self._count[codes], hits)
        if len(missing):
            self._drop_evicted()
        return answer

    def _number_keys(self, columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
        """The number of each key, and its value if it is one integer."""
        group, firsts = _group_equal(columns)
        keys = _to_keys([column.take(pa.array(firsts)) for column in columns])
        numbers = np.fromiter(map(self._numbers.get, keys, repeat(-1)), np.int64, len(keys))
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            # In the order of arrival, so the numbers do not depend on the batches.
            unknown = unknown[np.argsort(firsts[unknown])]
            numbers[unknown] = np.arange(len(unknown)) + len(self._numbers)
            self._numbers.update(
                zip(map(keys.__getitem__, unknown.tolist()), numbers[unknown].tolist(), strict=True)
            )
            self._grow(len(self._numbers))
        codes = numbers[group]
        whole = len(columns) == 1 and pa.types.is_integer(columns[0].type)
        return codes, np.asarray(columns[0], np.int64) if whole else codes

    def _grow(self, count: int) -> None:
        self._first, self._count = extend(self._first, count, 0), extend(self._count, count, 0)
        self._fetched, self._kept = extend(self._fetched, count, 0), extend(self._kept, count, 0)

    def _fetch(self, missing: Ints, keys: Sequence[pa.Array], now: float) -> None:
        """Fetch the rows of the missing keys, and add them to the table."""
        rows = self._fetcher.fetch(keys)
        found = _to_keys([rows.column(name).combine_chunks() for name in self._key])
        owner = np.fromiter(map(self._numbers.get, found, repeat(-1)), np.int64, len(found))
        # A database may return other keys too, for example if it ignores case.
        place = np.searchsorted(missing, owner)
        mine = np.flatnonzero(missing[np.minimum(place, len(missing) - 1)] == owner)
        order = mine[np.argsort(owner[mine], kind="stable")]
        counts = np.bincount(np.searchsorted(missing, owner[order]), minlength=len(missing))
        self._count[missing] = counts
        self._first[missing] = self._table.num_rows + np.cumsum(counts) - counts
        self._fetched[missing] = now
        self._table = pa.concat_tables([self._table, rows.take(pa.array(order))]).combine_chunks()

    def _drop_evicted(self) -> None:
        """Drop the rows of evicted keys, and forget old keys if there are too many."""
        kept = np.sort(self._keys.held)
        counts = self._count[kept]
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        rows = np.arange(total) + np.repeat(self._first[kept] - (ends - counts), counts)
        self._table = self._table.take(pa.array(rows)).combine_chunks()
        self._kept[:] = False
        self._kept[kept] = True
        self._first[kept] = ends - counts
        if len(self._numbers) > self._max_remembered:
            self._forget()

    def _forget(self) -> None:
        """Remember only half of the keys: those that the policy needs, then the most recently used ones."""
        used = self._keys.last_used[: len(self._numbers)].copy()
        used[self._keys.remembered] = np.iinfo(np.int64).max
        kept = np.sort(
            np.argsort(-used, kind="stable")[: max(self._max_remembered // 2, len(self._keys.remembered))]
        )
        self._keys.forget(kept)
        keys = list(self._numbers)
        self._numbers = {keys[number]: new for new, number in enumerate(kept.tolist())}
        self._first, self._count = self._first[kept], self._count[kept]
        self._fetched, self._kept = self._fetched[kept], self._kept[kept]


def _group_equal(columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """A number for each row, equal for equal rows; and the first row of each number."""
    group = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.dictionary_encode()
        numbers = np.asarray(encoded.indices, np.int64)
        group = group * max(len(encoded.dictionary), 1) + numbers
        if len(columns) > 1:
            group = np.unique(group, return_inverse=True)[1].astype(np.int64)
    firsts = np.empty(int(group.max(initial=-1)) + 1, np.int64)
    firsts[group[::-1]] = np.arange(len(group))[::-1]
    return group, firsts


def _to_keys(columns: Sequence[pa.Array]) -> list[Any]:
    """The rows as keys of a dictionary."""
    lists = [
        np.asarray(column).tolist() if pa.types.is_integer(column.type) else column.to_pylist()
        for column in columns
    ]
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))
