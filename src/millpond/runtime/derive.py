"""Computes the derived columns of rows with DuckDB, in UTC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

from millpond.query.evaluate import Row
from millpond.query.model import Query, Table
from millpond.runtime.row_queries import RowTable, local_type, query_rows
from millpond.runtime.sql import Dialect

# The number of the row that a derived row comes from.
_NUMBER = "_millpond_number"


def render_derived(table: Table, rows: str) -> str:
    """SQL for the table ``rows`` with the derived columns of a table.

    A row is repeated for each window that it lies in.  Timestamps have no time zone and are in UTC.
    """
    text = rows
    for column in table.derived:
        derivation, name = column.derivation, Dialect.DUCKDB.name_of(column.name)
        assert derivation is not None
        value = f"unnest({derivation.duckdb})" if derivation.repeated else derivation.duckdb
        text = f"(SELECT *, {value} AS {name} FROM {text})"
    return f"SELECT * FROM {text}"


def derive_each(table: Table, rows: Sequence[Row]) -> list[list[Row]]:
    """For each row, the rows with derived columns that stand for it.

    Raises UncomputableError if DuckDB cannot compute a column.
    """
    if not table.derived:
        return [[row] for row in rows]
    columns = [(c.name, local_type(c.type)) for c in table.columns]
    numbered = [{**row, _NUMBER: i} for i, row in enumerate(rows)]
    given = RowTable((*columns, (_NUMBER, "BIGINT")), numbered)
    names, found = query_rows(render_derived(table, "rows"), {"rows": given})
    out: list[list[Row]] = [[] for _ in rows]
    for values in found:
        made = dict(zip(names, values, strict=True))
        out[made.pop(_NUMBER)].append(made)
    return out


def derive_rows(query: Query, data: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """The rows of each table with their derived columns, for the reference evaluation."""
    tables = query.tables
    return {
        name: [row for each in derive_each(tables[name], rows) for row in each]
        for name, rows in data.items()
        if name in tables
    }


class ResultFilter:
    """The rows of a result for which the filter of a query is true, computed with DuckDB."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._known: dict[tuple[object, ...], bool] = {}

    def keeps(self, rows: Iterable[tuple[object, ...]]) -> list[bool]:
        """Whether each row is kept.  Raises UncomputableError if DuckDB cannot compute the filter."""
        rows = list(rows)
        if self._query.filter is None:
            return [True] * len(rows)
        new = list(dict.fromkeys(row for row in rows if row not in self._known))
        if new:
            names = self._query.columns
            types = [_find_value_type(values) for values in zip(*new, strict=True)]
            given = RowTable(
                tuple(zip(names, types, strict=True)),
                [dict(zip(names, map(_to_duckdb, row), strict=True)) for row in new],
            )
            text = f"SELECT coalesce({self._query.filter.duckdb}, FALSE) FROM rows"
            _, found = query_rows(text, {"rows": given})
            self._known |= {row: kept for row, (kept,) in zip(new, found, strict=True)}
        return [self._known[row] for row in rows]


def _find_value_type(values: Sequence[object]) -> str:
    """The DuckDB type that holds all of some values."""
    kinds = {type(value) for value in values if value is not None}
    if kinds & {float, Fraction, Decimal}:
        return "DOUBLE"
    names = {bool: "BOOLEAN", int: "HUGEINT", str: "VARCHAR", date: "DATE", datetime: "TIMESTAMP"}
    return names.get(kinds.pop(), "VARCHAR") if len(kinds) == 1 else "BIGINT"


def _to_duckdb(value: object) -> object:
    return float(value) if isinstance(value, Fraction | Decimal) else value
