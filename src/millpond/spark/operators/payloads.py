"""What mappers send to shards: payloads, and the notes that pass through (rejected rows, reports)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from millpond.runtime.row_kinds import RowKind
from millpond.spark.sources.opened import REASON, RECORD

# The number of shards of a large synopsis.  It is part of the state's layout: never change it.
SHARDS = 32

PAYLOAD_SCHEMA = (
    "shard INT, payload BINARY, kind TINYINT, entries BIGINT, bytes BIGINT, stream STRING, reason STRING, "
    "record STRING"
)
_NOTE_SCHEMA = pa.schema(
    [
        ("kind", pa.int8()),
        ("entries", pa.int64()),
        ("bytes", pa.int64()),
        ("stream", pa.string()),
        ("reason", pa.string()),
        ("record", pa.string()),
    ]
)
_ARROW_SCHEMA = pa.schema([("shard", pa.int32()), ("payload", pa.binary()), *_NOTE_SCHEMA])


def build_payload_batch(payloads: Sequence[bytes], shards: Sequence[int] | None = None) -> pa.RecordBatch:
    """One payload for each of the ``shards``; by default, these are numbered from 0 on."""
    count = len(payloads)
    columns = [
        pa.array(range(count) if shards is None else shards, pa.int32()),
        pa.array(payloads, pa.binary()),
        *(pa.nulls(count, field.type) for field in _NOTE_SCHEMA),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


def split_rejected(stream: str, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[pa.RecordBatch]]:
    """The good rows of a batch, and its rejected rows in the form in which they pass through the shards.

    The second is empty if no row is rejected.
    """
    if REASON not in batch.schema.names:
        return batch, []
    reasons = batch.column(REASON)
    if reasons.null_count == len(reasons):
        return batch, []
    bad = batch.filter(reasons.is_valid())
    count = bad.num_rows
    notes = {
        "kind": pa.array(np.full(count, RowKind.REJECTED, np.int8)),
        "stream": pa.array([stream] * count, pa.string()),
        "reason": bad.column(REASON),
        "record": bad.column(RECORD),
    }
    return batch.filter(reasons.is_null()), [build_note_batch(notes, count)]


def build_note_batch(notes: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
    """Notes for shards that hold no state: those with a negative number.  Absent columns are NULL."""
    columns = [
        notes[field.name].cast(field.type) if field.name in notes else pa.nulls(count, field.type)
        for field in _NOTE_SCHEMA
    ]
    shards = pa.array(-1 - (np.arange(count) % SHARDS), pa.int32())
    return pa.RecordBatch.from_arrays([shards, pa.nulls(count, pa.binary()), *columns], schema=_ARROW_SCHEMA)
