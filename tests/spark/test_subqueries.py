"""Subqueries over random rows of relations: the answer of a run is that of Spark in batch."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.campaigns.texts_on_spark import examine

TABLES = """
    CREATE STREAMING TABLE orders (id INT, item STRING, amount INT, at TIMESTAMP);
    CREATE TABLE prices (item STRING, price INT, grade INT, since TIMESTAMP);
"""
QUERIES = """
    SELECT id, amount * (SELECT MAX(price) FROM prices p WHERE p.item = o.item),
           1 + (SELECT COUNT(*) FROM prices p WHERE p.item = o.item AND p.since <= o.at) FROM orders o;

    SELECT id FROM orders WHERE amount > 3 OR item NOT IN (SELECT item FROM prices WHERE grade > 1);

    SELECT id, EXISTS (SELECT 1 FROM prices p WHERE p.item = o.item AND p.price < o.amount) FROM orders o
    WHERE item IN (SELECT item FROM prices GROUP BY item HAVING COUNT(*) > 1);

    SELECT date_trunc('hour', at) AS h, item, SUM(amount) FROM orders GROUP BY h, item
    HAVING SUM(amount) > (SELECT MIN(price) FROM prices p WHERE p.item = orders.item);

    SELECT id, r.price, r.grade FROM orders o LEFT JOIN LATERAL (SELECT price, grade FROM prices p
    WHERE p.item = o.item AND p.since <= o.at ORDER BY p.since DESC, price, grade LIMIT 1) r;
"""
WINDOWS = """
    SELECT o.id, p.late, p.early, p.total FROM orders o JOIN (
        SELECT item, LAG(price, 1, -1) OVER (PARTITION BY item ORDER BY since, price) AS late,
               SUM(price) OVER (PARTITION BY item ORDER BY since RANGE BETWEEN INTERVAL 3 MINUTES PRECEDING
                                AND CURRENT ROW) AS early,
               COUNT(*) OVER (PARTITION BY upper(item)) AS total
        FROM prices WHERE grade > 0) p ON p.item = o.item;
"""


def test_values_of_subqueries_are_those_of_spark(spark: SparkSession) -> None:
    assert examine(spark, TABLES + QUERIES, seed=3) == (5, [])


def test_window_functions_over_a_relation_are_those_of_spark(spark: SparkSession) -> None:
    assert examine(spark, TABLES + WINDOWS, seed=3) == (1, [])
