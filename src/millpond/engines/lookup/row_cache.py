"""Rows of a relation kept by key: looked up here first, and in the database for the rest."""

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
from millpond.models.arrays import Bools, Ints
from millpond.policies.kernels.ordered import grown

# How many keys are remembered without their rows, for policies that count: so many times the size, or this.
_REMEMBERED = 16
_FEWEST_REMEMBERED = 65_536


@dataclass(frozen=True, eq=False)
class LookupAnswer:
    """For each reference, its rows in ``table``: the first, and how many; and whether it was a hit."""

    table: pa.Table
    first: Ints
    count: Ints
    hits: Bools

    def pairs(self, most: int) -> Iterator[tuple[Ints, pa.Table]]:
        """Every reference with each of its rows, in order and at most so many at a time."""
        ends = np.cumsum(self.count)
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, most):
            numbers = np.arange(start, min(start + most, total))
            reference = np.searchsorted(ends, numbers, side="right")
            row = self.first[reference] + numbers - (ends - self.count)[reference]
            yield reference, self.table.take(pa.array(row))


class RowCache:
    """The rows of some keys, of no more than a fixed number of rows; a key without rows counts as one.

    A key is what the columns of a row of ``key`` hold.  The rows of all keys asked for in one batch that are
    not kept, or were fetched longer than ``ttl`` seconds ago, are fetched together.
    """

    def __init__(
        self,
        fetcher: RowFetcher,
        player: KeyCache,
        size: int,
        key: Sequence[str],
        ttl: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher = fetcher
        self._player = player
        self._key = list(key)
        self._ttl = ttl
        self._clock = clock
        self._most = max(_REMEMBERED * size, _FEWEST_REMEMBERED)
        self._numbers: dict[Any, int] = {}
        self._table = fetcher.schema.empty_table()
        # By the number of a key: where its rows are, how many, when they were fetched, whether they are kept.
        self._first = np.empty(0, np.int64)
        self._count = np.empty(0, np.int64)
        self._fetched = np.empty(0, np.float64)
        self._kept = np.empty(0, np.bool_)

    @property
    def rows(self) -> int:
        """Rows kept; a key without rows counts as one."""
        return self._player.rows

    @property
    def table(self) -> pa.Table:
        """The rows kept."""
        return self._table

    def key_type(self, name: str) -> pa.DataType:
        """The type of a column of the key."""
        return self._fetcher.schema.field(name).type

    def look_up(self, columns: Sequence[pa.Array]) -> LookupAnswer:
        """The rows of each reference, given by the columns of its key, none of which is NULL."""
        codes, values = self._numbered(columns)
        asked, places = np.unique(codes, return_index=True)
        now = self._clock()
        fresh = self._kept[asked]
        stale = np.zeros(len(asked), np.bool_)
        if self._ttl is not None:
            stale = fresh & (self._fetched[asked] < now - self._ttl)
            fresh = fresh & ~stale
        missing, at = asked[~fresh], places[~fresh]
        if len(missing):
            self._fetch(missing, [column.take(pa.array(at)) for column in columns], now)
        hits = self._player.refer(codes, values, np.maximum(self._count, 1))
        if stale.any():
            hits[places[stale]] = False
        answer = LookupAnswer(self._table, self._first[codes], self._count[codes], hits)
        if len(missing):
            self._tidy()
        return answer

    def _numbered(self, columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
        """The number of each reference's key, and its value where it is one whole number."""
        group, firsts = _groups(columns)
        keys = _keys([column.take(pa.array(firsts)) for column in columns])
        numbers = np.fromiter(map(self._numbers.get, keys, repeat(-1)), np.int64, len(keys))
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            # In the order in which they came, so that nothing depends on the cut into batches.
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
        self._first, self._count = grown(self._first, count, 0), grown(self._count, count, 0)
        self._fetched, self._kept = grown(self._fetched, count, 0), grown(self._kept, count, 0)

    def _fetch(self, missing: Ints, keys: Sequence[pa.Array], now: float) -> None:
        """Add the rows of the missing keys to the table."""
        rows = self._fetcher.fetch(keys)
        found = _keys([rows.column(name).combine_chunks() for name in self._key])
        owner = np.fromiter(map(self._numbers.get, found, repeat(-1)), np.int64, len(found))
        # A database may find more than was asked for, as where case does not matter to it.
        place = np.searchsorted(missing, owner)
        mine = np.flatnonzero(missing[np.minimum(place, len(missing) - 1)] == owner)
        order = mine[np.argsort(owner[mine], kind="stable")]
        counts = np.bincount(np.searchsorted(missing, owner[order]), minlength=len(missing))
        self._count[missing] = counts
        self._first[missing] = self._table.num_rows + np.cumsum(counts) - counts
        self._fetched[missing] = now
        self._table = pa.concat_tables([self._table, rows.take(pa.array(order))]).combine_chunks()

    def _tidy(self) -> None:
        """Drop the rows of keys that are not kept, and forget what is long past."""
        kept = np.sort(self._player.held)
        counts = self._count[kept]
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        rows = np.arange(total) + np.repeat(self._first[kept] - (ends - counts), counts)
        self._table = self._table.take(pa.array(rows)).combine_chunks()
        self._kept[:] = False
        self._kept[kept] = True
        self._first[kept] = ends - counts
        if len(self._numbers) > self._most:
            self._forget()

    def _forget(self) -> None:
        """Keep half of the keys known: those held, then the ones last referred to."""
        used = self._player.last_used[: len(self._numbers)].copy()
        used[self._player.remembered] = np.iinfo(np.int64).max
        kept = np.sort(np.argsort(-used, kind="stable")[: max(self._most // 2, len(self._player.remembered))])
        self._player.forget(kept)
        keys = list(self._numbers)
        self._numbers = {keys[number]: new for new, number in enumerate(kept.tolist())}
        self._first, self._count = self._first[kept], self._count[kept]
        self._fetched, self._kept = self._fetched[kept], self._kept[kept]


def _groups(columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """Equal rows have equal numbers; and a row of each number."""
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


def _keys(columns: Sequence[pa.Array]) -> list[Any]:
    """Rows as values that can be looked up."""
    lists = [
        np.asarray(column).tolist() if pa.types.is_integer(column.type) else column.to_pylist()
        for column in columns
    ]
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))
