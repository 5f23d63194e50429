"""Watches the rates of streams on Spark: mappers count rows by second, one shard adds the counts up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from millpond.engines.timed.program import TimedProgram
from millpond.engines.timed.rates import (
    count_by_second,
    decode_counts,
    decode_rates,
    encode_counts,
    encode_rates,
    merge_rates,
)
from millpond.runtime.row_kinds import RowKind
from millpond.spark.operators.output import build_report_row
from millpond.spark.operators.payloads import build_payload_batch, split_rejected
from millpond.spark.operators.shard import WHOLE, ShardProcessor

# The shard that adds up the counts.
RATES_SHARD = 1_000_000
Mapper = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class RateMapper:
    """Counts a task's rows of one stream by second; another mapper collects the rows."""

    mapper: Mapper
    program: TimedProgram
    stream: str
    timestamp: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: list[pa.Table] = []

        def count(batch: pa.RecordBatch) -> pa.RecordBatch:
            good, _ = split_rejected(self.stream, batch)
            counts.append(count_by_second(self.stream, good.column(self.timestamp)))
            return batch

        yield from self.mapper(map(count, batches))
        yield build_payload_batch([encode_counts(counts, self.program.fingerprint)], [RATES_SHARD])


def process_rates(
    processor: ShardProcessor, program: TimedProgram, payloads: Sequence[bytes]
) -> Iterator[pa.Table]:
    """Add the counts of a micro-batch to those in the state store, and report the rate of each stream."""
    data = processor.get_value(WHOLE)
    known = None if data is None else decode_rates(data, program.fingerprint)
    declared = {c.stream: c.rate for c in program.time_columns if c.rate is not None}
    delays = {c.stream: c.delay for c in program.time_columns}
    arrived = decode_counts(payloads, program.fingerprint)
    rates = merge_rates(known, arrived, declared, delays)
    data = encode_rates(rates, program.fingerprint)
    processor.put_value(WHOLE, data)
    report = json.dumps({stream: asdict(rate) for stream, rate in rates.streams.items()})
    yield build_report_row(RowKind.RATES, 0).append_column("_record", pa.array([report]))
    yield build_report_row(RowKind.STATE, 0, len(data))
