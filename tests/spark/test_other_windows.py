"""Windows of other times and of windows, codes of times: the answer of a run is that of Spark in batch."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.campaigns.texts_on_spark import examine

CLICKS = """
    CREATE STREAMING TABLE clicks (
        sym STRING, ms BIGINT CHECK (ms BETWEEN -100000 AND 500000), level INT, at TIMESTAMP, made TIMESTAMP
    ) TBLPROPERTIES ('time' = 'at', 'watermark' = '1 minute');
    CREATE TABLE rooms (sym STRING, opened TIMESTAMP);
"""
QUERIES = """
    SELECT window(timestamp_millis(ms), '1 minute', '20 seconds', '5 seconds') AS w, COUNT(*) AS n FROM clicks
    GROUP BY window(timestamp_millis(ms), '1 minute', '20 seconds', '5 seconds');

    SELECT to_date(at) AS d, window(made, '1 hour') AS w, sym, MEDIAN(level) AS m FROM clicks
    GROUP BY to_date(at), window(made, '1 hour'), sym;

    SELECT window(r.opened, '1 minute') AS w, COUNT(*) AS n FROM clicks c LEFT JOIN rooms r ON c.sym = r.sym
    GROUP BY window(r.opened, '1 minute');

    SELECT w.start, w.end, SUM(n) AS n
    FROM (SELECT window(at, '1 minute') AS w, sym, COUNT(*) AS n FROM clicks GROUP BY w, sym) GROUP BY w;
"""


OF_WINDOWS = """
    WITH w AS (SELECT window(at, '7 minutes') AS win, sym, COUNT(*) AS n FROM clicks GROUP BY sym, win)
    SELECT window(win, '1 hour', '30 minutes') AS h, MEDIAN(n) AS n FROM w GROUP BY 1;

    WITH w AS (SELECT window(at, '7 minutes') AS win, sym, COUNT(*) AS n FROM clicks GROUP BY sym, win)
    SELECT window_time(win) AS t, win, n FROM w;

    WITH w AS (SELECT window(at, '7 minutes') AS win, sym, COUNT(*) AS n FROM clicks GROUP BY sym, win)
    SELECT date_trunc('hour', win.end) AS h, MEDIAN(n) AS n FROM w GROUP BY 1;

    SELECT sym, window(at, '10 minutes') AS w, COUNT(*) AS n FROM clicks
    GROUP BY sym, window(at, '10 minutes')
    HAVING COUNT(*) > 1 AND minute(w.start) >= 20;
"""

CODES = """
    SELECT concat(to_date(at), ' ', lpad(hour(at), 2, '0'), ':', minute(at)) AS h, MEDIAN(level) AS m
    FROM clicks GROUP BY 1 HAVING COUNT(*) > 1;

    SELECT year(at) * 100 + month(at) AS ym, sym, COUNT(DISTINCT level) AS n FROM clicks GROUP BY ym, sym;
"""


def test_windows_of_other_times_are_those_of_spark(spark: SparkSession) -> None:
    assert examine(spark, CLICKS + QUERIES, seed=1) == (4, [])


def test_windows_of_windows_are_those_of_spark(spark: SparkSession) -> None:
    assert examine(spark, CLICKS + OF_WINDOWS, seed=1) == (4, [])


def test_codes_of_times_are_those_of_spark(spark: SparkSession) -> None:
    assert examine(spark, CLICKS + CODES, seed=1) == (2, [])
