"""A whole query, with its blocks, as DuckDB SQL; evaluates it on many inputs at once.

An input is a *world*: rows of the declared tables.  Every table has a column with the number of its
world, and rows of different worlds never meet, so that one statement answers the query in all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from millpond.errors import MillpondError
from millpond.query.evaluate import Row
from millpond.query.expressions import Aggregate, Expr, Literal, Ref
from millpond.query.model import (
    Exists,
    Frame,
    FrameUnit,
    Occurrence,
    Query,
    Select,
    SortKey,
    Subquery,
    Table,
    Term,
    Windowed,
    WindowFunction,
)
from millpond.query.trees import find_aggregates, is_aggregate, substitute
from millpond.query.types import Family
from millpond.query.window_functions import WINDOW_FUNCTIONS
from millpond.runtime.row_queries import RowTable, UncomputableError, local_type, query_rows
from millpond.runtime.sql import Dialect, all_of, condition_sql, expression_sql, literal_sql

World = Mapping[str, Sequence[Row]]

_WORLD = "_millpond_world"
_WORLDS = "_millpond_worlds"
_DUCKDB = Dialect.DUCKDB
# Aggregates that have another name in DuckDB; approximate ones are computed exactly.
_AGGREGATES = {
    "PERCENTILE": "quantile_cont",
    "PERCENTILE_DISC": "quantile_disc",
    "PERCENTILE_APPROX": "quantile_disc",
    "APPROX_COUNT_DISTINCT": "COUNT",
}


def evaluate_worlds(query: Query, worlds: Sequence[World]) -> list[Counter[tuple[Any, ...]]]:
    """The answer of a query in each world, as a bag of rows.

    Raises UncomputableError if DuckDB cannot compute the query, or not for these rows.
    """
    tables = {_WORLDS: RowTable(((_WORLD, "BIGINT"),), [{_WORLD: i} for i in range(len(worlds))])}
    for name, table in query.declared_tables.items():
        repeated = [
            (i, *_count_copies(copies))
            for i, world in enumerate(worlds)
            for _, copies in groupby(world.get(name, ()), key=id)
        ]
        rows = [{**row, _WORLD: i} for i, row, _ in repeated]
        counts = [count for _, _, count in repeated]
        columns = [(c.name, local_type(c.type)) for c in table.columns]
        is_repeated = max(counts, default=1) > 1
        tables[f"rows of {name}"] = RowTable(
            (*columns, (_WORLD, "BIGINT")), rows, counts if is_repeated else None
        )
    try:
        _, found = query_rows(f"SELECT *, COUNT(*) FROM ({render_query(query)}) GROUP BY ALL", tables)
    except MillpondError as error:
        raise UncomputableError(str(error)) from error
    if any(isinstance(value, list | dict) for row in found for value in row):
        found = [tuple(map(_freeze, row)) for row in found]
    answers: list[Counter[tuple[Any, ...]]] = [Counter() for _ in worlds]
    for row in found:
        answers[row[0]][row[1:-1]] = row[-1]
    return answers


def _count_copies(copies: Iterator[Row]) -> tuple[Row, int]:
    """A row, and how often it comes."""
    first = next(copies)
    return first, 1 + sum(1 for _ in copies)


def _freeze(value: Any) -> Any:
    """An array, map or struct as a value that can be counted; any other value itself."""
    if isinstance(value, list):
        return tuple(map(_freeze, value))
    if isinstance(value, dict):
        return tuple((key, _freeze(each)) for key, each in value.items())
    return value


def render_query(query: Query) -> str:
    """The query over the declared tables of all worlds; the first column of the result is the world.

    Raises UncomputableError for a query without one answer, and for constructs that DuckDB does not have.
    """
    if query.limit is not None:
        raise UncomputableError("LIMIT without ORDER BY has no single answer")
    text = " UNION ALL ".join(f"({_render_term(term, query.columns)})" for term in query.terms)
    if not query.projection:
        return text
    shown = ", ".join(f"{each.duckdb} AS {_name(each.name)}" for each in query.projection)
    where = "" if query.filter is None else f" WHERE {query.filter.duckdb}"
    return f"SELECT {_WORLD}, {shown} FROM ({text}){where}"


def render_over_tables(query: Query, tables: Mapping[str, str]) -> str:
    """The query as one statement, over declared tables that are given as SELECT statements."""
    world = f"0 AS {_WORLD}"
    named = [f"{_source_name(name)} AS (SELECT *, {world} FROM ({text}))" for name, text in tables.items()]
    named.append(f"{_WORLDS} AS (SELECT {world})")
    return f"WITH {', '.join(named)} SELECT * EXCLUDE ({_WORLD}) FROM ({render_query(query)})"


def _render_term(term: Term, columns: Sequence[str]) -> str:
    every = [_render_select(select, columns) for select in term.selects]
    if not term.distinct:
        return every[0]
    return f"SELECT DISTINCT * FROM ({' UNION ALL '.join(every)})"


# --- selects -------------------------------------------------------------------------------------------


def _render_select(select: Select, columns: Sequence[str]) -> str:
    if select.session is not None:
        raise UncomputableError("DuckDB has no session windows")
    aggregates: dict[Expr, Ref] = {each: Ref("", _aggregate_sql(each)) for each in find_aggregates(select)}

    def names(ref: Ref) -> str:
        return _column(ref) if ref.occurrence else ref.column

    def text(expr: Expr) -> str:
        return expression_sql(substitute(expr, aggregates), names, _DUCKDB)

    items = [f"{text(i.expression)} AS {_name(n)}" for i, n in zip(select.items, columns, strict=True)]
    world, source, conditions = _render_from(select)
    conditions += [condition_sql(select.where, _column, _DUCKDB)]
    conditions += [_render_exists(each, world) for each in select.exists]
    where = f" WHERE {all_of(conditions)}"
    having = condition_sql(substitute(select.having, aggregates), names, _DUCKDB)
    if not is_aggregate(select):
        return f"SELECT {', '.join([f'{world} AS {_WORLD}', *items])} FROM {source}{where}"
    if select.group_by:
        keys = ", ".join([world, *map(_column, select.group_by)])
        shown = ", ".join([f"{world} AS {_WORLD}", *items])
        return f"SELECT {shown} FROM {source}{where} GROUP BY {keys} HAVING {having}"
    here = f"{where} AND {world} = {_WORLDS}.{_WORLD}"
    group = f"SELECT {', '.join(items)} FROM {source}{here} HAVING {having}"
    return f"SELECT {_WORLDS}.{_WORLD}, answer.* FROM {_WORLDS}, LATERAL ({group}) AS answer"


def _render_from(select: Select) -> tuple[str, str, list[str]]:
    """The world of a match, the tables of FROM, and the conditions that keep matches in one world."""
    first, *others = select.occurrences
    world = f"{_name(first.alias)}.{_WORLD}"
    if not select.joins:
        source = ", ".join(_render_occurrence(o) for o in select.occurrences)
        return world, source, [f"{world} = {_name(o.alias)}.{_WORLD}" for o in others]
    source = _render_occurrence(first)
    for join, occurrence in zip(select.joins, others, strict=True):
        on = [f"{world} = {_name(join.alias)}.{_WORLD}", condition_sql(join.on, _column, _DUCKDB)]
        source += f" {join.side.value} JOIN {_render_occurrence(occurrence)} ON {all_of(on)}"
        world = f"COALESCE({world}, {_name(join.alias)}.{_WORLD})"
    return world, source, []


def _render_exists(exists: Exists, world: str) -> str:
    source = ", ".join(_render_occurrence(o) for o in exists.occurrences)
    same = [f"{world} = {_name(o.alias)}.{_WORLD}" for o in exists.occurrences]
    where = all_of([*same, condition_sql(exists.condition, _column, _DUCKDB)])
    return f"({'NOT ' if exists.negated else ''}EXISTS (SELECT 1 FROM {source} WHERE {where}))"


def _render_occurrence(occurrence: Occurrence) -> str:
    return f"({_render_table(occurrence.table)}) AS {_name(occurrence.alias)}"


def _aggregate_sql(aggregate: Aggregate) -> str:
    """An aggregate over the rows of a group."""
    if aggregate.argument is None:
        return "COUNT(*)"
    arguments = [expression_sql(each, _column, _DUCKDB) for each in aggregate.arguments]
    if aggregate.function == "COUNT" and aggregate.distinct and len(arguments) > 1:
        shown = [f"WHEN {each} IS NULL THEN NULL" for each in arguments]
        arguments = [f"CASE {' '.join(shown)} ELSE ROW({', '.join(arguments)}) END"]
    if aggregate.function == "COLLECT_SET":
        return f"list_sort(list(DISTINCT {arguments[0]}) FILTER ({arguments[0]} IS NOT NULL))"
    if aggregate.function == "COLLECT_LIST":
        return f"list_sort(list({arguments[0]}) FILTER ({arguments[0]} IS NOT NULL))"
    distinct = aggregate.distinct or aggregate.function == "APPROX_COUNT_DISTINCT"
    name = _AGGREGATES.get(aggregate.function, aggregate.function)
    return f"{name}({'DISTINCT ' if distinct else ''}{', '.join(arguments)})"


# --- tables --------------------------------------------------------------------------------------------


def _render_table(table: Table) -> str:
    """The rows of a table with its derived columns and their world."""
    match table.block:
        case None:
            text = f"SELECT * FROM {_source_name(table.name)}"
        case Subquery(query=query):
            text = render_query(query)
        case Windowed():
            text = _render_windowed(table.block)
        case _:
            raise UncomputableError("the rows with or without a partner are only in variants of a query")
    for column in table.derived:
        derivation = column.derivation
        assert derivation is not None
        value = f"unnest({derivation.duckdb})" if derivation.repeated else derivation.duckdb
        text = f"SELECT *, {value} AS {_name(column.name)} FROM ({text})"
    return text


def _render_windowed(block: Windowed) -> str:
    types = {column.name: column.type for column in block.base.all_columns}
    values = [
        f"{window_function_sql(f, types[f.order_by[0].column].family if f.order_by else None, (_WORLD,))}"
        f" AS {_name(f.name)}"
        for f in block.functions
    ]
    where = condition_sql(block.where, lambda ref: _name(ref.column), _DUCKDB)
    kept = [_name(c.name) for c in block.base.columns]
    return f"SELECT {', '.join([*kept, _WORLD, *values])} FROM ({_render_table(block.base)}) WHERE {where}"


def window_function_sql(
    function: WindowFunction,
    order: Family | None,
    partition: Sequence[str] = (),
    names: Callable[[str], str] | None = None,
    values: Callable[[str], str] | None = None,
    last_key: str | None = None,
) -> str:
    """A window function as DuckDB SQL; ``order`` is the type of its first sort key.

    ``partition`` is SQL for further columns that divide the partitions.  ``names`` renders columns of the
    window and ``values`` arguments.  Rows that are equal in the order are ordered by the ``last_key``.
    """
    names = names or _name
    values = values or names
    arguments = [
        literal_sql(each.value, each.type, _DUCKDB) if isinstance(each, Literal) else values(each)
        for each in function.arguments
    ]
    if function.function == "COUNT" and not arguments:
        arguments = ["*"]
    if function.function == "COUNT_IF":  # that of DuckDB is NULL over NULLs
        arguments = [f"CASE WHEN {arguments[0]} THEN 1 END"]
    nulls = " IGNORE NULLS" if function.ignore_nulls else ""
    call = f"{WINDOW_FUNCTIONS[function.function].duckdb}({', '.join(arguments)}{nulls})"
    words = []
    keys = [*partition, *map(names, function.partition_by)]
    if keys:
        words.append(f"PARTITION BY {', '.join(keys)}")
    if function.order_by:
        sorted_by = [sort_key_sql(key, names) for key in function.order_by]
        words.append(f"ORDER BY {', '.join([*sorted_by, *([last_key] if last_key else [])])}")
    if function.frame is not None:
        words.append(frame_sql(function.frame, order, "to_microseconds({})".format))
    return f"CAST({call} OVER ({' '.join(words)}) AS {function.type.names.duckdb})"


def sort_key_sql(key: SortKey, names: Callable[[str], str]) -> str:
    """A sort key as SQL."""
    direction = "DESC" if key.descending else "ASC"
    return f"{names(key.column)} {direction} NULLS {'FIRST' if key.nulls_first else 'LAST'}"


def frame_sql(frame: Frame, order: Family | None, write_length: Callable[[int], str]) -> str:
    """A frame as SQL, in which ``write_length`` writes microseconds; ``order`` is as for the function."""

    def edge(distance: int | None, unbounded: str) -> str:
        if distance is None:
            return f"UNBOUNDED {unbounded}"
        if distance == 0:
            return "CURRENT ROW"
        in_time = frame.unit is FrameUnit.RANGE and order is Family.TIME
        shown = write_length(abs(distance)) if in_time else str(abs(distance))
        return f"{shown} {'PRECEDING' if distance < 0 else 'FOLLOWING'}"

    start, end = edge(frame.start, "PRECEDING"), edge(frame.end, "FOLLOWING")
    return f"{frame.unit.value} BETWEEN {start} AND {end}"


# --- names ---------------------------------------------------------------------------------------------


def _name(name: str) -> str:
    return _DUCKDB.name_of(name)


def _column(ref: Ref) -> str:
    return f"{_name(ref.occurrence)}.{_name(ref.column)}"


def _source_name(table: str) -> str:
    return _name(f"rows of {table}")
