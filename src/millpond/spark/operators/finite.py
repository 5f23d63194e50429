"""Finitely many rows that change, on Spark: a shard keeps those of subqueries and computes the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engines.finite.execute import apply_changes
from millpond.engines.finite.program import ANSWER, PLACE, FiniteProgram
from millpond.runtime.codec import decode_tables, encode_tables
from millpond.runtime.row_kinds import RowKind
from millpond.spark.operators.block_input import BlockInput
from millpond.spark.operators.output import build_report_row, build_result_rows
from millpond.spark.operators.payloads import build_payload_batch
from millpond.spark.operators.shard import WHOLE, ShardProcessor, get_worker_duckdb


@dataclass(frozen=True)
class FiniteMapper:
    """Collects the changes of one subquery; its notes pass through."""

    program: FiniteProgram
    name: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        program, block = self.program, BlockInput(None)
        schema = program.payload_schemas[self.name]
        parts: list[pa.RecordBatch] = []
        for batch in batches:
            rows, notes = block.split(batch)
            yield from notes
            parts.append(rows.select([name for name in schema.names if name != PLACE]))
        if parts:
            rows = pa.Table.from_batches(parts)
            rows = rows.append_column(PLACE, pa.array(np.arange(rows.num_rows))).cast(schema)
            data = encode_tables({self.name: rows}, program.payload_schemas, program.fingerprint, 0)
            yield build_payload_batch([data])


class FiniteProcessor(ShardProcessor):
    """Keeps the rows of the subqueries and the answer to them."""

    def __init__(self, program: FiniteProgram, width: int, types: Sequence[str]) -> None:
        super().__init__(width, types)
        self.program = program

    def process(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        program, db = self.program, get_worker_duckdb()
        data, revision = self.get_value(WHOLE), 0
        state: Mapping[str, pa.Table] = {}
        if data is not None:
            state, revision = decode_tables(data, program.state_schemas, program.fingerprint)
        sent = [decode_tables(each, program.payload_schemas, program.fingerprint)[0] for each in payloads]
        changes = {
            name: pa.concat_tables([schema.empty_table(), *(each[name] for each in sent if name in each)])
            for name, schema in program.payload_schemas.items()
        }
        change = apply_changes(db, program, state, changes)
        revision += 1
        data = encode_tables(change.state, program.state_schemas, program.fingerprint, revision)
        self.put_value(WHOLE, data)
        for rows, is_removed in ((change.removed, True), (change.added, False)):
            count = rows.num_rows
            weighed = rows.append_column("w", pa.array(np.ones(count, np.int64)))
            yield from build_result_rows(
                db, weighed.append_column("retracted", pa.array(np.full(count, is_removed))), revision
            )
        entries = sum(table.num_rows for name, table in change.state.items() if name != ANSWER)
        yield build_report_row(RowKind.STATE, entries, len(data))
