"""The exact engine without Spark: DuckDB reads the rows, and a dictionary is the state store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from millpond.engines.exact.chunks import ChunkPolicy
from millpond.engines.exact.compile import compile_exact
from millpond.plan.synopses import ExactPlan
from millpond.query import types
from millpond.query.evaluate import answer
from millpond.query.model import Query, Table
from millpond.query.types import SqlType
from millpond.runtime.derive import render_derived
from millpond.runtime.duckdb import get_process_duckdb
from millpond.runtime.row_kinds import RowKind
from millpond.runtime.sql import Dialect
from millpond.spark.operators.exact import SynopsisMapper, SynopsisProcessor


def arrow_type(type_: SqlType) -> pa.DataType:
    """The type of local rows: timestamps have no time zone."""
    return pa.timestamp("us") if type_ is types.TIMESTAMP else types.arrow_type(type_)


def arrow_table(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows with their derived columns."""
    schema = pa.schema([(c.name, arrow_type(c.type)) for c in table.columns])
    given = pa.Table.from_pylist([dict(r) for r in rows], schema=schema)
    return get_process_duckdb().query(render_derived(table, "rows"), {"rows": given})


class FakeState:
    """The methods of Spark's map state that the operators use."""

    def __init__(self) -> None:
        self.values: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return self.values.get(key)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self.values[key] = value


class FakeHandle:
    def __init__(self, state: FakeState) -> None:
        self._state = state

    def getMapState(self, *_: Any) -> FakeState:
        return self._state


class Local:
    """Processes batches of rows with a compiled plan, and collects the answer.

    ``types`` are the DuckDB types of the result; None leaves them as DuckDB infers them.
    """

    def __init__(
        self, plan: ExactPlan, chunk_policy: ChunkPolicy | None = None, types: Sequence[str] | None = None
    ) -> None:
        self.query = plan.query
        self.compiled = compile_exact(plan, native_sets=False, chunk_policy=chunk_policy)
        self.types = types
        self.shards: dict[int, FakeState] = {}
        self.entries = 0
        self.emitted: Counter[tuple[Any, ...]] = Counter()
        self.groups: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.last_revision = 0
        self._seen: dict[str, list[Mapping[str, Any]]] = {name: [] for name in self.query.tables}
        self._db = get_process_duckdb()

    @property
    def state_rows(self) -> int:
        """The rows in the state store, as Spark would count them."""
        return sum(len(state.values) for state in self.shards.values())

    def add(self, batch: Sequence[tuple[str, Mapping[str, Any]]], tasks: int = 1) -> None:
        """Process a micro-batch, with so many tasks per stream."""
        program = self.compiled.program
        for name, row in batch:
            if name in self._seen:
                self._seen[name].append(row)
        if not program.terms:
            return
        frames: list[pd.DataFrame] = []
        for stream in self.compiled.streams() or list(self.query.tables)[:1]:
            rows = [row for name, row in batch if name == stream]
            for task in range(tasks):
                taken = self._ingest(stream, rows[task::tasks])
                for part in SynopsisMapper(program, stream)(taken):
                    frames.append(part.to_pandas())
        self.entries = 0
        for shard, payloads in pd.concat(frames).groupby("shard"):
            self._keep(int(shard), payloads)

    def _ingest(self, stream: str, rows: Sequence[Mapping[str, Any]]) -> list[pa.RecordBatch]:
        if stream not in self.compiled.streams():
            return []
        where, columns = self.compiled.ingest(stream, Dialect.DUCKDB)
        texts = ", ".join(f"{text} AS {name}" for name, text in columns)
        table = arrow_table(self.query.tables[stream], rows)
        coded = self._db.query(f"SELECT {texts} FROM input WHERE {where}", {"input": table})
        return list(coded.to_batches())

    def _keep(self, shard: int, payloads: pd.DataFrame) -> None:
        processor = SynopsisProcessor(self.compiled.program, len(self.query.columns), self.types)
        processor.init(FakeHandle(self.shards.setdefault(shard, FakeState())))  # type: ignore[arg-type]
        for frame in processor.handleInputRows((shard,), iter([payloads]), None):
            for row in pa.Table.from_pandas(frame, preserve_index=False).to_pylist():
                if row["_kind"] == RowKind.STATE:
                    self.entries += row["_entries"]
                elif row["_kind"] == RowKind.RESULT:
                    self._emit(row)

    def _emit(self, row: Mapping[str, Any]) -> None:
        values = tuple(row[f"o{i}"] for i in range(len(self.query.columns)))
        term = self.compiled.program.terms[0]
        if term.grouped:
            assert row["_revision"] >= self.last_revision or term.chunked
            self.last_revision = row["_revision"]
            key = values[: term.keys]
            self.groups.pop(key, None)
            if not row["_retracted"]:
                self.groups[key] = values
        else:
            self.emitted[values] += row["_weight"] * (-1 if row["_retracted"] else 1)

    def answer(self) -> Counter[tuple[Any, ...]]:
        """The rows emitted so far; of each group the latest.  Terms that Spark runs are evaluated naively."""
        native = Query(self.compiled.native, self.query.columns)
        return +self.emitted + Counter(self.groups.values()) + answer(native, self._seen)
