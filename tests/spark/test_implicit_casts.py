"""Comparisons of values of different types: the answer of a run is that of Spark in batch."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.campaigns.texts_on_spark import examine

TABLES = """
    CREATE STREAMING TABLE v (
        s STRING, n INT, x DOUBLE, m DECIMAL(10, 2), f FLOAT, d DATE, ok BOOLEAN, at TIMESTAMP, k TINYINT
    ) TBLPROPERTIES ('watermark' = '1 minute');
    CREATE STREAMING TABLE w (s STRING, n INT, at TIMESTAMP) TBLPROPERTIES ('watermark' = '1 minute');
    CREATE TABLE r (b BIGINT, d DATE, z STRING);
"""
QUERIES = """
    SELECT k, s FROM v
    WHERE s RLIKE '^[0-9]+$' AND (s BETWEEN 1 AND n OR s IN (200, 1, 30) OR s > m OR s < 3.5);

    SELECT k, n, x, m FROM v WHERE n IN ('1', '2', ' 30 ') OR x > '1.5' OR m <= '3.5' OR f < '1e1';

    SELECT k, COUNT(*) AS c FROM v WHERE ok = 'yes' AND d <= at AND at >= DATE '2026-03-01' GROUP BY k;

    SELECT v.k, r.z, w.s FROM v
    JOIN w ON v.s RLIKE '^[0-9]+$' AND v.s = w.n AND w.at BETWEEN v.at AND v.at + INTERVAL '5 minutes'
    JOIN r ON w.s RLIKE '^[0-9]+$' AND r.b = w.s AND r.d < v.at;
"""


def test_values_are_cast_as_spark_casts_them(spark: SparkSession) -> None:
    assert examine(spark, TABLES + QUERIES, seed=1) == (4, [])
