"""Shorthands against DuckDB, which reads them itself."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

from millpond.frontend.parse import parse
from millpond.runtime.query_sql import evaluate_worlds

TABLE = "CREATE STREAMING TABLE sales (shop STRING, item STRING, price INT); "
ROWS = [
    ("a", "x", 1),
    ("a", "x", 2),
    ("a", "y", 3),
    ("b", "x", 4),
    ("b", None, 5),
    (None, "y", 6),
]
QUERIES = [
    "SELECT shop, COUNT(*), SUM(price) FROM sales GROUP BY ALL",
    "SELECT shop, item, SUM(price) FROM sales GROUP BY ROLLUP (shop, item)",
    "SELECT shop, item, SUM(price) FROM sales GROUP BY CUBE (shop, item)",
    "SELECT shop, item, COUNT(*) FROM sales GROUP BY GROUPING SETS ((shop), (item), (shop, item), ())",
    "SELECT shop, COUNT(*), GROUPING(shop) FROM sales GROUP BY ROLLUP (shop) HAVING COUNT(*) > 1",
    "SELECT COALESCE(shop, 'all') AS shop, MAX(price) FROM sales GROUP BY ROLLUP (shop)",
    "SELECT upper(shop) AS u, COUNT(*) FROM sales GROUP BY ROLLUP (u)",
    "SELECT item, MAX(shop), COUNT(*) FROM sales GROUP BY item, ROLLUP (shop)",
    "SELECT price * 2 AS double, double + 1 AS more, more || shop AS text FROM sales",
    "SELECT shop, SUM(price) AS total, total * 2 AS double FROM sales GROUP BY shop",
    "SELECT price + 1 AS item, item AS same FROM sales",
    "SELECT shop FROM sales WHERE (shop, price) IN (('a', 1), ('b', 4), ('b', 9))",
]


def evaluate(query: str, rows: list[tuple[str | None, str | None, int]]) -> Counter[tuple[object, ...]]:
    (read,) = parse(TABLE + query)
    world = {"sales": [dict(zip(("shop", "item", "price"), row, strict=True)) for row in rows]}
    (answer,) = evaluate_worlds(read, [world])
    return answer


def ask_duckdb(query: str, rows: list[tuple[str | None, str | None, int]]) -> Counter[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE sales (shop VARCHAR, item VARCHAR, price INT)")
        if rows:
            connection.executemany("INSERT INTO sales VALUES (?, ?, ?)", rows)
        return Counter(connection.execute(query).fetchall())


@pytest.mark.parametrize("query", QUERIES)
def test_a_shorthand_has_the_answer_of_duckdb(query: str) -> None:
    assert evaluate(query, ROWS) == ask_duckdb(query, ROWS)


def test_grouping_sets_have_no_rows_without_input() -> None:
    """As in Spark; a plain COUNT(*) would be a row with 0."""
    assert evaluate("SELECT shop, COUNT(*) FROM sales GROUP BY ROLLUP (shop)", []) == Counter()


def test_like_any_and_all() -> None:
    found = evaluate(
        "SELECT price FROM sales WHERE item LIKE ANY ('x%', '%z') AND shop NOT LIKE ALL ('b')", ROWS
    )
    assert found == Counter([(1,), (2,)])


def test_star_leaves_columns_out() -> None:
    """DuckDB's word for EXCEPT is EXCLUDE."""
    query = "SELECT * {} (price, ITEM), item AS last FROM sales"
    assert parse(TABLE + query.format("EXCEPT"))[0].columns == ("shop", "last")
    assert evaluate(query.format("EXCEPT"), ROWS) == ask_duckdb(query.format("EXCLUDE"), ROWS)


def test_a_hint_is_left_out() -> None:
    assert parse(TABLE + "SELECT /*+ REPARTITION(3) */ shop FROM sales")[0].columns == ("shop",)
