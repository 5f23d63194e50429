"""Small computations in DuckDB over rows of Python values.

``millpond check`` confirms proofs with it.  It needs neither pyarrow nor pandas, whose import takes longer
than the check itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import duckdb

from millpond.query.evaluate import Row
from millpond.query.types import Domain, SqlType
from millpond.runtime.sql import Dialect

# The number of copies of a row, and that of one of them.
_COPIES = "_millpond_copies"
_COPY = "_millpond_copy"
# Functions of Spark that DuckDB does not have under their names, and what they are there.
_SPARK_FUNCTIONS = {
    "timestamp_seconds(x)": "make_timestamp(CAST(x * CAST(1000000 AS BIGINT) AS BIGINT))",
    "timestamp_millis(x)": "make_timestamp(CAST(x * CAST(1000 AS BIGINT) AS BIGINT))",
    "timestamp_micros(x)": "make_timestamp(CAST(x AS BIGINT))",
    "unix_seconds(x)": "CAST(floor(epoch_us(x) / 1000000) AS BIGINT)",
    "unix_millis(x)": "CAST(floor(epoch_us(x) / 1000) AS BIGINT)",
    "unix_micros(x)": "epoch_us(x)",
    "substring_index(x, d, n)": "CASE WHEN n > 0 THEN array_to_string(string_split(x, d)[1:n], d) "
    "WHEN n < 0 THEN array_to_string(string_split(x, d)[n:], d) WHEN n = 0 THEN '' END",
}


class UncomputableError(ValueError):
    """DuckDB does not have a function of Spark, or cannot compute it for these rows."""


@dataclass(frozen=True)
class RowTable:
    """Rows, and the columns that are taken from them with their DuckDB types.

    With ``copies``, each row is there so many times.
    """

    columns: tuple[tuple[str, str], ...]
    rows: Sequence[Row]
    copies: Sequence[int] | None = None

    @property
    def sql(self) -> str:
        """The table as SQL; its parameters are the columns."""
        values = [f"unnest(CAST(? AS {type_}[])) AS {_quote(name)}" for name, type_ in self.columns]
        if self.copies is None:
            return f"SELECT {', '.join(values)}"
        shown = ", ".join(_quote(name) for name, _ in self.columns)
        values.append(f"unnest(CAST(? AS BIGINT[])) AS {_quote(_COPIES)}")
        repeated = f"unnest(range({_quote(_COPIES)})) AS {_quote(_COPY)}"
        return f"SELECT {shown} FROM (SELECT *, {repeated} FROM (SELECT {', '.join(values)}))"

    @property
    def parameters(self) -> list[list[Any]]:
        columns = [[row.get(name) for row in self.rows] for name, _ in self.columns]
        return columns if self.copies is None else [*columns, [*self.copies]]


def query_rows(sql: str, tables: Mapping[str, RowTable]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The names of the columns and the rows of a result; UncomputableError if DuckDB cannot compute it."""
    connection = _open_for_process(os.getpid())
    try:
        for name, table in tables.items():
            connection.execute(
                f"CREATE OR REPLACE TEMP TABLE {_quote(name)} AS {table.sql}", table.parameters
            )
        found = connection.execute(sql)
        return [column[0] for column in found.description or ()], found.fetchall()
    except duckdb.Error as error:
        raise UncomputableError(str(error)) from error
    finally:
        for name in tables:
            connection.execute(f"DROP TABLE IF EXISTS {_quote(name)}")


def local_type(type_: SqlType) -> str:
    """The DuckDB type of a column; timestamps have no time zone, and are in UTC."""
    return "TIMESTAMP" if type_.domain is Domain.TIME else type_.names.duckdb


@lru_cache(maxsize=1)
def _open_for_process(process: int) -> duckdb.DuckDBPyConnection:
    """The connection of this process; one that was forked opens its own."""
    del process
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for call, text in _SPARK_FUNCTIONS.items():
        connection.execute(f"CREATE OR REPLACE TEMP MACRO {call} AS {text}")
    return connection


def _quote(name: str) -> str:
    return Dialect.DUCKDB.name_of(name)
