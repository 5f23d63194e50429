"""What is stored in the state store (RocksDB) for an exact query, and how it is encoded.

The state is divided into shards, and a shard is a map from integer keys to bytes:

    key           value
    WHOLE_KEY     a table for each slot that is not divided into chunks (in shard 0 only), and the revision
    0, 1, 2 …     a chunk of the others: a table for each slot, and the revision (in shard: chunk modulo the
                  number of shards)
    TOTALS_KEY    ``ShardTotals`` over the chunks of the shard, if there are chunks

The table of a slot s0 has the columns

    s0_k0 …       packed keys of class codes (``class_codes``)
    n             counted slots: the number of stream rows of the class
    filled0, total0 …  counted slots: for each measure, how many rows have a value, and the sum
    extreme       existence slots: which extreme the row is kept for (``slot_sql``)
    row           a struct of further columns of one stream row, if joins or results use them

Values are encoded by ``runtime.codec``: they carry a format version and the fingerprint of the program, so
that state of another version or query is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millpond.engines.exact.program import SlotProgram
from millpond.engines.exact.synopsis import Synopsis
from millpond.runtime.codec import decode_tables, encode_tables

WHOLE_KEY, TOTALS_KEY = -1, -2
_TOTALS = struct.Struct("<qqq")


class ShardTotals(NamedTuple):
    """The entries and bytes of all chunks of a shard, and its latest revision."""

    entries: int
    bytes: int
    revision: int


def encode_totals(totals: ShardTotals) -> bytes:
    """The totals of a shard, as they are stored."""
    return _TOTALS.pack(*totals)


def decode_totals(data: bytes) -> ShardTotals:
    """The totals of a shard, from their stored bytes."""
    return ShardTotals(*_TOTALS.unpack(data))


def encode_synopsis(
    synopsis: Synopsis,
    slots: Iterable[SlotProgram],
    fingerprint: bytes,
    revision: int = 0,
    chunk: int | None = None,
) -> bytes:
    """The synopsis as bytes.  If all rows belong to one ``chunk``, its number is left out."""
    return encode_tables(synopsis.tables, _schemas(slots, chunk), fingerprint, revision)


def decode_synopsis(
    data: bytes, slots: Iterable[SlotProgram], fingerprint: bytes, chunk: int | None = None
) -> tuple[Synopsis, int]:
    """The synopsis and its revision; raises StateError if another version or query wrote the bytes."""
    slots = list(slots)
    tables, revision = decode_tables(data, _schemas(slots, chunk), fingerprint)
    for slot in slots:
        if slot.chunk is not None and chunk is not None and slot.name in tables:
            table = tables[slot.name]
            numbers = pa.array(np.full(table.num_rows, chunk, np.int32))
            tables[slot.name] = table.append_column(slot.chunk, numbers).select(slot.schema.names)
    return Synopsis(tables), revision


def _schemas(slots: Iterable[SlotProgram], chunk: int | None) -> dict[str, pa.Schema]:
    return {slot.name: slot.schema if chunk is None else slot.stored_schema for slot in slots}
