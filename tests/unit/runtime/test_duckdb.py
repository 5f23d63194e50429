"""The embedded DuckDB: tables come and go, and errors have one line."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.runtime.duckdb import DuckDb


def test_a_registered_table_is_visible_while_its_context_lasts() -> None:
    db = DuckDb()
    with db.register({"t": pa.table({"x": [1, 2]})}):
        assert db.query("SELECT sum(x) AS s FROM t", {}).to_pylist() == [{"s": 3}]
    with pytest.raises(MillpondError):
        db.query("SELECT * FROM t", {})


def test_created_tables_last_until_they_are_dropped() -> None:
    db = DuckDb()
    db.create_table("t", "SELECT 7 AS x")
    assert db.query_integers("SELECT x FROM t")["x"].tolist() == [7]
    db.drop_tables()
    with pytest.raises(MillpondError):
        db.query("SELECT * FROM t", {})


def test_a_value_that_does_not_fit_its_type_is_an_error_of_one_line() -> None:
    with pytest.raises(MillpondError, match="a value does not fit its type") as error:
        DuckDb().query("SELECT CAST(300 AS TINYINT)", {})
    assert "\n" not in str(error.value)
