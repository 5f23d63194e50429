"""An embedded DuckDB that reads and returns Arrow tables."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millpond.errors import MillpondError


class DuckDb:
    """An embedded DuckDB.  It uses one thread by default, because Spark already runs tasks in parallel."""

    def __init__(self, threads: int = 1) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(f"SET threads = {threads}")
        self._connection.execute("SET enable_progress_bar = false")
        self._created: set[str] = set()

    def query(self, sql: str, tables: Mapping[str, pa.Table | pa.RecordBatch]) -> pa.Table:
        """The result of a query over the given tables and those that are registered or created."""
        with self.register(tables), _one_line_errors():
            return self._connection.sql(sql).to_arrow_table()

    @contextmanager
    def register(self, tables: Mapping[str, pa.Table | pa.RecordBatch]) -> Iterator[None]:
        """Make the tables visible under their names while the context lasts."""
        for name, table in tables.items():
            self._connection.register(name, table)
        try:
            yield
        finally:
            for name in tables:
                self._connection.unregister(name)

    def create_table(self, name: str, sql: str) -> None:
        """Store the result of a query in a temporary table, until ``drop_tables``."""
        with _one_line_errors():
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
        self._created.add(name)

    def drop_tables(self) -> None:
        """Drop every table made by ``create_table``."""
        for name in self._created:
            self._connection.execute(f"DROP TABLE IF EXISTS {name}")
        self._created.clear()

    def query_integers(self, sql: str) -> dict[str, NDArray[np.int64]]:
        """The columns of a query's result, all of them integers, as arrays."""
        with _one_line_errors():
            found = self._connection.execute(sql).fetchnumpy()
        return {name: np.asarray(column, dtype=np.int64) for name, column in found.items()}


class _OpenDuckDb(threading.local):
    process: int | None = None
    db: DuckDb


_open = _OpenDuckDb()


def get_process_duckdb() -> DuckDb:
    """A DuckDB for small computations, which each thread of a process opens once: that takes 20 ms."""
    if _open.process != os.getpid():  # a process that was forked opens its own
        _open.process, _open.db = os.getpid(), DuckDb()
    return _open.db


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn DuckDB's errors into MillpondErrors of one line."""
    try:
        yield
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        if isinstance(error, duckdb.OutOfRangeException | duckdb.ConversionException):
            raise MillpondError(
                f"a value does not fit its type: {first}", remedy="cast to a wider type"
            ) from None
        raise MillpondError(first) from None
