"""Functions that make rows, over random arrays and maps: the answer of a run is that of Spark in batch."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.campaigns.texts_on_spark import examine

ORDERS = """
    CREATE STREAMING TABLE orders (
        id INT, tags ARRAY<STRING>, prices MAP<STRING, INT>, items ARRAY<STRUCT<sku: STRING, quantity: INT>>,
        at TIMESTAMP
    ) TBLPROPERTIES ('time' = 'at', 'watermark' = '1 minute');
"""
QUERIES = """
    SELECT a.tag, upper(b.tag) AS other FROM orders
    LATERAL VIEW explode(tags) a AS tag LATERAL VIEW OUTER explode(tags) b AS tag
    WHERE upper(b.tag) >= 'A' AND a.tag < b.tag;

    SELECT id, posexplode_outer(tags) FROM orders;

    SELECT window.start, name, SUM(price) AS total FROM orders LATERAL VIEW explode(prices) t AS name, price
    GROUP BY window(at, '10 minutes'), name;

    SELECT o.id, i.sku, 100 DIV i.quantity AS share
    FROM orders o LEFT JOIN LATERAL inline(o.items) AS i ON true WHERE i.quantity <> 0;

    SELECT id, name, value FROM orders
    LATERAL VIEW stack(2, 'count', size(tags), 'id', id) t AS name, value WHERE value > 0;

    SELECT id, tags FROM orders WHERE NOT exists(tags, t -> t > 'A') OR exists(tags, t -> upper(t) = 'A');
"""


def test_rows_of_arrays_and_maps_are_those_of_spark(spark: SparkSession) -> None:
    assert examine(spark, ORDERS + QUERIES, seed=1) == (6, [])
