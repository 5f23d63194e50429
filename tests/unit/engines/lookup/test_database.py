"""Errors of databases: one clear line each, and retries only where they can help."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, ProgrammingError

from millpond.engines.lookup.database import connect, find_table, read_columns
from millpond.engines.lookup.declaration import LookupRelation, read_declaration
from millpond.engines.lookup.row_fetcher import RowFetcher
from millpond.errors import MillpondError, RunError
from millpond.query import types as domains
from millpond.query.model import Column, SourceSpec, Table
from tests.support.lookups import INT_LABEL, relation, store

COLUMNS = (Column("K", domains.INT), Column("LABEL", domains.STRING))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return store(tmp_path / "r.db", "R", INT_LABEL, [(1, "a"), (2, "b")])


class Failing:
    """A database whose first ``times`` connections fail."""

    def __init__(self, times: int, error: Callable[[], Exception]) -> None:
        self.left, self.error = times, error
        self.pauses: list[float] = []

    def connect(self, relation: LookupRelation) -> Any:
        if self.left:
            self.left -= 1
            raise self.error()
        return connect(relation)

    def fetcher(self, url: str, retries: int = 4) -> RowFetcher:
        table = relation(url, INT_LABEL, 3, retries=retries)
        return RowFetcher(table, ["K"], ["LABEL"], sleep=self.pauses.append, connect=self.connect)


def refuse_connection() -> Exception:
    return OperationalError("SELECT 1", {}, Exception("connection refused"))


def test_transient_errors_are_retried_with_growing_pauses(url: str) -> None:
    failing = Failing(3, refuse_connection)
    assert failing.fetcher(url).fetch([pa.array([2, 7], pa.int32())]).to_pylist() == [{"K": 2, "LABEL": "b"}]
    assert failing.pauses == [0.5, 1.0, 2.0]


def test_an_error_that_persists_ends_the_run(url: str) -> None:
    failing = Failing(99, refuse_connection)
    with pytest.raises(
        RunError, match=r"^R: reading the database failed after 3 attempts: connection refused$"
    ):
        failing.fetcher(url, retries=2).fetch([pa.array([2], pa.int32())])
    assert failing.pauses == [0.5, 1.0]


def test_permanent_errors_are_not_retried(url: str) -> None:
    failing = Failing(99, lambda: ProgrammingError("SELECT 1", {}, Exception("permission denied")))
    with pytest.raises(RunError, match=r"^R: reading the database failed: permission denied$"):
        failing.fetcher(url).fetch([pa.array([2], pa.int32())])
    assert failing.pauses == []


def test_a_fetch_is_retried_until_a_missing_file_is_back(url: str, tmp_path: Path) -> None:
    table = relation(url, INT_LABEL, 3)
    path, away = tmp_path / "r.db", tmp_path / "away.db"
    path.rename(away)

    def back(seconds: float) -> None:
        away.rename(path)

    fetcher = RowFetcher(table, ["K"], ["LABEL"], sleep=back)
    assert fetcher.fetch([pa.array([1], pa.int32())]).num_rows == 1
    assert not away.exists()


def test_a_fetch_waits_for_a_locked_file(url: str, tmp_path: Path) -> None:
    table = relation(url, INT_LABEL, 3, timeout=0.05, retries=1)
    locking = sqlite3.connect(tmp_path / "r.db", isolation_level=None)
    locking.execute("BEGIN EXCLUSIVE")
    with pytest.raises(RunError, match="database is locked"):
        RowFetcher(table, ["K"], [], sleep=lambda seconds: None).fetch([pa.array([1], pa.int32())])

    def unlock(seconds: float) -> None:
        locking.execute("ROLLBACK")

    unlocked = RowFetcher(table, ["K"], [], sleep=unlock)
    assert unlocked.fetch([pa.array([1], pa.int32())]).num_rows == 1
    locking.close()


def test_all_keys_are_fetched_in_one_statement(url: str) -> None:
    fetcher = RowFetcher(relation(url, INT_LABEL, 3), ["K"], ["LABEL"])
    fetcher.fetch([pa.array([1], pa.int32())])
    seen: list[str] = []
    assert fetcher._engine is not None
    sa.event.listen(fetcher._engine, "before_cursor_execute", lambda c, cur, text, *rest: seen.append(text))
    fetcher.fetch([pa.array(range(20_000), pa.int32())])
    assert len(seen) == 1 and "'" not in seen[0]


# --- errors before the run starts ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "dbtable", "column", "message"),
    [
        ("nosuch://x/y", "R", "K", r"unknown type of database nosuch in its url; write postgresql\+"),
        ("rubbish", "R", "K", "its url is not a database URL; write postgresql"),
        (
            "mysql+pymysql://x/y",
            "R",
            "K",
            "the database driver pymysql is not installed; pip install 'pymysql'",
        ),
        (
            "sqlite:////nowhere/r.db",
            "R",
            "K",
            "cannot connect to the database: no such file: /nowhere/r.db; start the database",
        ),
        (
            "postgresql+psycopg://a:secret@127.0.0.1:1/x",
            "R",
            "K",
            "cannot connect to the database: .*refused",
        ),
        ("{url}", "S", "K", "the database has no table S; correct the option dbtable"),
        ("{url}", "R", "X", "the table in the database has no column X; it has K, LABEL"),
    ],
)
def test_a_wrong_url_table_or_column_is_reported_in_one_line(
    url: str, address: str, dbtable: str, column: str, message: str
) -> None:
    with pytest.raises(MillpondError, match=f"^R: {message}") as error:
        find_table(LookupRelation("R", address.format(url=url), dbtable, (Column(column, domains.INT),), 5))
    assert "secret" not in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": ""}, "R: the option url is missing; add url 'postgresql"),
        ({"dbtable": ""}, "R: the option dbtable is missing; add dbtable 'R'"),
        ({"memory": "0"}, "R: cannot cache 0 rows; give from 1 to 100,000,000"),
        ({"memory": "many"}, "R: memory 'many' is not a number of rows; write memory '10000'"),
        ({"policy": "best"}, "R: there is no policy 'best' for lookups; choose from auto, heeb"),
        ({"ttl": "soon"}, "R: ttl 'soon' is not a duration; write '10 seconds'"),
        ({"retries": "-1"}, "R: retries '-1' is not a number; write retries '4'"),
        ({"driver": "y"}, "R: unknown option driver; the options of a lookup relation are url, "),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    given = {"url": "x", "dbtable": "R", "memory": "5", **options}
    with pytest.raises(MillpondError, match=f"^{message}"):
        read_declaration(Table("R", COLUMNS, False, source=SourceSpec("lookup", given)))


def test_the_number_of_rows_to_cache_is_required() -> None:
    table = Table("R", COLUMNS, False, source=SourceSpec("lookup", {"url": "x", "dbtable": "R"}))
    with pytest.raises(MillpondError, match=r"^R: the number of rows to cache is missing; add memory 'N'"):
        read_declaration(table)
    assert read_declaration(table, 9).memory == 9


def test_options_of_the_declaration_override_the_defaults() -> None:
    options = {"URL": "sqlite:///r.db", "dbtable": "R", "Memory": "7", "ttl": "10 minutes"}
    found = read_declaration(
        Table("R", COLUMNS, False, source=SourceSpec("lookup", options)), 3, "lru", Path("/data")
    )
    assert (found.memory, found.policy, found.ttl) == (7, "lru", 600.0)
    assert found.url == "sqlite:////data/r.db" and "sqlite" not in repr(found)


def test_names_in_the_database_may_differ_in_case(tmp_path: Path) -> None:
    columns = {"k": domains.INT, "Label": domains.STRING}
    url = store(tmp_path / "x.db", "r", columns, [(1, "a")])
    table = relation(url, INT_LABEL, 3)
    assert (table.table, [found.name for found in table.columns]) == ("r", ["k", "Label"])
    assert RowFetcher(table, ["K"], ["LABEL"]).fetch([pa.array([1], pa.int32())]).to_pylist() == [
        {"K": 1, "LABEL": "a"}
    ]


def test_columns_are_read_from_the_database_without_unsupported_types(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "r.db")
    connection.execute(
        "CREATE TABLE R (a INTEGER NOT NULL, b TEXT, c NUMERIC(9, 2), d DATE, e TIMESTAMP, f REAL, g BLOB)"
    )
    connection.close()
    found = read_columns(LookupRelation("R", f"sqlite:///{tmp_path}/r.db", "R", (), 1))
    assert [(c.name, c.type.name, c.nullable) for c in found] == [
        ("a", "BIGINT", False), ("b", "STRING", True), ("c", "DECIMAL(9,2)", True),
        ("d", "DATE", True), ("e", "TIMESTAMP", True), ("f", "DOUBLE", True),
    ]  # fmt: skip
