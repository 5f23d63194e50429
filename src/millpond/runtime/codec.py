"""State as bytes: a header with a format version and a fingerprint, then Arrow tables.

The header is the magic number, the format version, the fingerprint of the program that wrote it, and a
number of the writer's choice (a revision, or a timestamp).  Each table follows as its length and an Arrow
record batch without its schema; a table without rows has length 0.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pyarrow as pa

from millpond.errors import MillpondError

MAGIC = b"mill"
# The format version of state, unless an engine has its own.
VERSION = 1
_HEAD = struct.Struct("<4sH16sq")
_LENGTH = struct.Struct("<q")


class StateError(MillpondError):
    """The state in a checkpoint cannot be read."""


def encode_tables(
    tables: Mapping[str, pa.Table],
    schemas: Mapping[str, pa.Schema],
    fingerprint: bytes,
    revision: int,
    version: int = VERSION,
) -> bytes:
    """The tables as bytes, in the order of ``schemas``; a table without rows may be absent."""
    sink = [_HEAD.pack(MAGIC, version, fingerprint, revision)]
    for name, schema in schemas.items():
        table = tables.get(name)
        if table is None or not table.num_rows:
            sink.append(_LENGTH.pack(0))
            continue
        batch = table.select(schema.names).combine_chunks().to_batches()[0]
        body = batch.serialize().to_pybytes()
        sink += [_LENGTH.pack(len(body)), body]
    return b"".join(sink)


def decode_tables(
    data: bytes, schemas: Mapping[str, pa.Schema], fingerprint: bytes, version: int = VERSION
) -> tuple[dict[str, pa.Table], int]:
    """The tables that have rows, and the revision.

    Raises StateError if the bytes are damaged, or of another version or program.
    """
    if len(data) < _HEAD.size or data[:4] != MAGIC:
        raise StateError("the checkpoint holds no state of Millpond", remedy="use a new checkpoint")
    _, found, writer, revision = _HEAD.unpack_from(data)
    if found != version:
        raise StateError(
            f"the checkpoint's state has format {found}, this Millpond reads format {version}",
            remedy="use the Millpond that wrote it, or a new checkpoint",
        )
    if writer != fingerprint:
        raise StateError(
            "the checkpoint belongs to another query, or another version of Millpond wrote it",
            remedy="use a new checkpoint, or the Millpond that wrote it",
        )
    tables = {}
    at = _HEAD.size
    for name, schema in schemas.items():
        length = _LENGTH.unpack_from(data, at)[0] if at + _LENGTH.size <= len(data) else -1
        at += _LENGTH.size
        if not 0 <= length <= len(data) - at:
            raise _damage_error()
        if length:
            tables[name] = _decode_table(pa.py_buffer(memoryview(data)[at : at + length]), schema)
            at += length
    if at != len(data):
        raise _damage_error()
    return tables, revision


def _decode_table(buffer: pa.Buffer, schema: pa.Schema) -> pa.Table:
    try:
        batch = pa.ipc.read_record_batch(buffer, schema)
        batch.validate()
    except (pa.ArrowException, OSError, EOFError):
        raise _damage_error() from None
    return pa.Table.from_batches([batch])


def _damage_error() -> StateError:
    return StateError("the checkpoint's state is damaged", remedy="use a new checkpoint")
