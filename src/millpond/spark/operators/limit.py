"""LIMIT without ORDER BY: any first rows of the answer, counted in the state store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.runtime.arrow_ipc import table_from_bytes, table_to_bytes
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.spark.operators.block_input import BlockInput
from millpond.spark.operators.output import build_report_row, build_result_rows
from millpond.spark.operators.payloads import build_payload_batch
from millpond.spark.operators.shard import WHOLE, ShardProcessor, get_worker_duckdb


@dataclass(frozen=True)
class LimitMapper:
    """Sends the first results of a task; other rows pass through."""

    limit: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        answer = BlockInput(None)
        parts: list[pa.RecordBatch] = []
        for batch in batches:
            rows, notes = answer.split(batch)
            yield from notes
            taken = sum(part.num_rows for part in parts)
            if taken < self.limit and rows.num_rows:
                parts.append(rows.slice(0, self.limit - taken).drop_columns([KIND, NOTE]))
        if parts:
            yield build_payload_batch([table_to_bytes(pa.Table.from_batches(parts))])


class LimitProcessor(ShardProcessor):
    """Counts the rows that were emitted, and emits no more than ``limit``."""

    def __init__(self, limit: int, width: int) -> None:
        super().__init__(width, None)
        self.limit = limit

    def process(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        data = self.get_value(WHOLE)
        count = 0 if data is None else int.from_bytes(data, "little")
        for rows in map(table_from_bytes, payloads):
            taken = rows.slice(0, self.limit - count)
            count += taken.num_rows
            weighed = taken.append_column("w", pa.array(np.ones(taken.num_rows, np.int64)))
            weighed = weighed.append_column("retracted", pa.array(np.zeros(taken.num_rows, np.bool_)))
            yield from build_result_rows(get_worker_duckdb(), weighed, 1)
        data = count.to_bytes(8, "little")
        self.put_value(WHOLE, data)
        yield build_report_row(RowKind.STATE, 0, len(data))  # a counter is no entry
