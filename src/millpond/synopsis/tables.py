"""Synopses as values: they start empty, take in batches of rows, merge, and go to bytes and back.

A synopsis is a few Arrow tables, one a slot.  DuckDB does the work on them.  Merging is associative and
commutative, and the empty synopsis changes nothing, so that parts of it may be built anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millpond.errors import MillpondError
from millpond.synopsis.place import Place

# What the bytes of a synopsis begin with; the version changes with their meaning.
MAGIC = b"mill"
VERSION = 1
_HEAD = struct.Struct("<4sH16sq")
_LENGTH = struct.Struct("<q")


class StateError(MillpondError):
    """Kept state that this program cannot read."""


@dataclass(frozen=True)
class SlotProgram:
    """What is done with one table of the synopsis: SQL over ``batch`` and over ``rows``.

    ``presence``: all that is kept of a class is that there was a row.  Where it is cut, ``chunk`` is the
    column with the number of a row's chunk, and ``place`` tells where in the cut it lies, if its key does.
    """

    name: str
    stream: str
    chunk: str | None
    place: Place | None
    presence: bool
    reduce: str
    merge: str
    schema_bytes: bytes

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.schema_bytes))

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """Without the number of the chunk, which is the same in all of a chunk."""
        return pa.schema([f for f in self.schema if f.name != self.chunk])

    @property
    def key(self) -> list[str]:
        """The columns that tell classes apart."""
        return [name for name in self.stored_schema.names if name.startswith(f"{self.name}_k")]

    @property
    def counts_only(self) -> bool:
        """A row is a key of one word and a count."""
        return bool(self.stored_schema.names[1:] == ["n"])

    def empty(self) -> pa.Table:
        return self.schema.empty_table()


class Engine:
    """An embedded DuckDB, by default on a single thread: the parallelism is Spark's."""

    def __init__(self, threads: int = 1) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(f"SET threads = {threads}")
        self._connection.execute("SET enable_progress_bar = false")
        self._kept: set[str] = set()

    def query(self, sql: str, tables: Mapping[str, pa.Table | pa.RecordBatch]) -> pa.Table:
        with self.tables(tables), _said_in_one_line():
            return self._connection.sql(sql).to_arrow_table()

    @contextmanager
    def tables(self, tables: Mapping[str, pa.Table | pa.RecordBatch]) -> Iterator[None]:
        """The tables by name, for as long as it lasts."""
        for name, table in tables.items():
            self._connection.register(name, table)
        try:
            yield
        finally:
            for name in tables:
                self._connection.unregister(name)

    def keep(self, name: str, sql: str) -> None:
        """The result under a name, until all such are dropped."""
        with _said_in_one_line():
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
        self._kept.add(name)

    def drop_all(self) -> None:
        for name in self._kept:
            self._connection.execute(f"DROP TABLE IF EXISTS {name}")
        self._kept.clear()

    def arrays(self, sql: str) -> dict[str, NDArray[np.int64]]:
        """Columns of whole numbers."""
        with _said_in_one_line():
            found = self._connection.execute(sql).fetchnumpy()
        return {name: np.asarray(column, dtype=np.int64) for name, column in found.items()}


@contextmanager
def _said_in_one_line() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise engine_error(error) from None


def engine_error(error: duckdb.Error) -> MillpondError:
    """A value that does not fit, said in one line."""
    first = str(error).splitlines()[0]
    if isinstance(error, duckdb.OutOfRangeException | duckdb.ConversionException):
        return MillpondError(f"a value does not fit its type: {first}", remedy="cast to a wider type")
    return MillpondError(first)


@dataclass(frozen=True)
class Synopsis:
    """The tables of some slots, by name; a slot without rows may be absent."""

    tables: Mapping[str, pa.Table]

    @staticmethod
    def empty() -> Synopsis:
        return Synopsis({})

    @staticmethod
    def of_batch(engine: Engine, slots: Iterable[SlotProgram], batch: pa.RecordBatch | pa.Table) -> Synopsis:
        """What a batch of ingested rows of one stream adds to its slots."""
        tables = {}
        for slot in slots:
            table = engine.query(slot.reduce, {"batch": batch})
            if table.num_rows:
                tables[slot.name] = table.cast(slot.schema)
        return Synopsis(tables)

    @staticmethod
    def merged(engine: Engine, slots: Iterable[SlotProgram], parts: Iterable[Synopsis]) -> Synopsis:
        """What all parts hold together."""
        parts = list(parts)
        tables = {}
        for slot in slots:
            found = [part.tables[slot.name] for part in parts if slot.name in part.tables]
            if len(found) == 1:
                tables[slot.name] = found[0]
            elif found and slot.counts_only:
                tables[slot.name] = _counts_added(slot, found)
            elif found and slot.presence and len(slot.key) == 1:
                tables[slot.name] = _united(slot, found)
            elif found:
                rows = pa.concat_tables(found)
                tables[slot.name] = engine.query(slot.merge, {"rows": rows}).cast(slot.schema)
        return Synopsis(tables)

    @property
    def entries(self) -> int:
        return sum(table.num_rows for table in self.tables.values())

    def table(self, slot: SlotProgram) -> pa.Table:
        return self.tables.get(slot.name, slot.empty())

    def to_bytes(
        self, slots: Iterable[SlotProgram], fingerprint: bytes, revision: int = 0, chunk: int | None = None
    ) -> bytes:
        """The synopsis as bytes that name their version and the layout they follow.

        All rows being of one ``chunk``, its number is left out.
        """
        shapes = {s.name: s.schema if chunk is None else s.stored_schema for s in slots}
        return packed_tables(self.tables, shapes, fingerprint, revision)

    @staticmethod
    def from_bytes(
        data: bytes, slots: Iterable[SlotProgram], fingerprint: bytes, chunk: int | None = None
    ) -> tuple[Synopsis, int]:
        """The synopsis and its revision; StateError where the bytes are not of this version and layout."""
        slots = list(slots)
        shapes = {s.name: s.schema if chunk is None else s.stored_schema for s in slots}
        tables, revision = unpacked_tables(data, shapes, fingerprint)
        for slot in slots:
            if slot.chunk is not None and chunk is not None and slot.name in tables:
                table = tables[slot.name]
                numbers = pa.array(np.full(table.num_rows, chunk, np.int32))
                tables[slot.name] = table.append_column(slot.chunk, numbers).select(slot.schema.names)
        return Synopsis(tables), revision


def packed_tables(
    tables: Mapping[str, pa.Table], shapes: Mapping[str, pa.Schema], fingerprint: bytes, revision: int
) -> bytes:
    """Tables as bytes that name their version and the layout they follow; one without rows may be absent."""
    sink = [_HEAD.pack(MAGIC, VERSION, fingerprint, revision)]
    for name, schema in shapes.items():
        table = tables.get(name)
        if table is None or not table.num_rows:
            sink.append(_LENGTH.pack(0))
            continue
        batch = table.select(schema.names).combine_chunks().to_batches()[0]
        body = batch.serialize().to_pybytes()
        sink += [_LENGTH.pack(len(body)), body]
    return b"".join(sink)


def unpacked_tables(
    data: bytes, shapes: Mapping[str, pa.Schema], fingerprint: bytes
) -> tuple[dict[str, pa.Table], int]:
    """The tables that have rows, and their revision; StateError where the bytes are of another kind."""
    if len(data) < _HEAD.size or data[:4] != MAGIC:
        raise StateError("the checkpoint holds no state of Millpond", remedy="use a new checkpoint")
    _, version, layout, revision = _HEAD.unpack_from(data)
    if version != VERSION:
        raise StateError(
            f"the checkpoint's state has format {version}, this Millpond reads format {VERSION}",
            remedy="use the Millpond that wrote it, or a new checkpoint",
        )
    if layout != fingerprint:
        raise StateError(
            "the checkpoint belongs to another query", remedy="use a new checkpoint for a changed query"
        )
    tables = {}
    at = _HEAD.size
    for name, schema in shapes.items():
        length = _LENGTH.unpack_from(data, at)[0] if at + _LENGTH.size <= len(data) else -1
        at += _LENGTH.size
        if not 0 <= length <= len(data) - at:
            raise _damaged()
        if length:
            tables[name] = _read_table(pa.py_buffer(memoryview(data)[at : at + length]), schema)
            at += length
    if at != len(data):
        raise _damaged()
    return tables, revision


def _read_table(buffer: pa.Buffer, schema: pa.Schema) -> pa.Table:
    try:
        batch = pa.ipc.read_record_batch(buffer, schema)
        batch.validate()
    except (pa.ArrowException, OSError, EOFError):
        raise _damaged() from None
    return pa.Table.from_batches([batch])


def _damaged() -> StateError:
    return StateError("the checkpoint's state is damaged", remedy="use a new checkpoint")


def _counts_added(slot: SlotProgram, parts: Sequence[pa.Table]) -> pa.Table:
    """Tables of counts added up, at a cost that is nearly that of copying the largest."""
    largest, *others = sorted((_by_key(part) for part in parts), key=lambda p: -p.num_rows)
    key = slot.stored_schema.names[0]
    for other in others:
        mine, theirs = largest.column(key).to_numpy(), other.column(key).to_numpy()
        at = np.searchsorted(mine, theirs)
        known = mine[np.minimum(at, len(mine) - 1)] == theirs
        counts = largest.column("n").to_numpy().copy()
        counts[at[known]] += other.column("n").to_numpy()[known]
        if (counts[at[known]] < 0).any():
            raise MillpondError("a value does not fit its type: a number of rows is beyond BIGINT")
        columns = []
        for field in slot.schema:
            ours = counts if field.name == "n" else largest.column(field.name).to_numpy()
            missing = other.column(field.name).to_numpy()[~known]
            columns.append(pa.array(np.insert(ours, at[~known], missing), field.type))
        largest = pa.Table.from_arrays(columns, schema=slot.schema)
    return largest


def _united(slot: SlotProgram, parts: Sequence[pa.Table]) -> pa.Table:
    """Tables of classes that were seen, each class once."""
    rows = pa.concat_tables(parts)
    _, first = np.unique(rows.column(slot.key[0]).to_numpy(), return_index=True)
    return rows if len(first) == rows.num_rows else rows.take(pa.array(first))


def _by_key(table: pa.Table) -> pa.Table:
    """The table in the order of its first column."""
    keys = table.column(0).to_numpy()
    return table if (keys[1:] > keys[:-1]).all() else table.take(pa.array(np.argsort(keys)))
