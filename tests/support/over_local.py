"""Runs window functions without Spark: micro-batches through the engine, and the consumer in DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from millpond.analysis.verdict import Verdict
from millpond.engines.over.compile import compile_over, find_gap
from millpond.engines.over.execute import advance, count_entries
from millpond.query.evaluate import compile_condition
from millpond.query.model import Query, Select, Table
from millpond.query.trace import find_used_columns
from millpond.runtime.codec import decode_tables, encode_tables
from millpond.runtime.derive import derive_each
from millpond.runtime.duckdb import DuckDb
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
    plan = verdict.over
    assert plan is not None and find_gap(plan) is None, plan and find_gap(plan)
    select, table = plan.select, plan.block.base
    used = [c.name for c in table.columns if c.name in find_used_columns(select, plan.alias)]
    program = compile_over(plan, used)
    db = DuckDb()
    state: dict[str, pa.Table] = {}
    answer: Counter[Any] = Counter()
    most = late = 0
    for number, rows in enumerate([*batches, []]):
        good = [d for each in derive_each(table, rows) for d in each]
        passes = compile_condition(plan.block.where, {table.name: 0})
        good = [row for row in good if passes([row]) is True]
        values: dict[str, list[Any]] = {"seq": [0] * len(good), "t": [_micros(row, table) for row in good]}
        for i, name in enumerate(program.names):
            values[f"c{i}"] = [row[name] for row in good]
        arrived = pa.table({n: pa.array(v, program.rows.field(n).type) for n, v in values.items()})
        latest = max((_micros(row, table) for row in rows), default=None) if table.time else None
        change = advance(db, program, state, arrived, latest, number == len(batches))
        data = encode_tables(change.state, program.state_schemas, program.fingerprint, number)
        state = decode_tables(data, program.state_schemas, program.fingerprint)[0]
        most, late = max(most, count_entries(state)), late + change.late.num_rows
        names = [*used, *(need.function.name for need in plan.needs)]
        for found, sign in ((change.emitted, 1), (change.retracted, -1)):
            for row in _consume(db, select, found.rename_columns(names), plan.alias):
                answer[row] += sign
    assert min(answer.values(), default=0) >= 0
    return +answer, most, late


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
