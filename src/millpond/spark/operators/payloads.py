"""What mappers send to shards: payloads, and rejected rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millpond.spark.sources.opened import REASON, RECORD

# The number of shards of a large synopsis.  It is part of the state's layout: never change it.
SHARDS = 32

PAYLOAD_SCHEMA = "shard INT, payload BINARY, stream STRING, reason STRING, record STRING"
_ARROW_SCHEMA = pa.schema(
    [
        ("shard", pa.int32()),
        ("payload", pa.binary()),
        ("stream", pa.string()),
        ("reason", pa.string()),
        ("record", pa.string()),
    ]
)


def build_payload_batch(payloads: Sequence[bytes], shards: Sequence[int] | None = None) -> pa.RecordBatch:
    """One payload for each of the ``shards``; by default, these are numbered from 0 on."""
    count = len(payloads)
    nothing = pa.nulls(count, pa.string())
    columns = [
        pa.array(range(count) if shards is None else shards, pa.int32()),
        pa.array(payloads, pa.binary()),
        nothing,
        nothing,
        nothing,
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
    return batch.filter(reasons.is_null()), [_build_rejected_batch(stream, bad)]


def _build_rejected_batch(stream: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rejected rows for shards that hold no state: those with a negative number."""
    count = rows.num_rows
    columns = [
        pa.array(-1 - (np.arange(count) % SHARDS), pa.int32()),
        pa.nulls(count, pa.binary()),
        pa.array([stream] * count, pa.string()),
        rows.column(REASON).cast(pa.string()),
        rows.column(RECORD).cast(pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)
