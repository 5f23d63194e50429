"""Fetches the rows of many keys from a database in one statement, with retries."""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from functools import reduce
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SAWarning, SQLAlchemyError

from millpond.engines.lookup.database import (
    DatabaseColumn,
    DatabaseTable,
    connect,
    describe_error,
    is_transient,
)
from millpond.errors import RunError, one_line
from millpond.query import types as domains
from millpond.query.types import SqlType, arrow_type

# The largest number of parameters of a statement; PostgreSQL takes a whole column as one array.
_MAX_PARAMETERS = {"sqlite": 30_000, "mysql": 60_000, "mariadb": 60_000, "mssql": 2_000, "oracle": 1_000}
_DEFAULT_MAX_PARAMETERS = 1_000
# Types whose values every driver returns as plain Python values.
_PLAIN_TYPES = ("TINYINT", "SMALLINT", "INT", "BIGINT", "STRING")
# Seconds before the first retry; the pause doubles with each retry.
_FIRST_PAUSE = 0.5


def cached_type(type_: SqlType) -> pa.DataType:
    """The Arrow type of cached values; strings may exceed 2 GB, so they have 64-bit offsets."""
    return pa.large_string() if type_ == domains.STRING else arrow_type(type_)


class RowFetcher:
    """Fetches the columns ``wanted`` of the rows whose columns ``key`` have given values.

    Timestamps without a time zone are in the time zone ``zone``.  Transient errors are retried with growing
    pauses; then a RunError has the message of the database.
    """

    def __init__(
        self,
        table: DatabaseTable,
        key: Sequence[str],
        wanted: Sequence[str],
        zone: str = "UTC",
        sleep: Callable[[float], None] = time.sleep,
        connect: Callable[..., Engine] = connect,
    ) -> None:
        self._table = table
        self._key = [table.column(name) for name in key]
        names = dict.fromkeys([*key, *wanted])
        self._columns = [table.column(name) for name in names]
        self._zone = zone
        self._sleep = sleep
        self._connect = connect
        self._engine: Engine | None = None
        self._statement: Any = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the key and the wanted ones, under their declared names."""
        return pa.schema([(f.column.name, cached_type(f.column.type)) for f in self._columns])

    def fetch(self, keys: Sequence[pa.Array]) -> pa.Table:
        """The rows of the keys, which are given as one array for each column of the key."""
        retries = self._table.relation.retries
        for attempt in range(retries + 1):
            try:
                return self._fetch(keys)
            except (SQLAlchemyError, OSError) as error:
                self.close()
                if not is_transient(error) or attempt == retries:
                    raise self._run_error(error, attempt + 1) from None
            self._sleep(_FIRST_PAUSE * 2**attempt)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close the connections; the next fetch connects again."""
        if self._engine is not None:
            self._engine.dispose()
        self._engine = None

    def _run_error(self, error: BaseException, attempts: int) -> RunError:
        name = one_line(self._table.relation.name)
        after = f" after {attempts} attempts" if attempts > 1 else ""
        return RunError(f"{name}: reading the database failed{after}: {describe_error(error)}")

    def _fetch(self, keys: Sequence[pa.Array]) -> pa.Table:
        if self._engine is None:
            self._engine = self._connect(self._table.relation)
            weakref.finalize(self, self._engine.dispose)
            self._statement = self._build_statement(self._engine.dialect.name)
        keys = self._drop_impossible(self._engine.dialect.name, keys)
        step = self._max_keys(self._engine.dialect.name) or max(len(keys[0]), 1)
        values = [
            _to_parameters(found, array, self._zone) for found, array in zip(self._key, keys, strict=True)
        ]
        rows: list[Any] = []
        with self._engine.connect() as connection, warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)  # SQLite stores decimals as floating-point numbers
            for start in range(0, max(len(keys[0]), 1), step):
                parameters = self._bind_values(
                    connection.dialect.name, [v[start : start + step] for v in values]
                )
                rows += self._fetch_all(connection.execute(self._statement, parameters))
        return self._to_table(rows)

    def _drop_impossible(self, dialect: str, keys: Sequence[pa.Array]) -> Sequence[pa.Array]:
        """The keys without those that PostgreSQL rejects because a string contains the character 0."""
        if dialect != "postgresql":
            return keys
        texts = [column for column in keys if pa.types.is_large_string(column.type)]
        possible = [pc.invert(pc.match_substring(column, "\0")) for column in texts]
        if all(pc.all(each, min_count=0).as_py() for each in possible):
            return keys
        every = reduce(pc.and_, possible)
        return [column.filter(every) for column in keys]

    def _fetch_all(self, result: sa.CursorResult[Any]) -> Sequence[Any]:
        """All rows of a result; directly from the driver where no value needs a conversion."""
        if any(found.column.type.name not in _PLAIN_TYPES for found in self._columns):
            return result.all()
        assert result.cursor is not None
        rows: Sequence[Any] = result.cursor.fetchall()
        result.close()
        return rows

    def _max_keys(self, dialect: str) -> int | None:
        """The largest number of keys of a statement; None if unlimited."""
        if dialect == "postgresql":
            return None
        return max(1, _MAX_PARAMETERS.get(dialect, _DEFAULT_MAX_PARAMETERS) // len(self._key))

    def _build_statement(self, dialect: str) -> Any:
        """The SELECT statement, with parameters for the keys."""
        columns: list[Any] = [sa.column(found.name, found.type) for found in self._columns]
        table = sa.table(self._table.table, *columns, schema=self._table.schema)
        key: list[Any] = [table.c[found.name] for found in self._key]
        chosen = sa.select(*(table.c[found.name] for found in self._columns))
        if dialect == "postgresql":
            arrays = [sa.bindparam(f"k{i}", type_=ARRAY(found.type)) for i, found in enumerate(self._key)]
            if len(key) == 1:
                return chosen.where(key[0] == sa.any_(arrays[0]))
            names = [f"k{i}" for i in range(len(key))]
            asked = sa.func.unnest(*arrays).table_valued(*names, name="asked").render_derived()
            return chosen.select_from(table).join(
                asked, sa.and_(*(c == asked.c[n] for c, n in zip(key, names, strict=True)))
            )
        many: Any = sa.bindparam("keys", expanding=True)
        return chosen.where(key[0].in_(many) if len(key) == 1 else sa.tuple_(*key).in_(many))

    def _bind_values(self, dialect: str, values: list[list[Any]]) -> dict[str, Any]:
        """The parameters of the statement."""
        if dialect == "postgresql":
            return {f"k{i}": column for i, column in enumerate(values)}
        return {"keys": values[0] if len(values) == 1 else list(zip(*values, strict=True))}

    def _to_table(self, rows: list[Any]) -> pa.Table:
        """The rows as a table of the declared types."""
        arrays = [self._to_array(f, list(map(itemgetter(i), rows))) for i, f in enumerate(self._columns)]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _to_array(self, found: DatabaseColumn, values: Sequence[Any]) -> pa.Array:
        name = f"{one_line(self._table.relation.name)}.{one_line(found.column.name)}"
        wanted = cached_type(found.column.type)
        try:
            if found.column.type == domains.TIMESTAMP and not found.zoned:
                naive = pa.array(values, pa.timestamp("us"))
                array = pc.assume_timezone(
                    naive, self._zone, ambiguous="earliest", nonexistent="latest"
                ).cast(wanted)
            else:
                array = pa.array(values, wanted)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            reason = one_line(str(error), 120)
            message = f"{name}: a value in the database is not {found.column.type}: {reason}"
            raise RunError(message, remedy="declare the column with the type that it has there") from None
        if array.null_count and not found.column.nullable:
            message = f"{name} is NULL in the database but declared NOT NULL"
            raise RunError(message, remedy="remove NOT NULL from its declaration")
        return array


def _to_parameters(found: DatabaseColumn, array: pa.Array, zone: str) -> list[Any]:
    """The values of a key column as Python values for the driver."""
    if found.column.type == domains.TIMESTAMP and not found.zoned:
        array = pc.local_timestamp(array.cast(pa.timestamp("us", zone)))
    listed: list[Any] = array.to_pylist()
    return listed
