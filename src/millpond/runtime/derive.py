"""Computes the derived columns of rows with DuckDB, in UTC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
