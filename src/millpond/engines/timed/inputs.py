"""Compiles how the rows of an occurrence get into their input table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from millpond.engines.timed.program import InputProgram
from millpond.engines.timed.sharding import SHARD, SHARDS
from millpond.engines.timed.tables import InputTable
from millpond.plan.needs import Measure
from millpond.plan.partial_matches import TimedNeed
from millpond.query.expressions import Ref
from millpond.query.model import NullRow
from millpond.query.time_order import find_time_column, find_time_columns
from millpond.query.trees import conjuncts, refs
from millpond.runtime.aggregates import sum_squares_sql
from millpond.runtime.arrow_ipc import schema_to_bytes, table_to_bytes
from millpond.runtime.duckdb import get_process_duckdb
from millpond.runtime.filters import column_sql, measure_sql, quoted_column, row_filter_sql
from millpond.runtime.sql import Dialect


def find_used_columns(timed: TimedNeed, alias: str) -> tuple[Ref, ...]:
    """The columns of an occurrence that are compared with other occurrences, or that the result needs."""
    part, closure = timed.part, timed.closure
    time_columns = set(find_time_columns(part.select).values())
    used = {ref for ref in timed.result_columns if ref.occurrence == alias}
    for conjunct in conjuncts(part.condition):
        mentioned = refs(conjunct)
        if len({r.occurrence for r in mentioned}) > 1 and not mentioned <= time_columns:
            used |= {r for r in mentioned if r.occurrence == alias}
    for n in closure.nodes:
        if n.ref.occurrence == alias and timed.is_value(n.ref):
            others = [m.ref for m in closure.nodes if m.ref.occurrence != alias and timed.is_value(m.ref)]
            if any(timed.bound(n.ref, o) or timed.bound(o, n.ref) for o in others):
                used.add(n.ref)
    return tuple(sorted(used, key=str))


def compile_input(
    timed: TimedNeed, table: InputTable, dialect: Dialect, shard_column: str | None = None
) -> InputProgram:
    """The program of an input, whose rows are divided into shards by a column; a relation has no rows yet."""
    part = timed.part
    derived = {c.name: c.derivation for c in part.select.occurrence(table.alias).table.derived}
    columns = _row_columns(timed, table, dialect)
    if shard_column is not None:
        columns.append((SHARD, _shard_sql(timed, Ref(table.alias, shard_column), dialect)))
    row_filter = row_filter_sql(part, table.alias, dialect)
    schema = _query_null_row(timed, table).schema
    is_constant = isinstance(part.select.occurrence(table.alias).table.block, NullRow)
    rows = _query_null_row(timed, table) if is_constant else schema.empty_table()
    return InputProgram(
        name=table.name,
        stream=table.stream,
        has_time=find_time_column(part.select, table.alias) is not None,
        names=tuple(None if ref.column in derived else ref.column for ref in table.columns),
        columns=tuple(
            (table.batch_column(name), f"CASE WHEN {row_filter} THEN {text} END") for name, text in columns
        ),
        reduce=_reduce_sql(timed, table, shard_column is not None),
        schema_bytes=schema_to_bytes(schema),
        rows=None if table.streaming else table_to_bytes(rows),
        retention=timed.retention(table.alias) if table.streaming else None,
        is_repeated=any(derivation is not None and derivation.repeated for derivation in derived.values()),
        is_constant=is_constant,
    )


def _row_columns(timed: TimedNeed, table: InputTable, dialect: Dialect) -> list[tuple[str, str]]:
    """What is taken from a row: the timestamp, the columns, and the arguments ``m…`` of measures."""
    time = find_time_column(timed.part.select, table.alias)
    micros = dialect.micros(quoted_column(dialect)(time)) if time is not None else "0"
    return [
        ("t", f"CAST({micros} AS BIGINT)"),
        *((f"x{i}", column_sql(timed.part, ref, dialect)) for i, ref in enumerate(table.columns)),
        *(
            (f"m{i}", measure_sql(measure.expression, measure.given, dialect))
            for i, measure in _own_measures(timed, table)
        ),
    ]


def _shard_sql(timed: TimedNeed, ref: Ref, dialect: Dialect) -> str:
    type_ = timed.part.select.occurrence(ref.occurrence).table.column(ref.column).type
    return f"CAST({dialect.shard_of([(quoted_column(dialect)(ref), type_)], SHARDS)} AS INT)"


def _own_measures(timed: TimedNeed, table: InputTable) -> Iterator[tuple[int, Measure]]:
    """The measures over columns of the occurrence, with their numbers."""
    for i, product in enumerate(timed.need.measures):
        measure = product.find_factor(table.alias)
        if measure is not None:
            yield i, measure


def _reduce_sql(timed: TimedNeed, table: InputTable, is_divided: bool) -> str:
    """The input table from a ``batch``; equal rows become one.  If it is divided, with the shard of a row."""
    names = ["t", *(f"x{i}" for i in range(len(table.columns))), *([SHARD] if is_divided else [])]
    keys = {name: table.batch_column(name) for name in names}
    selected = [f"{column} AS {name}" for name, column in keys.items()]
    if timed.need.counted:
        selected.append("count(*) AS n")
        for i, measure in _own_measures(timed, table):
            argument = table.batch_column(f"m{i}")
            total = f"sum({argument})" if measure.summed else "0"
            total = sum_squares_sql(argument) if measure.squared else total
            selected += [f"count({argument}) AS f{i}", f"{total} AS s{i}"]
    return (
        f"SELECT {', '.join(selected)} FROM batch WHERE {keys['t']} IS NOT NULL "
        f"GROUP BY {', '.join(keys.values())}"
    )


def _query_null_row(timed: TimedNeed, table: InputTable) -> pa.Table:
    """The input table of a row with NULL in all columns; a stream with time has no row without timestamp."""
    reduce = _reduce_sql(timed, table, is_divided=False)
    duck, columns = Dialect.DUCKDB, timed.part.select.occurrence(table.alias).table.all_columns
    row = ", ".join(f"CAST(NULL AS {duck.type_of(c.type)}) AS {duck.name_of(c.name)}" for c in columns)
    taken = ", ".join(
        f"{text} AS {table.batch_column(name)}" for name, text in _row_columns(timed, table, duck)
    )
    db = get_process_duckdb()
    return db.query(reduce, {"batch": db.query(f"SELECT {taken} FROM (SELECT {row})", {})})
