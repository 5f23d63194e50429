"""An embedded DuckDB that works on Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millpond.errors import MillpondError


class DuckDb:
    """An embedded DuckDB, by default on a single thread: the parallelism is Spark's."""

    def __init__(self, threads: int = 1) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(f"SET threads = {threads}")
        self._connection.execute("SET enable_progress_bar = false")
        self._kept: set[str] = set()

    def query(self, sql: str, tables: Mapping[str, pa.Table | pa.RecordBatch]) -> pa.Table:
        with self.tables(tables), _said_in_one_line():
            return self._connection.sql(sql).to_arrow_table()

    @contextmanager
    def tables(self, tables: Mapping[str, pa.Table | pa.RecordBatch]) -> Iterator[None]:
        """The tables by name, for as long as it lasts."""
        for name, table in tables.items():
            self._connection.register(name, table)
        try:
            yield
        finally:
            for name in tables:
                self._connection.unregister(name)

    def keep(self, name: str, sql: str) -> None:
        """The result under a name, until all such are dropped."""
        with _said_in_one_line():
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
        self._kept.add(name)

    def drop_all(self) -> None:
        for name in self._kept:
            self._connection.execute(f"DROP TABLE IF EXISTS {name}")
        self._kept.clear()

    def arrays(self, sql: str) -> dict[str, NDArray[np.int64]]:
        """Columns of whole numbers."""
        with _said_in_one_line():
            found = self._connection.execute(sql).fetchnumpy()
        return {name: np.asarray(column, dtype=np.int64) for name, column in found.items()}


@contextmanager
def _said_in_one_line() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise engine_error(error) from None


def engine_error(error: duckdb.Error) -> MillpondError:
    """A value that does not fit, said in one line."""
    first = str(error).splitlines()[0]
    if isinstance(error, duckdb.OutOfRangeException | duckdb.ConversionException):
        return MillpondError(f"a value does not fit its type: {first}", remedy="cast to a wider type")
    return MillpondError(first)
