"""Computes the derived columns of rows with DuckDB, in UTC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from millpond.errors import MillpondError
from millpond.query.evaluate import Row
from millpond.query.model import Query, Table
from millpond.query.types import TIMESTAMP, SqlType, arrow_type
from millpond.runtime.duckdb import get_process_duckdb
from millpond.runtime.sql import Dialect

# The number of the row that a derived row comes from.
_NUMBER = "_millpond_number"


class UncomputableError(ValueError):
    """DuckDB does not have a function of Spark, or cannot compute it for these rows."""


def derive_columns(table: Table, rows: pa.Table) -> pa.Table:
    """The rows with their derived columns; a row is repeated for each window that it lies in.

    Timestamps have no time zone and are in UTC.
    """
    if not table.derived:
        return rows
    text = "rows"
    for column in table.derived:
        derivation, name = column.derivation, Dialect.DUCKDB.name_of(column.name)
        assert derivation is not None
        value = f"unnest({derivation.duckdb})" if derivation.repeated else derivation.duckdb
        text = f"(SELECT *, {value} AS {name} FROM {text})"
    try:
        return get_process_duckdb().query(f"SELECT * FROM {text}", {"rows": rows})
    except (duckdb.Error, MillpondError) as error:
        raise UncomputableError(str(error)) from error


def derive_each(table: Table, rows: Sequence[Row]) -> list[list[Row]]:
    """For each row, the rows with derived columns that stand for it."""
    if not table.derived:
        return [[row] for row in rows]
    fields = [(c.name, _local_type(c.type)) for c in table.columns]
    schema = pa.schema([*fields, (_NUMBER, pa.int64())])
    numbered = [{**row, _NUMBER: i} for i, row in enumerate(rows)]
    out: list[list[Row]] = [[] for _ in rows]
    for made in derive_columns(table, pa.Table.from_pylist(numbered, schema=schema)).to_pylist():
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


def _local_type(type_: SqlType) -> pa.DataType:
    return pa.timestamp("us") if type_ is TIMESTAMP else arrow_type(type_)
