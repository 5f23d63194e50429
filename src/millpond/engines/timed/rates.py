"""The rates of streams: how many rows have their timestamps in each second.

Seconds are those of the clock.  Rows of a second may arrive in several micro-batches, so the counts of the
seconds that may still get rows are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.runtime.codec import decode_tables, encode_tables

Ints = np.ndarray[Any, np.dtype[np.int64]]
_SECOND = 1_000_000
_COUNTS = pa.schema([("stream", pa.string()), ("second", pa.int64()), ("rows", pa.int64())])
_TOTALS = pa.schema(
    [("stream", pa.string()), *((name, pa.int64()) for name in ("rows", "first", "last", "peak", "excess"))]
)
_SCHEMAS = {"counts": _COUNTS, "totals": _TOTALS}


@dataclass(frozen=True)
class StreamRate:
    """All rows of a stream so far: their number, the first and the last second, and the fullest second.

    ``excess`` is the number of rows of the last micro-batch that were beyond the declared rate.
    """

    rows: int = 0
    first: int | None = None
    last: int | None = None
    peak: int = 0
    excess: int = 0

    @property
    def average(self) -> float:
        """The rows per second between the first and the last second."""
        return 0.0 if self.first is None or self.last is None else self.rows / (self.last - self.first + 1)


@dataclass(frozen=True)
class Rates:
    """The rate of each stream, and the counts of the seconds that may still get rows, by stream."""

    streams: Mapping[str, StreamRate]
    counts: pa.Table


def count_by_second(stream: str, times: pa.Array) -> pa.Table:
    """The rows of a stream in each second; ``times`` are in microseconds."""
    seconds = times.drop_null().to_numpy(zero_copy_only=False).astype(np.int64) // _SECOND
    if not len(seconds):
        return _COUNTS.empty_table()
    low, high = int(seconds.min()), int(seconds.max())
    if high - low < 4 * len(seconds) + 1024:
        rows = np.bincount(seconds - low)
        found = np.flatnonzero(rows)
        found, rows = found + low, rows[found]
    else:
        found, rows = np.unique(seconds, return_counts=True)
    return _build_counts(stream, found, rows)


def merge_rates(
    rates: Rates | None, arrived: pa.Table, declared: Mapping[str, int], delays: Mapping[str, int]
) -> Rates:
    """Add the rows that arrived in a micro-batch.

    ``declared`` are the declared rates.  ``delays`` say how many microseconds the rows of each stream may be
    out of order; the counts of older seconds are dropped.
    """
    known = rates or Rates({}, _COUNTS.empty_table())
    streams = dict(known.streams)
    kept = [_COUNTS.empty_table()]
    for stream in sorted({*streams, *arrived.column("stream").to_pylist()}):
        (old, before), (new, added) = (_select_stream(table, stream) for table in (known.counts, arrived))
        seconds, places = np.unique(np.concatenate([old, new]), return_inverse=True)
        earlier = np.bincount(places[: len(old)], before, len(seconds)).astype(np.int64)
        rows = earlier + np.bincount(places[len(old) :], added, len(seconds)).astype(np.int64)
        rate = streams[stream] = replace(streams.get(stream, StreamRate()), excess=0)
        if len(new):
            limit = declared.get(stream)
            excess = 0 if limit is None else np.maximum(rows - np.maximum(earlier, limit), 0).sum()
            rate = streams[stream] = StreamRate(
                rate.rows + int(added.sum()),
                min(int(new.min()), rate.first if rate.first is not None else int(new.min())),
                max(int(new.max()), rate.last if rate.last is not None else int(new.max())),
                max(int(rows.max()), rate.peak),
                int(excess),
            )
        assert rate.last is not None
        is_open = seconds >= rate.last - -(-delays.get(stream, 0) // _SECOND)
        kept.append(_build_counts(stream, seconds[is_open], rows[is_open]))
    return Rates(streams, pa.concat_tables(kept))


def encode_counts(tables: Iterable[pa.Table], fingerprint: bytes) -> bytes:
    """The counts of a task as a payload."""
    return encode_tables(
        {"counts": pa.concat_tables([_COUNTS.empty_table(), *tables])}, _SCHEMAS, fingerprint, 0
    )


def decode_counts(payloads: Iterable[bytes], fingerprint: bytes) -> pa.Table:
    """The counts in all payloads."""
    found = [decode_tables(data, _SCHEMAS, fingerprint)[0].get("counts") for data in payloads]
    return pa.concat_tables([_COUNTS.empty_table(), *(t for t in found if t is not None)])


def encode_rates(rates: Rates, fingerprint: bytes) -> bytes:
    """The rates, as they are stored."""
    rows = [{"stream": stream, **vars(rate)} for stream, rate in rates.streams.items()]
    tables = {"counts": rates.counts, "totals": pa.Table.from_pylist(rows, _TOTALS)}
    return encode_tables(tables, _SCHEMAS, fingerprint, 0)


def decode_rates(data: bytes, fingerprint: bytes) -> Rates:
    """The rates, from their stored bytes."""
    tables, _ = decode_tables(data, _SCHEMAS, fingerprint)
    rows = tables["totals"].to_pylist() if "totals" in tables else []
    streams = {row.pop("stream"): StreamRate(**row) for row in rows}
    return Rates(streams, tables.get("counts", _COUNTS.empty_table()))


def _build_counts(stream: str, seconds: Ints, rows: Ints) -> pa.Table:
    names = pa.array([stream] * len(seconds), pa.string())
    return pa.table([names, pa.array(seconds, pa.int64()), pa.array(rows, pa.int64())], schema=_COUNTS)


def _select_stream(counts: pa.Table, stream: str) -> tuple[Ints, Ints]:
    """The seconds and the rows of a stream."""
    found = counts.filter(pc.equal(counts.column("stream"), stream))
    return found.column("second").to_numpy(), found.column("rows").to_numpy()
