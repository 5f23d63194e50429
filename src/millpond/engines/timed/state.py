"""What is stored in the state store (RocksDB) for a query over application time, and how it is encoded.

The state of a shard is a map from integer keys to bytes:

    key           value
    HEADER_KEY    the header: a table ``progress`` (stream, latest timestamp, wall-clock time of its last
                  advance), a table ``chunks`` that lists all other values, and the watermark
    MATCHES_KEY   a table of partial matches for each set of streams that can wait for others, and a result
                  table for each need whose result is remembered (groups, rows of DISTINCT)
    0, 1 …        a chunk of the rows of an input: rows that are held until the watermark passes them and,
                  with windows, rows that later rows can match (``row_chunks``)

``tables`` describes the columns.  Values are encoded by ``runtime.codec``: they carry a format version and
the fingerprint of the program, so that state of another version or query is refused.  Only the header is read
in every micro-batch.  It lists the IDs of the other values, which are usually in the worker's cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from millpond.engines.timed.program import TimedProgram
from millpond.engines.timed.reorder_buffer import Clock, StreamProgress
from millpond.engines.timed.row_chunks import FORMAT, BinaryStore, Chunk, ChunkCache, RowChunks, new_id
from millpond.runtime.codec import decode_tables, encode_tables

HEADER_KEY, MATCHES_KEY = -3, -1
_PROGRESS, _CHUNKS, _TOTALS = "progress", "chunks", "totals"
_PROGRESS_SCHEMA = pa.schema([("stream", pa.string()), ("latest", pa.int64()), ("advanced", pa.float64())])
_HEADER_SCHEMAS = {
    _PROGRESS: _PROGRESS_SCHEMA,
    _CHUNKS: pa.schema(
        [
            ("key", pa.int32()),
            ("id", pa.binary()),
            ("input", pa.string()),
            ("rows", pa.int64()),
            ("size", pa.int64()),
            ("first", pa.int64()),
            ("last", pa.int64()),
        ]
    ),
    _TOTALS: pa.schema(
        [
            ("owner", pa.binary()),
            ("revision", pa.int64()),
            ("matches", pa.binary()),
            ("size", pa.int64()),
        ]
    ),
}


@dataclass(frozen=True)
class Header:
    """What is known of a state without reading it.

    ``owner`` identifies the state in caches.  ``revision`` is 0 before anything was answered.  ``matches`` is
    the ID of the partial matches and results (empty if there are none), and ``size`` their size in bytes.
    """

    owner: bytes
    clock: Clock = field(default_factory=Clock)
    revision: int = 0
    matches: bytes = b""
    size: int = 0
    chunks: tuple[Chunk, ...] = ()


def encode_header(program: TimedProgram, header: Header) -> bytes:
    """The header, as it is stored."""
    totals = (header.owner, header.revision, header.matches, header.size)
    tables = {
        _PROGRESS: _build_progress(header.clock.progress),
        _CHUNKS: _build_table(_CHUNKS, header.chunks),
        _TOTALS: _build_table(_TOTALS, [totals]),
    }
    return encode_tables(tables, _HEADER_SCHEMAS, program.fingerprint, header.clock.watermark, FORMAT)


def decode_header(program: TimedProgram, data: bytes) -> Header:
    """The header, from its stored bytes."""
    tables, watermark = decode_tables(data, _HEADER_SCHEMAS, program.fingerprint, FORMAT)
    ((owner, revision, matches, size),) = _list_rows(tables, _TOTALS)
    clock = Clock(_read_progress(tables), watermark)
    chunks = tuple(Chunk(*row) for row in _list_rows(tables, _CHUNKS))
    return Header(owner, clock, revision, matches, size, chunks)


def _build_table(name: str, rows: Iterable[tuple[object, ...]]) -> pa.Table:
    schema = _HEADER_SCHEMAS[name]
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _list_rows(tables: Mapping[str, pa.Table], name: str) -> list[tuple[Any, ...]]:
    found = tables.get(name)
    return [] if found is None else list(zip(*(c.to_pylist() for c in found.columns), strict=True))


class ShardState:
    """The state of a shard: read from the state store or a cache when needed, and written when changed."""

    def __init__(self, program: TimedProgram, store: BinaryStore, cache: ChunkCache) -> None:
        data = store.get_value(HEADER_KEY)
        self._header = Header(new_id()) if data is None else decode_header(program, data)
        self._program = program
        self._store = store
        self._cache = cache
        self.rows = RowChunks(program, store, cache, self._header.owner, self._header.chunks)
        self.size = 0 if data is None else len(data) + self._header.size + sum(c.size for c in self.rows)

    @property
    def clock(self) -> Clock:
        return self._header.clock

    @property
    def revision(self) -> int:
        """How often the state has been advanced."""
        return self._header.revision

    def load_matches(self) -> Mapping[str, pa.Table]:
        """The partial matches and results."""
        header = self._header
        if not header.matches:
            return {}
        known = self._cache.get(header.owner, header.matches)
        if known is None:
            data = self._store.get_value(MATCHES_KEY)
            known = self._decode_matches(b"" if data is None else data)
            self._cache.put(header.owner, header.matches, known)
        return known

    def store_matches(self, tables: Mapping[str, pa.Table]) -> None:
        """Replace the partial matches and results; increments the revision."""
        program, header = self._program, replace(self._header, revision=self.revision + 1)
        if tables:
            data = encode_tables(tables, program.state_schemas, program.fingerprint, header.revision, FORMAT)
            self._store.put_value(MATCHES_KEY, data)
            header = replace(header, matches=new_id(), size=len(data))
            self._cache.put(header.owner, header.matches, self._decode_matches(data))
        elif header.matches:
            self._store.remove_value(MATCHES_KEY)
            header = replace(header, matches=b"", size=0)
        self._header = header

    def _decode_matches(self, data: bytes) -> dict[str, pa.Table]:
        return decode_tables(data, self._program.state_schemas, self._program.fingerprint, FORMAT)[0]

    def store_header(self, clock: Clock) -> None:
        """Write the header, with the clock after the micro-batch; all other values are written already."""
        self._header = replace(self._header, clock=clock, chunks=tuple(self.rows))
        data = encode_header(self._program, self._header)
        self._store.put_value(HEADER_KEY, data)
        self._cache.keep_only(self._header.owner, {self._header.matches, *(c.id for c in self.rows)})
        self.size = len(data) + self._header.size + sum(c.size for c in self.rows)

    def count_entries(self) -> int:
        """The number of partial matches, remembered results, and rows kept for windows."""
        count = sum(int(table.num_rows) for table in self.load_matches().values())
        for each in self._program.inputs:
            if each.retention is not None:
                needed = self.clock.watermark - each.retention
                count += self.rows.count(each.name, needed, self.clock.watermark)
        return count

    def count_held_rows(self) -> int:
        """How many rows wait for the watermark; a row that is held for several inputs counts once."""
        counts: dict[str, int] = {}
        for each in self._program.inputs:
            if each.has_time and not each.is_relation:
                held = self.rows.count(each.name, self.clock.watermark)
                counts[each.stream] = max(counts.get(each.stream, 0), held)
        return sum(counts.values())


# --- payloads ------------------------------------------------------------------------------------------


def encode_payload(program: TimedProgram, rows: Mapping[str, pa.Table], latest: Mapping[str, int]) -> bytes:
    """What a task sends to a shard: rows by input table, and the latest timestamp by stream."""
    progress = _build_progress({stream: StreamProgress(t, 0.0) for stream, t in latest.items()})
    tables = {**rows, _PROGRESS: progress}
    return encode_tables(tables, _payload_schemas(program), program.fingerprint, 0, FORMAT)


def decode_payload(program: TimedProgram, data: bytes) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """What a task sent: rows by input table, and the latest timestamp by stream."""
    tables, _ = decode_tables(data, _payload_schemas(program), program.fingerprint, FORMAT)
    latest = {stream: known.latest for stream, known in _read_progress(tables).items()}
    tables.pop(_PROGRESS, None)
    return tables, latest


def merge_payloads(
    payloads: Iterable[tuple[Mapping[str, pa.Table], Mapping[str, int]]],
) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """The rows and the latest timestamps of several payloads."""
    rows: dict[str, list[pa.Table]] = {}
    progress: dict[str, int] = {}
    for tables, known in payloads:
        for name, table in tables.items():
            rows.setdefault(name, []).append(table)
        for stream, latest in known.items():
            progress[stream] = max(latest, progress.get(stream, latest))
    return {name: pa.concat_tables(tables) for name, tables in rows.items()}, progress


def _payload_schemas(program: TimedProgram) -> dict[str, pa.Schema]:
    inputs = {each.name: each.schema for each in program.inputs if not each.is_relation}
    return {**inputs, _PROGRESS: _PROGRESS_SCHEMA}


def _build_progress(progress: Mapping[str, StreamProgress]) -> pa.Table:
    return _build_table(_PROGRESS, [(stream, *known) for stream, known in progress.items()])


def _read_progress(tables: Mapping[str, pa.Table]) -> dict[str, StreamProgress]:
    return {stream: StreamProgress(*known) for stream, *known in _list_rows(tables, _PROGRESS)}
