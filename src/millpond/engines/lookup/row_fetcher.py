"""Reading the rows of many keys at once, as often as it takes within reason."""

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

# The most parameters a statement may have; PostgreSQL takes a whole column as one.
_PARAMETERS = {"sqlite": 30_000, "mysql": 60_000, "mariadb": 60_000, "mssql": 2_000, "oracle": 1_000}
_FEWEST = 1_000
# Types whose values no driver spells in its own way.
_PLAIN = ("TINYINT", "SMALLINT", "INT", "BIGINT", "STRING")
# Seconds before the first of the further tries; twice as many before each one after it.
_PAUSE = 0.5


def kept_type(type_: SqlType) -> pa.DataType:
    """How values of a type are kept; strings may be many, so their places have 64 bits."""
    return pa.large_string() if type_ == domains.STRING else arrow_type(type_)


class RowFetcher:
    """Reads the columns ``wanted`` of the rows whose columns ``key`` have one of the values asked for.

    Moments without a time zone are in the time zone ``zone``.  What may pass is tried again, a few times and
    with growing pauses; then RunError says what the database said.
    """

    def __init__(
        self,
        located: DatabaseTable,
        key: Sequence[str],
        wanted: Sequence[str],
        zone: str = "UTC",
        sleep: Callable[[float], None] = time.sleep,
        connect: Callable[..., Engine] = connect,
    ) -> None:
        self._located = located
        self._key = [located.column(name) for name in key]
        names = dict.fromkeys([*key, *wanted])
        self._columns = [located.column(name) for name in names]
        self._zone = zone
        self._sleep = sleep
        self._connect = connect
        self._engine: Engine | None = None
        self._statement: Any = None

    @property
    def schema(self) -> pa.Schema:
        """The key's columns and those wanted, under their declared names."""
        return pa.schema([(f.column.name, kept_type(f.column.type)) for f in self._columns])

    def fetch(self, keys: Sequence[pa.Array]) -> pa.Table:
        """The rows of the keys, given as one array a column of the key; in one statement where that goes."""
        retries = self._located.relation.retries
        for attempt in range(retries + 1):
            try:
                return self._fetch(keys)
            except (SQLAlchemyError, OSError) as error:
                self.close()
                if not is_transient(error) or attempt == retries:
                    raise self._failure(error, attempt + 1) from None
            self._sleep(_PAUSE * 2**attempt)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Let the database go; the next fetch connects anew."""
        if self._engine is not None:
            self._engine.dispose()
        self._engine = None

    def _failure(self, error: BaseException, tries: int) -> RunError:
        name = one_line(self._located.relation.name)
        times = f" ({tries} times)" if tries > 1 else ""
        return RunError(f"{name}: its database cannot be read{times}: {describe_error(error)}")

    def _fetch(self, keys: Sequence[pa.Array]) -> pa.Table:
        if self._engine is None:
            self._engine = self._connect(self._located.relation)
            weakref.finalize(self, self._engine.dispose)
            self._statement = self._selection(self._engine.dialect.name)
        keys = self._askable(self._engine.dialect.name, keys)
        step = self._most_keys(self._engine.dialect.name) or max(len(keys[0]), 1)
        values = [_parameters(found, array, self._zone) for found, array in zip(self._key, keys, strict=True)]
        rows: list[Any] = []
        with self._engine.connect() as connection, warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)  # that SQLite keeps decimals as it likes
            for start in range(0, max(len(keys[0]), 1), step):
                asked = self._asked(connection.dialect.name, [v[start : start + step] for v in values])
                rows += self._rows(connection.execute(self._statement, asked))
        return self._table(rows)

    def _askable(self, dialect: str, keys: Sequence[pa.Array]) -> Sequence[pa.Array]:
        """The keys that the database can have: a text with the character 0 is none to PostgreSQL."""
        if dialect != "postgresql":
            return keys
        texts = [column for column in keys if pa.types.is_large_string(column.type)]
        possible = [pc.invert(pc.match_substring(column, "\0")) for column in texts]
        if all(pc.all(each, min_count=0).as_py() for each in possible):
            return keys
        every = reduce(pc.and_, possible)
        return [column.filter(every) for column in keys]

    def _rows(self, result: sa.CursorResult[Any]) -> Sequence[Any]:
        """All rows of a result; as the driver has them where every driver has such values as they are."""
        if any(found.column.type.name not in _PLAIN for found in self._columns):
            return result.all()
        assert result.cursor is not None
        rows: Sequence[Any] = result.cursor.fetchall()
        result.close()
        return rows

    def _most_keys(self, dialect: str) -> int | None:
        """How many keys a statement may ask for, None if any number."""
        if dialect == "postgresql":
            return None
        return max(1, _PARAMETERS.get(dialect, _FEWEST) // len(self._key))

    def _selection(self, dialect: str) -> Any:
        """The statement, with parameters for the keys."""
        columns: list[Any] = [sa.column(found.name, found.type) for found in self._columns]
        table = sa.table(self._located.table, *columns, schema=self._located.schema)
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

    def _asked(self, dialect: str, values: list[list[Any]]) -> dict[str, Any]:
        if dialect == "postgresql":
            return {f"k{i}": column for i, column in enumerate(values)}
        return {"keys": values[0] if len(values) == 1 else list(zip(*values, strict=True))}

    def _table(self, rows: list[Any]) -> pa.Table:
        """The rows by column, each value of its declared type."""
        arrays = [self._array(f, list(map(itemgetter(i), rows))) for i, f in enumerate(self._columns)]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _array(self, found: DatabaseColumn, values: Sequence[Any]) -> pa.Array:
        name = f"{one_line(self._located.relation.name)}.{one_line(found.column.name)}"
        wanted = kept_type(found.column.type)
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
            raise RunError(f"{name}: a value in the database is not {found.column.type}: {reason}") from None
        if array.null_count and not found.column.nullable:
            raise RunError(f"{name} is NULL in the database but declared NOT NULL")
        return array


def _parameters(found: DatabaseColumn, array: pa.Array, zone: str) -> list[Any]:
    """Values of a key as a driver takes them."""
    if found.column.type == domains.TIMESTAMP and not found.zoned:
        array = pc.local_timestamp(array.cast(pa.timestamp("us", zone)))
    listed: list[Any] = array.to_pylist()
    return listed
