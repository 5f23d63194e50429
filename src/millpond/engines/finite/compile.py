"""Compiles a query over subqueries with finitely many rows to a program, as SQL for DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from millpond.engines.finite.program import FiniteProgram, KeptRows
from millpond.query.model import Item, OutputColumn, Query
from millpond.query.trees import is_aggregate
from millpond.runtime.query_sql import render_over_tables
from millpond.runtime.sql import Dialect

_KEY = "group column {}"


@dataclass(frozen=True)
class FiniteInput:
    """A subquery: its name, the Arrow types of its columns, and those that tell its groups apart."""

    name: str
    columns: pa.Schema
    keys: tuple[str, ...] | None


def show_group_columns(query: Query) -> tuple[Query, tuple[str, ...] | None]:
    """The query with all columns that tell its groups apart in its result, and their names there.

    There are none without groups.
    """
    keys = find_keys(query)
    if keys is None or len(query.selects) != 1:
        return query, keys
    (select,) = query.selects
    shown = {item.expression for item in select.items}
    groups = select.group_by or ()
    hidden = [ref for ref in groups if query.projection or ref not in shown]
    names = tuple(_KEY.format(number) for number in range(len(hidden)))
    items = (*select.items, *(Item(ref, name) for ref, name in zip(hidden, names, strict=True)))
    terms = (replace(query.terms[0], selects=(replace(select, items=items),)),)
    projection = query.projection
    if projection:
        projection += tuple(_show(name) for name in names)
        keys = ()
    columns = (*query.columns, *names)
    return replace(query, terms=terms, columns=columns, projection=projection), (*keys, *names)


def find_keys(query: Query) -> tuple[str, ...] | None:
    """The columns of the result that tell its groups apart; None if it has no groups."""
    (select, *_) = query.selects
    if not is_aggregate(select):
        return None
    groups = set(select.group_by or ())
    pairs = zip(select.items, query.columns, strict=True)
    return tuple(name for item, name in pairs if item.expression in groups)


def _show(name: str) -> OutputColumn:
    return OutputColumn(name, Dialect.SPARK.name_of(name), Dialect.DUCKDB.name_of(name))


def compile_finite(
    query: Query, inputs: Sequence[FiniteInput], columns: pa.Schema, types: Sequence[str]
) -> FiniteProgram:
    """The program of a query over declared tables, each of which is an input.

    ``columns`` are the Arrow types of the answer and ``types`` its DuckDB types.
    """
    kept, tables = [], {}
    for number, each in enumerate(inputs):
        fields = [pa.field(f"c{i}", field.type) for i, field in enumerate(each.columns)]
        names = {field.name: f"c{i}" for i, field in enumerate(each.columns)}
        keys = None if each.keys is None else tuple(names[key] for key in each.keys)
        kept.append(KeptRows(f"kept{number}", pa.schema(fields), keys))
        shown = ", ".join(f"{c} AS {Dialect.DUCKDB.name_of(name)}" for name, c in names.items())
        tables[each.name] = f"SELECT {shown} FROM kept{number}"
    plain = replace(query, projection=(), filter=None, limit=None)
    text = render_over_tables(plain, tables)
    names_of = [
        f"CAST({Dialect.DUCKDB.name_of(name)} AS {type_}) AS o{i}"
        for i, (name, type_) in enumerate(zip(query.columns, types, strict=True))
    ]
    answer = f"SELECT {', '.join(names_of)} FROM ({text})"
    shown_keys = find_keys(query) if _shows_groups(query) else None
    places = None if shown_keys is None else tuple(f"o{query.columns.index(key)}" for key in shown_keys)
    made = pa.schema([pa.field(f"o{i}", field.type) for i, field in enumerate(columns)])
    return FiniteProgram(tuple(kept), answer, made, places)


def _shows_groups(query: Query) -> bool:
    """Whether the rows of the answer tell the groups of the query apart."""
    shown = {item.expression for item in query.selects[0].items}
    return len(query.selects) == 1 and set(query.selects[0].group_by or ()) <= shown
