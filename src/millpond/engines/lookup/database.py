"""Connects to databases, finds tables and columns in them, and turns their errors into one line."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    NoSuchModuleError,
    NoSuchTableError,
    OperationalError,
    SQLAlchemyError,
)

from millpond.engines.lookup.declaration import LookupRelation
from millpond.errors import MillpondError, one_line
from millpond.query import types as domains
from millpond.query.model import Column
from millpond.query.types import SqlType

# Errors of a database that is unreachable, busy or slow.  A retry may help; other errors are permanent.
TRANSIENT_ERRORS = (OperationalError, InterfaceError, sa.exc.TimeoutError, OSError)
# Drivers that come with an extra of this package.
_EXTRAS = {"psycopg": "millpond[postgres]"}


@dataclass(frozen=True)
class DatabaseColumn:
    """A declared column, its name in the database, and whether its timestamps have a time zone there."""

    column: Column
    name: str
    zoned: bool = False

    @property
    def type(self) -> Any:
        """The SQLAlchemy type of the declared type."""
        if self.column.type == domains.TIMESTAMP:
            return sa.DateTime(timezone=self.zoned)
        return self.column.type.names.sqlalchemy.call(sa)


@dataclass(frozen=True)
class DatabaseTable:
    """A lookup relation, and its table in the database."""

    relation: LookupRelation
    schema: str | None
    table: str
    columns: tuple[DatabaseColumn, ...]

    def column(self, name: str) -> DatabaseColumn:
        return next(found for found in self.columns if found.column.name == name)


def connect(relation: LookupRelation) -> Engine:
    """A SQLAlchemy engine that connects on first use.  Every statement sees the latest committed rows."""
    name = one_line(relation.name)
    try:
        url = make_url(relation.url)
        driver = url.get_dialect().import_dbapi
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            driver()
        url, arguments = _set_timeouts(url, relation.timeout)
        return sa.create_engine(
            url, connect_args=arguments, pool_size=1, max_overflow=0, isolation_level="AUTOCOMMIT"
        )
    except ModuleNotFoundError as error:
        package = error.name or "of its url"
        wanted = _EXTRAS.get(package, package)
        message = f"{name}: the database driver {package} is not installed"
        raise MillpondError(message, remedy=f"pip install '{wanted}'") from None
    except ImportError as error:
        raise MillpondError(
            f"{name}: the database driver cannot be loaded: {one_line(str(error), 200)}"
        ) from None
    except NoSuchModuleError:
        dialect = one_line(relation.url.partition(":")[0], 60)
        message = f"{name}: unknown type of database {dialect} in its url"
        raise MillpondError(message, remedy="write postgresql+psycopg://… or sqlite:///…") from None
    except (ArgumentError, ValueError):
        message = f"{name}: its url is not a database URL"
        raise MillpondError(message, remedy="write postgresql+psycopg://user@host/database") from None


def _set_timeouts(url: URL, timeout: float) -> tuple[URL, dict[str, Any]]:
    """The URL and the driver's arguments for timeouts.  A SQLite file is opened read-only, never created."""
    match url.get_backend_name():
        case "postgresql" if url.get_driver_name() in ("psycopg", "psycopg2"):
            options = f"-c statement_timeout={ceil(timeout * 1000)}"
            given = url.query.get("options")
            if isinstance(given, str):
                options = f"{given} {options}"
            url = url.difference_update_query(["options"])
            return url, {
                "connect_timeout": max(2, ceil(timeout)),
                "tcp_user_timeout": ceil(timeout * 1000),  # for a server that stops answering
                "options": options,
            }
        case "sqlite" if url.database and not url.database.startswith((":memory:", "file:")):
            if not Path(url.database).is_file():
                raise FileNotFoundError(f"no such file: {one_line(url.database, 200)}")
            path = quote(Path(url.database).absolute().as_posix())
            return url.set(database=f"file:{path}", query={"mode": "ro", "uri": "true"}), {"timeout": timeout}
        case "sqlite":
            return url, {"timeout": timeout}
    return url, {}


def describe_error(error: BaseException) -> str:
    """The message of a database error, in one line and without the SQL statement."""
    cause = getattr(error, "orig", None) or error
    text = " ".join(str(cause).split())
    return one_line(text.split(" [SQL:")[0], 200) or type(cause).__name__


# --- tables and columns --------------------------------------------------------------------------------


def find_table(relation: LookupRelation) -> DatabaseTable:
    """The table of a relation in its database; raises MillpondError if it or a declared column is missing."""
    name = one_line(relation.name)
    try:
        engine = connect(relation)
        try:
            schema, table, columns = _inspect_table(engine, relation)
        finally:
            engine.dispose()
    except (SQLAlchemyError, OSError) as error:
        message = f"{name}: cannot connect to the database: {describe_error(error)}"
        raise MillpondError(message, remedy="start the database, or correct the url") from None
    found = [_find_column(relation, column, columns) for column in relation.columns]
    return DatabaseTable(relation, schema, table, tuple(found))


def _inspect_table(engine: Engine, relation: LookupRelation) -> tuple[str | None, str, list[Any]]:
    """The schema and name of the table, and its columns.  Databases fold the case of names differently."""
    inspector = sa.inspect(engine)
    before, _, wanted = relation.dbtable.rpartition(".")
    schema = before or None
    if schema is not None:
        schema = _find_name(schema, inspector.get_schema_names()) or schema
    try:
        known = [*inspector.get_table_names(schema), *inspector.get_view_names(schema)]
        table = _find_name(wanted, known)
        if table is not None:
            return schema, table, list(inspector.get_columns(table, schema))
    except NoSuchTableError:
        pass
    message = f"{one_line(relation.name)}: the database has no table {one_line(relation.dbtable)}"
    raise MillpondError(message, remedy="correct the option dbtable")


def _find_name(wanted: str, known: Iterable[str]) -> str | None:
    """The known name that is equal, or the only one that differs in case."""
    names = list(known)
    if wanted in names:
        return wanted
    close = [name for name in names if name.lower() == wanted.lower()]
    return close[0] if len(close) == 1 else None


def _find_column(relation: LookupRelation, column: Column, columns: list[Any]) -> DatabaseColumn:
    actual = _find_name(column.name, (each["name"] for each in columns))
    if actual is None:
        message = (
            f"{one_line(relation.name)}: the table in the database has no column {one_line(column.name)}"
        )
        raise MillpondError(message, remedy=f"it has {one_line(', '.join(c['name'] for c in columns), 200)}")
    kind = next(each["type"] for each in columns if each["name"] == actual)
    return DatabaseColumn(column, actual, bool(getattr(kind, "timezone", False)))


def read_columns(relation: LookupRelation) -> tuple[Column, ...]:
    """The columns of the table in the database, without those of unsupported types."""
    engine = connect(relation)
    try:
        columns = _inspect_table(engine, relation)[2]
        integer = (
            domains.BIGINT if engine.dialect.name == "sqlite" else domains.INT
        )  # the only integer type of SQLite
    except (SQLAlchemyError, OSError) as error:
        message = f"{one_line(relation.name)}: cannot connect to the database: {describe_error(error)}"
        raise MillpondError(message, remedy="start the database, or correct the url") from None
    finally:
        engine.dispose()
    found = [(each["name"], _sql_type(each["type"], integer), each["nullable"]) for each in columns]
    return tuple(Column(name, kind, nullable) for name, kind, nullable in found if kind is not None)


def _sql_type(kind: Any, integer: SqlType) -> SqlType | None:
    match kind:
        case sa.Boolean():
            return domains.BOOLEAN
        case sa.BigInteger():
            return domains.BIGINT
        case sa.SmallInteger():
            return domains.SMALLINT
        case sa.Integer():
            return integer
        case sa.Float():
            return domains.DOUBLE
        case sa.Numeric():
            # NUMERIC without a precision holds numbers of any size; this is the widest type.
            precision, scale = (kind.precision or 38, kind.scale or 0) if kind.precision else (38, 18)
            return domains.decimal(precision, scale) if scale <= precision <= 38 else None
        case sa.DateTime():
            return domains.TIMESTAMP
        case sa.Date():
            return domains.DATE
        case sa.Enum() | sa.Uuid():
            return None
        case sa.String():
            return domains.STRING
    return None


def is_transient(error: BaseException) -> bool:
    """Whether a retry may succeed."""
    return isinstance(error, TRANSIENT_ERRORS) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    )
