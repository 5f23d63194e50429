"""The timed engine without Spark: DuckDB reads the rows, which arrive in time order or out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from millpond.engines.timed.compile import compile_timed
from millpond.engines.timed.execute import BatchChange, advance
from millpond.engines.timed.micro_batch import advance_state
from millpond.engines.timed.program import InputProgram, TimedProgram
from millpond.engines.timed.reorder_buffer import END, release_rows
from millpond.engines.timed.row_chunks import ChunkCache
from millpond.engines.timed.sharding import divide_rows
from millpond.engines.timed.state import ShardState
from millpond.plan.needs import TimedPlan
from millpond.runtime.duckdb import get_process_duckdb
from millpond.runtime.sql import Dialect
from tests.support.local import arrow_table
from tests.support.memory_store import MemoryStore

Rows = Sequence[tuple[str, Mapping[str, Any]]]
_Row = TypeVar("_Row", bound=Mapping[str, Any])


class TimedLocal:
    """Processes batches of rows and collects the answer.

    ``add`` takes batches each of which is later than the ones before it; ``receive`` takes rows out of order,
    as a micro-batch on Spark does.
    """

    def __init__(
        self,
        plan: TimedPlan,
        relations: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        updates: bool = False,
        divide: bool = False,
    ) -> None:
        self.query = plan.query
        self._db = get_process_duckdb()
        program = compile_timed(plan, Dialect.DUCKDB, updates=updates, divide=divide)
        if relations is not None:
            program = program.with_relations(
                {
                    each.name: self.collect(each, relations[each.stream])
                    for each in program.inputs
                    if each.is_read
                }
            )
        self.program: TimedProgram = program
        self.state: dict[str, pa.Table] = {}
        self.recent: dict[str, pa.Table] = {}
        self.stores = [MemoryStore() for _ in range(program.shards)]
        self.cache = ChunkCache()
        self.emitted: Counter[tuple[Any, ...]] = Counter()
        self.groups: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._first = True

    @property
    def entries(self) -> int:
        """The number of partial matches, of remembered rows or groups of the answer, and of recent rows."""
        return sum(table.num_rows for table in (*self.state.values(), *self.recent.values()))

    def add(self, batch: Rows, now: int = 0) -> None:
        (rows,) = self._divide(batch)
        self._advance(rows, now)

    def receive(self, batch: Sequence[tuple[str, _Row]], *, ended: bool = False) -> list[tuple[str, _Row]]:
        """Process a micro-batch; returns its rows without the late ones.  ``ended``: the input ends."""
        times = {name: table.time for name, table in self.query.tables.items()}
        progress = {END: 0} if ended else {}
        watermark = self.watermark
        in_time = []
        for name, row in batch:
            moment = micros(row[times[name] or ""])
            progress[name] = max(progress.get(name, moment), moment)
            if moment >= watermark:
                in_time.append((name, row))
        for store, rows in zip(self.stores, self._divide(batch), strict=True):
            state = ShardState(self.program, store, self.cache)
            release = release_rows(self.program, state.clock, state.rows, rows, progress, 0.0)
            for change in advance_state(self._db, self.program, state, release):
                self._emit(change, first=state.revision == 1)
            self.state = dict(state.load_matches())
        return in_time

    @property
    def watermark(self) -> int:
        """The watermark after the last micro-batch that was received."""
        return ShardState(self.program, self.stores[0], self.cache).clock.watermark

    def _divide(self, batch: Rows) -> list[dict[str, pa.Table]]:
        """The rows of each shard, by input table."""
        inputs = [each for each in self.program.inputs if not each.is_relation]
        tables = {
            each.name: self.collect(each, [row for name, row in batch if name == each.stream])
            for each in inputs
        }
        return divide_rows(inputs, self.program.shards, tables)

    def _advance(self, inputs: Mapping[str, pa.Table], now: int) -> None:
        change = advance(self._db, self.program, self.state, inputs, self.recent, now)
        self._emit(change, self._first)
        self._first = False
        self.state = change.state
        self._keep_recent_rows(inputs, now)

    def _keep_recent_rows(self, inputs: Mapping[str, pa.Table], now: int) -> None:
        """Keep the rows that later ones can match within a window."""
        for each in self.program.inputs:
            if each.retention is not None and not each.is_relation:
                nothing = each.schema.empty_table()
                parts = [self.recent.get(each.name, nothing), inputs.get(each.name, nothing)]
                rows = pa.concat_tables(parts)
                self.recent[each.name] = rows.filter(pc.greater_equal(rows.column("t"), now - each.retention))

    def collect(self, each: InputProgram, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        table = arrow_table(self.query.tables[each.stream], rows)
        texts = ", ".join(f"{text} AS {name}" for name, text in each.columns)
        taken = self._db.query(f"SELECT {texts} FROM input", {"input": table})
        return self._db.query(each.reduce, {"batch": taken})

    def _emit(self, change: BatchChange, first: bool) -> None:
        for term in self.program.terms:
            tables = change.term_tables(self.program, term)
            found = self._db.query(term.changes_sql(None, first), tables)
            for row in found.to_pylist():
                values = tuple(row[c] for c in term.columns)
                if term.grouped:
                    self.groups.pop(values[: term.keys], None)
                    if not row["retracted"]:
                        self.groups[values[: term.keys]] = values
                else:
                    self.emitted[values] += row["w"] * (-1 if row["retracted"] else 1)

    def answer(self) -> Counter[tuple[Any, ...]]:
        return +self.emitted + Counter(self.groups.values())


def micros(timestamp: datetime) -> int:
    return int(timestamp.replace(tzinfo=UTC).timestamp()) * 1_000_000
