"""Rows in the state store: in chunks, each in the order of time, that are written once and dropped when old.

A micro-batch appends its rows as new chunks and drops the chunks that no later row can match, so it moves no
other row.  Small chunks are merged, and a chunk is rewritten when half of its rows are no longer needed.

Decoded chunks stay in the worker process (``ChunkCache``).  Whenever a chunk is written, it gets a random ID,
which the header of the state lists.  A cached chunk is used only under an ID that the header in the state
store lists, so a worker never sees rows of a micro-batch that failed, was repeated, or ran elsewhere.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from millpond.engines.timed.pareto_fronts import ALWAYS, NEVER, Ints
from millpond.engines.timed.program import TimedProgram
from millpond.runtime.codec import decode_tables, encode_tables

# Format 1 had a fingerprint of other tables and columns, format 2 one value for all rows.
FORMAT = 3
# The largest chunk, in rows.
MAX_ROWS = 1 << 17
# Chunks below this size are merged, a number of similar ones at a time.
_SMALL, _MERGED = MAX_ROWS >> 3, 8
# How many bytes of decoded chunks a worker keeps.
_CACHE_BYTES = 1 << 30
_ROWS = "rows"


class BinaryStore(Protocol):
    """The state of a shard in the state store: bytes by integer key."""

    def get_value(self, key: int) -> bytes | None: ...

    def put_value(self, key: int, data: bytes) -> None: ...

    def remove_value(self, key: int) -> None: ...


class Chunk(NamedTuple):
    """A chunk of an input's rows: its key and ID, its size in rows and bytes, and its range of time."""

    key: int
    id: bytes
    input: str
    rows: int
    size: int
    first: int
    last: int


def new_id() -> bytes:
    """An ID that was never used before."""
    return secrets.token_bytes(16)


class _CachedTables(NamedTuple):
    tables: Mapping[str, pa.Table]
    size: int


class ChunkCache:
    """Decoded tables of this process, by the random IDs under which they were stored.

    Each state has an ``owner``, also a random ID.  Tables of the owners that were used least recently are
    dropped when the cache is full.
    """

    def __init__(self, capacity: int = _CACHE_BYTES) -> None:
        self._capacity = capacity
        self._owners: OrderedDict[bytes, dict[bytes, _CachedTables]] = OrderedDict()

    def get(self, owner: bytes, id_: bytes) -> Mapping[str, pa.Table] | None:
        found = self._owners.get(owner, {}).get(id_)
        return None if found is None else found.tables

    def put(self, owner: bytes, id_: bytes, tables: Mapping[str, pa.Table]) -> None:
        size = sum(table.nbytes for table in tables.values())
        self._owners.setdefault(owner, {})[id_] = _CachedTables(tables, size)

    def keep_only(self, owner: bytes, ids: Collection[bytes]) -> None:
        """Drop the other tables of the owner, and those of other owners if there are too many."""
        known = self._owners.pop(owner, {})
        self._owners[owner] = {id_: known[id_] for id_ in ids if id_ in known}
        sizes = {each: sum(known.size for known in kept.values()) for each, kept in self._owners.items()}
        total = sum(sizes.values())
        while total > self._capacity:
            oldest, _ = self._owners.popitem(last=False)
            total -= sizes[oldest]


class RowChunks:
    """The rows of every input that are kept in the state store."""

    def __init__(
        self,
        program: TimedProgram,
        store: BinaryStore,
        cache: ChunkCache,
        owner: bytes,
        chunks: Iterable[Chunk] = (),
    ) -> None:
        self._program = program
        self._store = store
        self._cache = cache
        self._owner = owner
        self._schemas = {each.name: each.schema for each in program.inputs if not each.is_relation}
        self._chunks: dict[str, list[Chunk]] = {name: [] for name in self._schemas}
        for chunk in chunks:
            self._chunks[chunk.input].append(chunk)

    def __iter__(self) -> Iterator[Chunk]:
        return (chunk for chunks in self._chunks.values() for chunk in chunks)

    def select(self, name: str, low: int = ALWAYS, high: int = NEVER) -> pa.Table:
        """The rows of an input with timestamps from ``low`` to before ``high``."""
        parts = [self._schemas[name].empty_table()]
        for chunk in self._chunks[name]:
            if chunk.last >= low and chunk.first < high:
                start, end = self._find_range(chunk, low, high)
                parts.append(self._load(chunk).slice(start, end - start))
        return pa.concat_tables(parts)

    def count(self, name: str, low: int = ALWAYS, high: int = NEVER) -> int:
        """The number of these rows."""
        ranges = (self._find_range(chunk, low, high) for chunk in self._chunks[name])
        return sum(end - start for start, end in ranges)

    def _find_range(self, chunk: Chunk, low: int, high: int) -> tuple[int, int]:
        """The position of the first row from ``low`` on, and of the first one from ``high`` on."""
        if chunk.first >= low and chunk.last < high:
            return 0, chunk.rows
        if chunk.last < low or chunk.first >= high:
            return 0, 0
        times = _timestamps(self._load(chunk))
        start = np.searchsorted(times, max(low, ALWAYS))
        return int(start), max(int(start), int(np.searchsorted(times, min(high, NEVER))))

    def add(self, name: str, rows: pa.Table) -> None:
        """Append rows of an input."""
        if not rows.num_rows:
            return
        times = rows.column("t").to_numpy()
        if (times[1:] < times[:-1]).any():
            rows = rows.take(pa.array(np.argsort(times, kind="stable")))
        for start in range(0, rows.num_rows, MAX_ROWS):
            self._write(name, rows.slice(start, MAX_ROWS).combine_chunks())

    def drop_before(self, name: str, time: int) -> None:
        """Drop the rows of an input before a timestamp, except some in chunks that hold others as well."""
        for chunk in tuple(self._chunks[name]):
            start, _ = self._find_range(chunk, time, NEVER)
            if chunk.last < time:
                self._remove(chunk)
            elif start and 2 * start >= chunk.rows:
                rest = self._load(chunk).slice(start)
                self._remove(chunk)
                self.add(name, rest)
        self._merge_small_chunks(name)

    def _merge_small_chunks(self, name: str) -> None:
        """Merge chunks of similar size, so that their number stays small and each row is rarely moved."""
        tiers: dict[int, list[Chunk]] = {}
        for chunk in self._chunks[name]:
            if chunk.rows < _SMALL:
                tiers.setdefault(chunk.rows.bit_length() // 3, []).append(chunk)
        for similar in tiers.values():
            if len(similar) >= _MERGED:
                rows = pa.concat_tables([self._load(chunk) for chunk in sorted(similar, key=_first)])
                for chunk in similar:
                    self._remove(chunk)
                self.add(name, rows)

    # --- the state store ---------------------------------------------------------------------------

    def _load(self, chunk: Chunk) -> pa.Table:
        known = self._cache.get(self._owner, chunk.id)
        if known is None:
            data = self._store.get_value(chunk.key)
            known = self._decode(chunk.input, b"" if data is None else data)
            self._cache.put(self._owner, chunk.id, known)
        return known[_ROWS]

    def _write(self, name: str, rows: pa.Table) -> None:
        used = {chunk.key for chunk in self}
        key = next(key for key in count() if key not in used)
        schemas = {_ROWS: self._schemas[name]}
        data = encode_tables({_ROWS: rows}, schemas, self._program.fingerprint, key, FORMAT)
        times = _timestamps(rows)
        chunk = Chunk(key, new_id(), name, rows.num_rows, len(data), int(times[0]), int(times[-1]))
        self._store.put_value(key, data)
        self._cache.put(self._owner, chunk.id, self._decode(name, data))
        self._chunks[name].append(chunk)

    def _decode(self, name: str, data: bytes) -> dict[str, pa.Table]:
        return decode_tables(data, {_ROWS: self._schemas[name]}, self._program.fingerprint, FORMAT)[0]

    def _remove(self, chunk: Chunk) -> None:
        self._store.remove_value(chunk.key)
        self._chunks[chunk.input].remove(chunk)


def _timestamps(rows: pa.Table) -> Ints:
    return np.asarray(rows.column("t").combine_chunks().to_numpy(), dtype=np.int64)


def _first(chunk: Chunk) -> int:
    return chunk.first
