"""Databases: connecting to one, what is in it, and what it says when something is wrong."""

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

# What says that a database is not there, or not now; anything else will not pass by itself.
TRANSIENT_ERRORS = (OperationalError, InterfaceError, sa.exc.TimeoutError, OSError)
# Drivers that come with an extra of this package.
_EXTRAS = {"psycopg": "millpond[postgres]"}


@dataclass(frozen=True)
class DatabaseColumn:
    """A column as the database has it: its name there, and whether its moments have a time zone."""

    column: Column
    name: str
    zoned: bool = False

    @property
    def type(self) -> Any:
        """What SQLAlchemy calls the declared type."""
        if self.column.type == domains.TIMESTAMP:
            return sa.DateTime(timezone=self.zoned)
        return self.column.type.names.sqlalchemy.call(sa)


@dataclass(frozen=True)
class DatabaseTable:
    """A relation as its database has it."""

    relation: LookupRelation
    schema: str | None
    table: str
    columns: tuple[DatabaseColumn, ...]

    def column(self, name: str) -> DatabaseColumn:
        return next(found for found in self.columns if found.column.name == name)


def connect(relation: LookupRelation) -> Engine:
    """A way to the database, not yet taken.  Every read sees what is there at its moment."""
    name = one_line(relation.name)
    try:
        url = make_url(relation.url)
        driver = url.get_dialect().import_dbapi
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            driver()
        url, arguments = _settings(url, relation.timeout)
        return sa.create_engine(
            url, connect_args=arguments, pool_size=1, max_overflow=0, isolation_level="AUTOCOMMIT"
        )
    except ModuleNotFoundError as error:
        package = error.name or "its driver"
        wanted = _EXTRAS.get(package, package)
        message = f"{name}: the driver of its database, {package}, is not installed"
        raise MillpondError(message, remedy=f"pip install '{wanted}'") from None
    except ImportError as error:
        raise MillpondError(
            f"{name}: the driver of its database does not load: {one_line(str(error), 200)}"
        ) from None
    except NoSuchModuleError:
        dialect = one_line(relation.url.partition(":")[0], 60)
        message = f"{name}: there is no kind of database called {dialect}"
        raise MillpondError(message, remedy="write postgresql+psycopg://… or sqlite:///…") from None
    except (ArgumentError, ValueError):
        message = f"{name}: its url is not one of a database"
        raise MillpondError(message, remedy="write postgresql+psycopg://user@host/database") from None


def _settings(url: URL, timeout: float) -> tuple[URL, dict[str, Any]]:
    """The URL and what its driver is told of time limits.  A file of SQLite is read, never created."""
    match url.get_backend_name():
        case "postgresql" if url.get_driver_name() in ("psycopg", "psycopg2"):
            options = f"-c statement_timeout={ceil(timeout * 1000)}"
            given = url.query.get("options")
            told = f"{given} {options}" if isinstance(given, str) else options
            url = url.difference_update_query(["options"])
            return url, {
                "connect_timeout": max(2, ceil(timeout)),
                "tcp_user_timeout": ceil(timeout * 1000),  # for a server that no longer answers at all
                "options": told,
            }
        case "sqlite" if url.database and not url.database.startswith((":memory:", "file:")):
            if not Path(url.database).is_file():
                raise FileNotFoundError(f"there is no file {one_line(url.database, 200)}")
            path = quote(Path(url.database).absolute().as_posix())
            return url.set(database=f"file:{path}", query={"mode": "ro", "uri": "true"}), {"timeout": timeout}
        case "sqlite":
            return url, {"timeout": timeout}
    return url, {}


def describe_error(error: BaseException) -> str:
    """What a database says of itself, in one line without the statement."""
    told = getattr(error, "orig", None) or error
    text = " ".join(str(told).split())
    return one_line(text.split(" [SQL:")[0], 200) or type(told).__name__


# --- what is there -------------------------------------------------------------------------------------


def find_table(relation: LookupRelation) -> DatabaseTable:
    """The relation in its database; MillpondError where it, or a column of it, is not there."""
    name = one_line(relation.name)
    try:
        engine = connect(relation)
        try:
            schema, table, columns = _columns(engine, relation)
        finally:
            engine.dispose()
    except (SQLAlchemyError, OSError) as error:
        message = f"{name}: its database does not answer: {describe_error(error)}"
        raise MillpondError(message, remedy="start it, or correct the url") from None
    found = [_matched(relation, column, columns) for column in relation.columns]
    return DatabaseTable(relation, schema, table, tuple(found))


def _columns(engine: Engine, relation: LookupRelation) -> tuple[str | None, str, list[Any]]:
    """Where the table is, and its columns.  Databases differ in the case of names that nobody quoted."""
    inspector = sa.inspect(engine)
    before, _, wanted = relation.dbtable.rpartition(".")
    schema = before or None
    if schema is not None:
        schema = _alike(schema, inspector.get_schema_names()) or schema
    try:
        known = [*inspector.get_table_names(schema), *inspector.get_view_names(schema)]
        table = _alike(wanted, known)
        if table is not None:
            return schema, table, list(inspector.get_columns(table, schema))
    except NoSuchTableError:
        pass
    message = f"{one_line(relation.name)}: its database has no table {one_line(relation.dbtable)}"
    raise MillpondError(message, remedy="correct dbtable")


def _alike(wanted: str, known: Iterable[str]) -> str | None:
    """The name as it is known: spelled so, or the only one that differs in case."""
    names = list(known)
    if wanted in names:
        return wanted
    close = [name for name in names if name.lower() == wanted.lower()]
    return close[0] if len(close) == 1 else None


def _matched(relation: LookupRelation, column: Column, columns: list[Any]) -> DatabaseColumn:
    actual = _alike(column.name, (each["name"] for each in columns))
    if actual is None:
        message = f"{one_line(relation.name)}: its table has no column {one_line(column.name)}"
        raise MillpondError(message, remedy=f"it has {one_line(', '.join(c['name'] for c in columns), 200)}")
    kind = next(each["type"] for each in columns if each["name"] == actual)
    return DatabaseColumn(column, actual, bool(getattr(kind, "timezone", False)))


def read_columns(relation: LookupRelation) -> tuple[Column, ...]:
    """The columns of the table in the database; those of types outside the language are left out."""
    engine = connect(relation)
    try:
        columns = _columns(engine, relation)[2]
        whole = domains.BIGINT if engine.dialect.name == "sqlite" else domains.INT  # SQLite has but one kind
    except (SQLAlchemyError, OSError) as error:
        message = f"{one_line(relation.name)}: its database does not answer: {describe_error(error)}"
        raise MillpondError(message, remedy="start it, or correct the url") from None
    finally:
        engine.dispose()
    found = [(each["name"], _sql_type(each["type"], whole), each["nullable"]) for each in columns]
    return tuple(Column(name, kind, nullable) for name, kind, nullable in found if kind is not None)


def _sql_type(kind: Any, whole: SqlType) -> SqlType | None:
    match kind:
        case sa.Boolean():
            return domains.BOOLEAN
        case sa.BigInteger():
            return domains.BIGINT
        case sa.SmallInteger():
            return domains.SMALLINT
        case sa.Integer():
            return whole
        case sa.Float():
            return domains.DOUBLE
        case sa.Numeric():
            # Without a precision a number may be of any size; this is the widest there is.
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
    """Whether it may help to try again."""
    return isinstance(error, TRANSIENT_ERRORS) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    )
