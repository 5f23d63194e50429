"""LATERAL with ORDER BY … LIMIT: the first rows for each row of another table, as DuckDB finds them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import pytest

from millpond.analysis.decide import decide
from millpond.frontend.parse import parse
from millpond.query.model import Query
from millpond.runtime.query_sql import evaluate_worlds

DECLARED = """
CREATE STREAMING TABLE sales (shop STRING, town STRING, item STRING, price INT)
    TBLPROPERTIES ('cardinality.shop' = '50', 'cardinality.town' = '9');
CREATE STREAMING TABLE shops (shop STRING, town STRING);
"""
TOP = "SELECT x.item, x.price FROM sales x WHERE {} ORDER BY x.price DESC, x.item LIMIT 2"
# Queries that read the sales alone: the list of shops adds nothing.
ALONE = [
    f"SELECT s.shop, top.item FROM (SELECT DISTINCT shop FROM sales) s"
    f" JOIN LATERAL ({TOP.format('x.shop = s.shop')}) AS top ON TRUE",
    f"SELECT top.price + 1 AS more, s.store AS at FROM (SELECT DISTINCT x.shop AS store FROM sales x) AS s"
    f" JOIN LATERAL ({TOP.format('s.store = x.shop AND x.price > 3')}) AS top ON top.price < 9"
    " WHERE s.store <> 'b'",
    f"SELECT s.shop, s.town, top.item FROM (SELECT DISTINCT town, shop FROM sales) s"
    f" CROSS JOIN LATERAL ({TOP.format('x.shop = s.shop AND x.town = s.town')}) AS top",
]
# Those that need the table on the left.
JOINED = [
    f"SELECT s.shop, top.item FROM (SELECT DISTINCT shop FROM shops) s"
    f" JOIN LATERAL ({TOP.format('x.shop = s.shop')}) AS top ON TRUE",
    f"SELECT s.shop, top.item FROM (SELECT shop FROM sales) s"
    f" JOIN LATERAL ({TOP.format('x.shop = s.shop')}) AS top ON TRUE",
    f"SELECT s.shop, top.item FROM (SELECT DISTINCT shop, town FROM sales) s"
    f" JOIN LATERAL ({TOP.format('x.shop = s.shop')}) AS top ON TRUE",
    f"SELECT s.shop, top.item FROM (SELECT DISTINCT town AS shop FROM sales) s"
    f" JOIN LATERAL ({TOP.format('x.shop = s.shop')}) AS top ON TRUE",
    f"SELECT s.*, top.item FROM (SELECT DISTINCT shop FROM sales) s"
    f" JOIN LATERAL ({TOP.format('x.shop = s.shop')}) AS top ON TRUE",
    f"SELECT * FROM (SELECT DISTINCT shop FROM sales) s"
    f" JOIN LATERAL ({TOP.format('x.shop = s.shop')}) AS top ON TRUE",
    f"SELECT s.shop, top.item FROM (SELECT DISTINCT shop FROM sales WHERE price > 4) s"
    f" JOIN LATERAL ({TOP.format('x.shop = s.shop')}) AS top ON TRUE",
]


def read(text: str) -> Query:
    (query,) = parse(DECLARED + text)
    return query


@pytest.mark.parametrize("text", [*ALONE, *JOINED])
def test_the_answer_is_that_of_duckdb(text: str) -> None:
    rng = random.Random(text)
    for _ in range(10):
        sales = [
            (rng.choice(["a", "b", "c", None]), rng.choice(["b", "m", None]), rng.choice("xyz"), price)
            for price in rng.sample(range(12), 9)
        ]
        shops = [(rng.choice(["a", "b", None]), "m") for _ in range(3)]
        with duckdb.connect() as database:
            database.execute("CREATE TABLE sales (shop VARCHAR, town VARCHAR, item VARCHAR, price INT)")
            database.execute("CREATE TABLE shops (shop VARCHAR, town VARCHAR)")
            database.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", sales)
            database.executemany("INSERT INTO shops VALUES (?, ?)", shops)
            expected = Counter(database.execute(text).fetchall())
        query = read(text)
        world: dict[str, Any] = {
            "sales": [dict(zip(("shop", "town", "item", "price"), row, strict=True)) for row in sales],
            "shops": [dict(zip(("shop", "town"), row, strict=True)) for row in shops],
        }
        assert evaluate_worlds(query, [world]) == [expected]


@pytest.mark.parametrize("text", ALONE)
def test_a_list_of_the_keys_is_left_out(text: str) -> None:
    assert list(read(text).declared_tables) == ["sales"]
    assert len(read(text).selects[0].occurrences) == 1
    assert decide(read(text)).outcome == "bounded"


@pytest.mark.parametrize("text", JOINED)
def test_another_table_is_joined(text: str) -> None:
    assert len(read(text).selects[0].occurrences) == 2


def test_columns_keep_their_names() -> None:
    assert read(ALONE[1]).columns == ("more", "at")
    assert read(ALONE[0]).columns == ("shop", "item")
