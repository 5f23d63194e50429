"""INSERT and CREATE … AS: where the rows of a query go."""

from __future__ import annotations

from millpond.analysis.decide import decide
from millpond.analysis.repair.find import find_repairs
from millpond.frontend.outline import outline_text
from millpond.frontend.parse import parse

TABLE = "CREATE STREAMING TABLE orders (id INT, customer STRING, amount INT); "


def test_an_insert_is_its_query() -> None:
    (query,) = parse(
        TABLE + "INSERT INTO TABLE big (id, amount) SELECT id, amount FROM orders WHERE amount > 9"
    )
    assert query.columns == ("id", "amount")


def test_a_table_that_a_query_fills_can_be_read() -> None:
    text = TABLE + (
        "CREATE OR REFRESH STREAMING TABLE big (key, total) COMMENT 'large orders' AS"
        " SELECT id, amount FROM STREAM(orders) WHERE amount > 9;"
        " CREATE MATERIALIZED VIEW totals AS WITH b AS (SELECT * FROM big)"
        " SELECT key, SUM(total) FROM b GROUP BY key"
    )
    first, second = parse(text)
    assert first.columns == ("id", "amount")
    assert second.columns == ("key", "sum(total)")
    assert list(second.tables) == ["orders"]


def test_the_outline_has_the_query() -> None:
    text = TABLE + "INSERT INTO totals SELECT customer, SUM(amount) FROM orders GROUP BY customer"
    outline = outline_text(text)
    assert [table.name for table in outline.tables] == ["orders"]
    assert len(outline.queries) == 1


def test_a_repair_changes_the_query() -> None:
    text = TABLE + "INSERT INTO totals SELECT customer, SUM(amount) FROM orders GROUP BY customer"
    (query,) = parse(text)
    repairs = find_repairs(decide(query))
    assert repairs
    assert all("INSERT INTO totals SELECT" in repair.sql for repair in repairs)
