"""What is stored in the state store (RocksDB) for a query over application time, and how it is encoded.

All state is in one shard, as a map from integer keys to bytes:

    key           value
    BUFFER_KEY    the reorder buffer: a table of held rows for each input table of a stream, a table
                  ``progress`` (stream, latest timestamp, wall-clock time of its last advance), and the
                  watermark in the header
    MATCHES_KEY   with windows, a table of recent rows for each input table of a stream;
                  a table of partial matches for each set of streams that can wait for others, a result table
                  for each need whose result is remembered (groups, rows of DISTINCT), and the revision in
                  the header

``tables`` describes the columns.  Values are encoded by ``runtime.codec``: they carry a format version and
the fingerprint of the program, so that state of another version or query is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from millpond.engines.timed.program import TimedProgram
from millpond.engines.timed.reorder_buffer import ReorderBuffer, StreamProgress
from millpond.runtime.codec import decode_tables, encode_tables

BUFFER_KEY, MATCHES_KEY = -3, -1
# Format 1 had a fingerprint of other tables and columns.
_VERSION = 2
_PROGRESS = "progress"
_PROGRESS_SCHEMA = pa.schema([("stream", pa.string()), ("latest", pa.int64()), ("advanced", pa.float64())])


def encode_matches(program: TimedProgram, tables: Mapping[str, pa.Table], revision: int) -> bytes:
    """The partial matches and results, as they are stored."""
    return encode_tables(tables, program.state_schemas, program.fingerprint, revision, _VERSION)


def decode_matches(program: TimedProgram, data: bytes) -> tuple[dict[str, pa.Table], int]:
    """The partial matches and results, and the revision."""
    return decode_tables(data, program.state_schemas, program.fingerprint, _VERSION)


def encode_buffer(program: TimedProgram, buffer: ReorderBuffer) -> bytes:
    """The reorder buffer, as it is stored."""
    return _encode_rows(program, buffer.rows, buffer.progress, buffer.watermark)


def decode_buffer(program: TimedProgram, data: bytes) -> ReorderBuffer:
    """The reorder buffer, from its stored bytes."""
    return ReorderBuffer(*_decode_rows(program, data))


def encode_payload(program: TimedProgram, rows: Mapping[str, pa.Table], latest: Mapping[str, int]) -> bytes:
    """What a task sends to the reorder buffer: rows by input table, and the latest timestamp by stream."""
    return _encode_rows(program, rows, {stream: StreamProgress(t, 0.0) for stream, t in latest.items()}, 0)


def decode_payload(program: TimedProgram, data: bytes) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """What a task sent: rows by input table, and the latest timestamp by stream."""
    rows, progress, _ = _decode_rows(program, data)
    return rows, {stream: known.latest for stream, known in progress.items()}


def _buffer_schemas(program: TimedProgram) -> dict[str, pa.Schema]:
    inputs = {each.name: each.schema for each in program.inputs if not each.is_relation}
    return {**inputs, _PROGRESS: _PROGRESS_SCHEMA}


def _encode_rows(
    program: TimedProgram,
    rows: Mapping[str, pa.Table],
    progress: Mapping[str, StreamProgress],
    watermark: int,
) -> bytes:
    known = [{"stream": s, "latest": p.latest, "advanced": p.advanced} for s, p in progress.items()]
    tables = {**rows, _PROGRESS: pa.Table.from_pylist(known, schema=_PROGRESS_SCHEMA)}
    return encode_tables(tables, _buffer_schemas(program), program.fingerprint, watermark, _VERSION)


def _decode_rows(
    program: TimedProgram, data: bytes
) -> tuple[dict[str, pa.Table], dict[str, StreamProgress], int]:
    tables, watermark = decode_tables(data, _buffer_schemas(program), program.fingerprint, _VERSION)
    known = tables.pop(_PROGRESS, _PROGRESS_SCHEMA.empty_table()).to_pylist()
    progress = {row["stream"]: StreamProgress(row["latest"], row["advanced"]) for row in known}
    return tables, progress, watermark
