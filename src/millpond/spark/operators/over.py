"""Window functions on Spark: rows are sent to the shard of their partition, which computes the functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engines.over.execute import BEGINNING, advance, count_entries
from millpond.engines.over.program import CLOCK, HELD, ROWS, OverProgram
from millpond.runtime.codec import decode_tables, encode_tables
from millpond.runtime.row_kinds import LATE, RowKind
from millpond.spark.operators.block_input import BlockInput
from millpond.spark.operators.output import (
    build_progress_row,
    build_rejected_rows,
    build_report_row,
    build_result_rows,
)
from millpond.spark.operators.payloads import build_payload_batch, split_rejected
from millpond.spark.operators.shard import WHOLE, ShardProcessor, get_worker_duckdb

# The column with the number of the shard of a row.
SHARD = "_shard"


@dataclass(frozen=True)
class OverMapper:
    """Collects a task's rows for the shards, and the latest timestamp among them."""

    program: OverProgram

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        program = self.program
        parts: list[pa.RecordBatch] = []
        for batch in batches:
            good, rejected = split_rejected(program.stream, batch)
            yield from rejected
            parts.append(good)
        rows = pa.Table.from_batches(parts) if parts else None
        latest = None if rows is None or program.time is None else pc.max(rows.column("t")).as_py()
        yield _build_payloads(program, _divide_rows(program, rows), latest, ended=False)


@dataclass(frozen=True)
class OverBlockMapper:
    """Collects a task's rows of a block, whose operator reports how far it is; its notes pass through."""

    program: OverProgram

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        block, parts = BlockInput("t"), []
        for batch in batches:
            rows, notes = block.split(batch)
            yield from notes
            parts.append(rows)
        rows = pa.Table.from_batches(parts) if parts else None
        yield _build_payloads(self.program, _divide_rows(self.program, rows), block.latest, ended=False)


def _divide_rows(program: OverProgram, rows: pa.Table | None) -> list[pa.Table]:
    """The rows of each shard."""
    if rows is None:
        return [program.rows.empty_table()] * program.shards
    used = rows.filter(pc.is_valid(rows.column(SHARD)))  # others do not fulfil the condition
    number = pa.array(np.zeros(used.num_rows, np.int64))
    own = used.select([name for name in program.rows.names if name != "seq"])
    own = own.add_column(0, "seq", number).cast(program.rows)
    shards = used.column(SHARD)
    return [own.filter(pc.equal(shards, shard)) for shard in range(program.shards)]


@dataclass(frozen=True)
class OverEndMapper:
    """Tells all shards that no more input will come, when a row arrives on the end-of-input stream."""

    program: OverProgram

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if sum(batch.num_rows for batch in batches):
            empty = [self.program.rows.empty_table()] * self.program.shards
            yield _build_payloads(self.program, empty, None, ended=True)


def _build_payloads(
    program: OverProgram, tables: Sequence[pa.Table], latest: int | None, ended: bool
) -> pa.RecordBatch:
    schemas = program.payload_schemas
    progress = pa.table({"latest": [latest], "ended": [ended]}).cast(schemas[CLOCK])
    return build_payload_batch(
        [encode_tables({ROWS: rows, CLOCK: progress}, schemas, program.fingerprint, 0) for rows in tables]
    )


class OverProcessor(ShardProcessor):
    """Holds the reorder buffer, the kept rows and the summaries of the partitions of a shard.

    The rows of a block that another block reads can be earlier than the watermark by ``output_delay``
    microseconds; the processor then reports the progress of its output.
    """

    def __init__(
        self, program: OverProgram, width: int, types: Sequence[str], output_delay: int | None = None
    ) -> None:
        super().__init__(width, types)
        self.program = program
        self.output_delay = output_delay

    def process(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        program, db = self.program, get_worker_duckdb(1)
        data = self.get_value(WHOLE)
        state: Mapping[str, pa.Table] = {}
        revision = 0
        if data is not None:
            state, revision = decode_tables(data, program.state_schemas, program.fingerprint)
        sent = [decode_tables(each, program.payload_schemas, program.fingerprint)[0] for each in payloads]
        arrived = pa.concat_tables(
            [program.rows.empty_table(), *(each[ROWS] for each in sent if ROWS in each)]
        )
        progress = [row for each in sent for row in each[CLOCK].to_pylist()]
        latest = max((row["latest"] for row in progress if row["latest"] is not None), default=None)
        ended = any(row["ended"] for row in progress)
        change = advance(db, program, state, arrived, latest, ended)
        revision += 1
        data = encode_tables(change.state, program.state_schemas, program.fingerprint, revision)
        self.put_value(WHOLE, data)
        if change.late.num_rows:
            yield self._build_late_rows(change.late)
        for rows, retracted in ((change.retracted, True), (change.emitted, False)):
            if rows.num_rows:
                yield from build_result_rows(db, self._name_outputs(rows, retracted), revision)
        yield build_report_row(RowKind.STATE, count_entries(change.state), len(data))
        yield build_report_row(RowKind.BUFFERED, change.state[HELD].num_rows)
        if self.output_delay is not None and change.watermark != BEGINNING:
            yield build_progress_row(change.watermark - self.output_delay, ended)

    def _name_outputs(self, rows: pa.Table, retracted: bool) -> pa.Table:
        names = [f"o{i}" for i in range(rows.num_columns)]
        assert self.types is not None
        casts = ", ".join(
            f"CAST({name} AS {type_}) AS {name}" for name, type_ in zip(names, self.types, strict=True)
        )
        flag = "TRUE" if retracted else "FALSE"
        sql = f"SELECT {casts}, CAST(1 AS BIGINT) AS w, {flag} AS retracted FROM rows"
        return get_worker_duckdb(1).query(sql, {"rows": rows.rename_columns(names)})

    def _build_late_rows(self, late: pa.Table) -> pa.Table:
        """Late rows for the folder ``_rejected``, each with the columns that the query uses."""
        program = self.program
        reasons, records = [], []
        for row in late.to_pylist():
            timestamp = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row["t"])
            values = {name: row[f"c{i}"] for i, name in enumerate(program.names)}
            reasons.append(f"{LATE} the watermark had already passed {timestamp:%Y-%m-%d %H:%M:%S.%f} UTC")
            records.append(json.dumps({**values, program.time: timestamp.isoformat()}, default=str))
        stream = [program.stream] * late.num_rows
        return build_rejected_rows(pa.table({"stream": stream, "reason": reasons, "record": records}))
