"""Runs window functions without Spark: micro-batches through the engine, and the consumer in DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from millpond.analysis.verdict import Verdict
from millpond.engines.over.compile import compile_over, find_gap
from millpond.engines.over.execute import BEGINNING, advance, count_entries
from millpond.plan.over import find_over_delay
from millpond.query.evaluate import compile_condition
from millpond.query.model import Query, Select, Subquery, Table
from millpond.query.trace import find_used_columns
from millpond.runtime.codec import decode_tables, encode_tables
from millpond.runtime.derive import derive_each
from millpond.runtime.duckdb import DuckDb, get_process_duckdb
from millpond.runtime.query_sql import evaluate_worlds
from millpond.runtime.sql import Dialect, condition_sql, expression_sql

Row = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1)
D = Dialect.DUCKDB


def answer_at_once(query: Query, rows: Sequence[Row]) -> Counter[Any]:
    """The answer to all rows, by DuckDB on the whole query."""
    (table,) = _declared(query)
    return evaluate_worlds(query, [{table.name: list(rows)}])[0]


def run_in_batches(verdict: Verdict, batches: Sequence[Sequence[Row]]) -> tuple[Counter[Any], int, int]:
    """The answer that micro-batches leave, the largest state, and the number of late rows."""
    chain = LocalOver(verdict)
    answer: Counter[Any] = Counter()
    most = 0
    for number, rows in enumerate([*batches, []]):
        latest = max((_micros(row, chain.declared) for row in rows), default=None)
        change = chain.advance(rows, latest, ended=number == len(batches))
        most = max(most, chain.entries)
        for found, sign in ((change.added, 1), (change.removed, -1)):
            for row in found:
                answer[tuple(row.values())] += sign
    assert min(answer.values(), default=0) >= 0
    return +answer, most, chain.late


@dataclass(frozen=True)
class LocalChange:
    """What a micro-batch changes: results, and the timestamp before which all of them are out."""

    added: list[dict[str, Any]]
    removed: list[dict[str, Any]]
    progress: int | None


class LocalOver:
    """Window functions, and those of the subquery that they read, as a chain of operators."""

    def __init__(self, verdict: Verdict) -> None:
        plan = verdict.over
        assert plan is not None and find_gap(plan) is None, plan and find_gap(plan)
        self.plan = plan
        self.table = plan.block.base
        self.used = [
            c.name for c in self.table.columns if c.name in find_used_columns(plan.select, plan.alias)
        ]
        self.program = compile_over(plan, self.used)
        is_chain = isinstance(self.table.block, Subquery)
        self.below = LocalOver(verdict.blocks[self.table.name]) if is_chain else None
        self.db = get_process_duckdb()
        self._state: dict[str, pa.Table] = {}
        self._late = self._revision = 0
        self._progress: int | None = None

    @property
    def declared(self) -> Table:
        return self.table if self.below is None else self.below.declared

    @property
    def entries(self) -> int:
        """The entries of all operators together."""
        return count_entries(self._state) + (0 if self.below is None else self.below.entries)

    @property
    def late(self) -> int:
        return self._late + (0 if self.below is None else self.below.late)

    def advance(self, rows: Sequence[Row], latest: int | None, ended: bool) -> LocalChange:
        """Process rows of the declared stream, or the end of the input."""
        program, table, plan = self.program, self.table, self.plan
        if self.below is not None:
            change = self.below.advance(rows, latest, ended)
            assert not change.removed
            rows, latest = change.added, change.progress
            if ended:
                latest = max([*(_micros(row, table) for row in rows), *([] if latest is None else [latest])])
        good = [d for each in derive_each(table, rows) for d in each]
        passes = compile_condition(plan.block.where, {table.name: 0})
        good = [row for row in good if passes([row]) is True]
        values: dict[str, list[Any]] = {"seq": [0] * len(good), "t": [_micros(row, table) for row in good]}
        for i, name in enumerate(program.names):
            values[f"c{i}"] = [row[name] for row in good]
        arrived = pa.table({n: pa.array(v, program.rows.field(n).type) for n, v in values.items()})
        change_of_state = advance(
            self.db, program, self._state, arrived, latest if table.time else None, ended
        )
        self._revision += 1
        data = encode_tables(
            change_of_state.state, program.state_schemas, program.fingerprint, self._revision
        )
        self._state = decode_tables(data, program.state_schemas, program.fingerprint)[0]
        self._late += change_of_state.late.num_rows
        added, removed = (self._consume(t) for t in (change_of_state.emitted, change_of_state.retracted))
        self._check_progress(change_of_state.emitted)
        delay = find_over_delay(plan)
        if delay is not None and change_of_state.watermark != BEGINNING:
            self._progress = change_of_state.watermark - delay
        return LocalChange(added, removed, self._progress)

    def _consume(self, found: pa.Table) -> list[dict[str, Any]]:
        names = [*self.used, *(need.function.name for need in self.plan.needs)]
        rows = _consume(self.db, self.plan.select, found.rename_columns(names), self.plan.alias)
        return [dict(zip(self.plan.query.columns, row, strict=True)) for row in rows]

    def _check_progress(self, emitted: pa.Table) -> None:
        """No row may come that is earlier than the progress that was reported before."""
        if self._progress is None or self.table.time not in self.used or not emitted.num_rows:
            return
        times = emitted.column(self.used.index(self.table.time)).cast(pa.int64()).to_pylist()
        assert min(times) >= self._progress, f"a row at {min(times)} after {self._progress}"


def cut_at_random(rng: random.Random, rows: Sequence[Row]) -> list[list[Row]]:
    """The rows in batches of random sizes."""
    batches: list[list[Row]] = []
    rest = list(rows)
    while rest:
        size = rng.choice([0, 1, 1, 2, 5, 20])
        batches.append(rest[:size])
        rest = rest[size:]
    return batches


def _declared(query: Query) -> list[Table]:
    return list(query.declared_tables.values())


def _micros(row: Row, table: Table) -> int:
    return 0 if table.time is None else int((row[table.time] - _EPOCH).total_seconds() * 1_000_000)


def _consume(db: DuckDb, select: Select, rows: pa.Table, alias: str) -> list[tuple[Any, ...]]:
    """The rows of the select over the results of window functions."""
    if not rows.num_rows:
        return []
    local = [
        pa.field(f.name, pa.timestamp("us") if pa.types.is_timestamp(f.type) else f.type) for f in rows.schema
    ]
    text = "rows"
    available = set(rows.column_names)
    for column in select.occurrence(alias).table.derived:
        derivation = column.derivation
        assert derivation is not None
        arguments = set(derivation.arguments) or {select.occurrence(alias).table.time or ""}
        if arguments <= available:
            text = f"(SELECT *, {derivation.duckdb} AS {D.name_of(column.name)} FROM {text})"
            available.add(column.name)
    items = ", ".join(
        f"{expression_sql(i.expression, lambda r: D.name_of(r.column), D)} AS o{n}"
        for n, i in enumerate(select.items)
    )
    where = condition_sql(select.where, lambda r: D.name_of(r.column), D)
    found = db.query(f"SELECT {items} FROM {text} WHERE {where}", {"rows": rows.cast(pa.schema(local))})
    return [tuple(row.values()) for row in found.to_pylist()]
