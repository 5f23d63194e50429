"""Watches declared cardinalities on Spark: mappers take hashes of values, one shard merges them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from millpond.engines.timed.cardinalities import (
    Hashes,
    decode_hashes,
    encode_hashes,
    estimate_values,
    merge_hashes,
    take_hashes,
)
from millpond.engines.timed.program import TimedProgram
from millpond.query.model import Table
from millpond.runtime.row_kinds import RowKind
from millpond.runtime.sql import Dialect
from millpond.spark.operators.output import build_report_row
from millpond.spark.operators.payloads import build_payload_batch, split_rejected
from millpond.spark.operators.rates import Mapper
from millpond.spark.operators.shard import WHOLE, ShardProcessor

# The shard that merges the hashes.
CARDINALITIES_SHARD = 1_000_001
_HASH = "_hash_"


def list_hash_columns(table: Table) -> list[tuple[str, str]]:
    """The hashes of the columns with a declared cardinality, as names and Spark SQL."""
    columns = []
    for i, name in enumerate(table.cardinalities):
        column = Dialect.SPARK.name_of(name)
        columns.append((f"{_HASH}{i}", f"CASE WHEN {column} IS NOT NULL THEN xxhash64({column}) END"))
    return columns


@dataclass(frozen=True)
class CardinalityMapper:
    """Takes the hashes of a task's values of columns with a declared cardinality, beside another mapper."""

    mapper: Mapper
    program: TimedProgram
    stream: str
    columns: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: list[Hashes] = []

        def take(batch: pa.RecordBatch) -> pa.RecordBatch:
            good, _ = split_rejected(self.stream, batch)
            for i, column in enumerate(self.columns):
                found.append(take_hashes((self.stream, column), good.column(f"{_HASH}{i}")))
            return batch

        yield from self.mapper(map(take, batches))
        data = encode_hashes(merge_hashes(found), self.program.fingerprint)
        yield build_payload_batch([data], [CARDINALITIES_SHARD])


def process_cardinalities(
    processor: ShardProcessor, program: TimedProgram, payloads: Sequence[bytes]
) -> Iterator[pa.Table]:
    """Merge the hashes of a micro-batch with those in the state store, and report the numbers of values."""
    known = processor.get_value(WHOLE)
    every = [*payloads, *([] if known is None else [known])]
    merged = merge_hashes(decode_hashes(each, program.fingerprint) for each in every)
    data = encode_hashes(merged, program.fingerprint)
    processor.put_value(WHOLE, data)
    report = json.dumps([[*column, count] for column, count in estimate_values(merged).items()])
    yield build_report_row(RowKind.CARDINALITIES, 0).append_column("_record", pa.array([report]))
    yield build_report_row(RowKind.STATE, 0, len(data))
