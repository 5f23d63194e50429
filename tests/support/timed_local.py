"""The executor for queries in time without Spark: DuckDB takes the rows, batches come in time order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from millpond.engines.timed.compile import compile_timed
from millpond.engines.timed.execute import Advance, advance
from millpond.engines.timed.program import FeedProgram, TimedProgram
from millpond.plan.needs import TimedPlan
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.sql import Dialect
from tests.support.local import arrow_table

Rows = Sequence[tuple[str, Mapping[str, Any]]]


class TimedLocal:
    """Feeds batches of rows, each later than those before it, and keeps what was emitted."""

    def __init__(
        self, plan: TimedPlan, relations: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
    ) -> None:
        self.query = plan.query
        self._engine = DuckDb()
        program = compile_timed(plan, Dialect.DUCKDB)
        if relations is not None:
            found = {
                feed.name: self._gathered(feed, relations[feed.stream])
                for feed in program.feeds
                if feed.rows is not None
            }
            program = compile_timed(plan, Dialect.DUCKDB, found)
        self.program: TimedProgram = program
        self.kept: dict[str, pa.Table] = {}
        self.emitted: Counter[tuple[Any, ...]] = Counter()
        self.groups: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._first = True

    @property
    def entries(self) -> int:
        """The partial matches that wait, and what is remembered of the answer."""
        return sum(table.num_rows for table in self.kept.values())

    def add(self, batch: Rows, now: int = 0) -> None:
        feeds = {
            feed.name: self._gathered(feed, [row for name, row in batch if name == feed.stream])
            for feed in self.program.feeds
            if feed.rows is None
        }
        step = advance(self._engine, self.program, self.kept, feeds, now)
        self._emit(step)
        self.kept = step.kept

    def _gathered(self, feed: FeedProgram, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        table = arrow_table(self.query.tables[feed.stream], rows)
        texts = ", ".join(f"{text} AS {name}" for name, text in feed.columns)
        taken = self._engine.query(f"SELECT {texts} FROM input", {"input": table})
        return self._engine.query(feed.reduce, {"batch": taken}).cast(feed.schema)

    def _emit(self, step: Advance) -> None:
        for term in self.program.terms:
            tables = step.tables(self.program, self.kept, term)
            found = self._engine.query(term.changes_sql(None, self._first), tables)
            for row in found.to_pylist():
                values = tuple(row[c] for c in term.columns)
                if term.grouped:
                    self.groups.pop(values[: term.keys], None)
                    if not row["retracted"]:
                        self.groups[values[: term.keys]] = values
                else:
                    self.emitted[values] += row["w"] * (-1 if row["retracted"] else 1)
        self._first = False

    def answer(self) -> Counter[tuple[Any, ...]]:
        return +self.emitted + Counter(self.groups.values())


def micros(moment: datetime) -> int:
    return int(moment.replace(tzinfo=UTC).timestamp()) * 1_000_000
