"""State as bytes: a header with the version and a fingerprint, then Arrow tables."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pyarrow as pa

from millpond.errors import MillpondError

# What the bytes of a synopsis begin with; the version changes with their meaning.
MAGIC = b"mill"


VERSION = 1


_HEAD = struct.Struct("<4sH16sq")


_LENGTH = struct.Struct("<q")


class StateError(MillpondError):
    """Kept state that this program cannot read."""


def encode_tables(
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


def decode_tables(
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
