"""Queries of several blocks on Spark: chains of operators in one streaming query."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millpond.cli import main as cli
from tests.campaigns.blocks_on_spark import examine
from tests.campaigns.native_windows import read_lines
from tests.spark.test_native_windows import feed, rejected, run, seconds

CLICKS = """
CREATE STREAMING TABLE clicks (user STRING, n INT CHECK (n < 100), at TIMESTAMP)
  USING json OPTIONS (path 'clicks', maxFilesPerTrigger '1') TBLPROPERTIES ('watermark' = '10 seconds');
"""
BUSIEST = """
WITH numbered AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY user, at ORDER BY n) AS copy FROM clicks
), per_user AS (
  SELECT window.start AS since, user, SUM(n) AS n FROM numbered WHERE copy = 1
  GROUP BY window(at, '20 seconds'), user
)
SELECT since, MAX(n) AS most, COUNT(*) AS users FROM per_user GROUP BY since;
"""


def test_a_chain_continues_after_a_restart_and_passes_rejected_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Three operators: the first removes duplicates, the others are windows of windows."""
    (tmp_path / "query.sql").write_text(CLICKS + BUSIEST)
    feed(tmp_path, 0, ("a", 1, 1), ("b", 2, 3), ("a", 3, 19), ("b", 1, 25))
    feed(tmp_path, 1, ("a", 4, 45), ("a", 5, 35), ("a", 9, 45))
    feed(tmp_path, 2, ("a", 6, 2), ("a", 8, None), ("b", 500, 71))  # late, no timestamp, CHECK broken
    first = [(seconds(0), 4, 2), (seconds(20), 5, 2), (seconds(40), 4, 1)]
    assert run(tmp_path) == first
    reasons = {line["reason"].partition(" ")[0] for line in rejected(tmp_path)}
    assert len(rejected(tmp_path)) == 3 and reasons == {"late:", "at", "CHECK"}
    metrics = read_lines(tmp_path, "metrics")
    assert sum(line["input_rows"] for line in metrics) == 10
    assert max(line["state_entries"] for line in metrics) > 0 and metrics[-1]["state_entries"] == 0

    feed(tmp_path, 3, ("c", 7, 61), ("c", 1, 59))  # the windows until 60 s have been written
    assert run(tmp_path) == [*first, (seconds(60), 7, 1)]
    assert len(rejected(tmp_path)) == 4


def test_rows_of_a_join_with_a_relation_count_in_any_order(spark: SparkSession, tmp_path: Path) -> None:
    """An argument over two tables is computed from the rows of the join, of which none waits or is late."""
    query = """
        CREATE TABLE users (name STRING, age INT) USING json OPTIONS (path 'users.json');
        SELECT n % 2 AS odd, MAX(abs(n - age)) AS gap, SUM(n * COALESCE(age, 7)) AS total, COUNT(*) AS n
        FROM clicks LEFT JOIN users ON user = name GROUP BY n % 2;
    """
    (tmp_path / "query.sql").write_text(CLICKS + query)
    (tmp_path / "users.json").write_text('{"name": "a", "age": 4}\n{"name": "b", "age": 2}\n')
    feed(tmp_path, 0, ("a", 1, 90), ("b", 2, 95))
    feed(tmp_path, 1, ("b", 9, 1), ("a", 6, None), ("b", 500, 2), ("c", 3, 99))
    written = sorted(run(tmp_path), key=lambda row: row[-1])  # by revision
    latest = {row[0]: row[1:-1] for row in written}
    assert latest == {0: (2, 28, 2), 1: (7, 43, 3)}
    assert [line["reason"].partition(" ")[0] for line in rejected(tmp_path)] == ["CHECK"]
    metrics = read_lines(tmp_path, "metrics")
    assert [line["input_rows"] for line in metrics] == [2, 4]  # and no batch at the end of the input


def test_limit_counts_the_rows_of_all_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Any rows of the answer, and no more of them in a later run."""
    (tmp_path / "query.sql").write_text(f"{CLICKS} SELECT user, n FROM clicks WHERE n > 1 LIMIT 3;")
    feed(tmp_path, 0, ("a", 1, 1), ("a", 2, 2), ("b", 3, 3))
    feed(tmp_path, 1, ("a", 4, 4), ("b", 5, 5), ("b", 500, 6))
    first = run(tmp_path)
    assert first in [sorted([("a", 2), ("b", 3), last]) for last in (("a", 4), ("b", 5))]
    assert len(rejected(tmp_path)) == 1
    feed(tmp_path, 2, ("c", 6, 7))
    assert run(tmp_path) == first


@pytest.mark.parametrize("seed", [6])
def test_random_queries_of_several_blocks_give_duckdbs_answer(spark: SparkSession, seed: int) -> None:
    runs, problem = examine(spark, seed)
    assert runs and problem is None, problem


def test_rows_of_a_block_are_filtered_and_projected(spark: SparkSession, tmp_path: Path) -> None:
    query = """
        SELECT upper(user) AS who, n * 2 AS twice
        FROM (SELECT user, window.end AS till, SUM(n) AS n FROM clicks
              GROUP BY user, window(at, '20 seconds'))
        WHERE n > 3 AND till > TIMESTAMP '2024-01-01 00:00:20';
    """
    (tmp_path / "query.sql").write_text(CLICKS + query)
    feed(tmp_path, 0, ("a", 5, 1), ("b", 4, 25), ("c", 3, 26))
    expected: list[tuple[Any, ...]] = [("B", 8)]
    assert run(tmp_path) == expected


def test_united_streams_are_counted_per_window(spark: SparkSession, tmp_path: Path) -> None:
    query = """
        SELECT kind, window.start AS since, COUNT(*) AS n
        FROM (SELECT 'any' AS kind, at FROM clicks UNION ALL SELECT user, at FROM clicks WHERE n > 3)
        GROUP BY kind, window(at, '20 seconds');
    """
    (tmp_path / "query.sql").write_text(CLICKS + query)
    feed(tmp_path, 0, ("a", 5, 1), ("b", 1, 25), ("a", 4, 12))
    feed(tmp_path, 1, ("b", 7, 61), ("a", 9, 24), ("a", 9, None))
    counted = [("a", 0, 2), ("a", 20, 1), ("any", 0, 2), ("any", 20, 2), ("any", 60, 1), ("b", 60, 1)]
    assert sorted(run(tmp_path)) == [(kind, seconds(since), n) for kind, since, n in counted]
    assert [line["reason"].partition(" ")[0] for line in rejected(tmp_path)] == ["at"]


def test_words_of_lines_are_counted_per_window(spark: SparkSession, tmp_path: Path) -> None:
    """A line without words has no row."""
    declaration = CLICKS.replace("user STRING", "user ARRAY<STRING>")
    query = """
        SELECT upper(word) AS word, window.start AS since, COUNT(*) AS n
        FROM clicks LATERAL VIEW explode(user) words AS word GROUP BY upper(word), window(at, '20 seconds')
    """
    (tmp_path / "query.sql").write_text(declaration + query)
    feed(tmp_path, 0, (["a", "b", "A"], 1, 1), ([], 1, 2), (None, 1, 3), (["b", None], 2, 25))
    counts = [("A", seconds(0), 2), ("B", seconds(0), 1), ("B", seconds(20), 1)]
    assert cli.main(["run", str(tmp_path / "query.sql"), "--once", "--output", str(tmp_path / "out")]) == 0
    rows = (tuple(line.values()) for line in read_lines(tmp_path / "out", "part-*"))
    assert Counter(rows) == Counter([*counts, (None, seconds(20), 1)])


def test_joined_days_are_grouped_by_their_date(spark: SparkSession, tmp_path: Path) -> None:
    """The rows of the join, with what is computed of both sides, are final with the day."""
    query = """
        WITH even AS (
          SELECT user, to_date(at) AS day, SUM(n) AS n FROM clicks WHERE n % 2 = 0 GROUP BY user, to_date(at)
        ), odd AS (
          SELECT user, to_date(at) AS day, SUM(n) AS n FROM clicks WHERE n % 2 = 1 GROUP BY user, to_date(at)
        )
        SELECT even.day, SUM(even.n) AS evens, SUM(COALESCE(odd.n, 0)) AS odds,
               COUNT_IF(odd.n > even.n) AS more
        FROM even LEFT JOIN odd ON even.user = odd.user AND even.day = odd.day GROUP BY even.day;
    """
    (tmp_path / "query.sql").write_text(CLICKS + query)
    batches = [
        [("a", 2, "01T00:00:01"), ("b", 4, "01T00:01:25"), ("a", 7, "01T23:59:55"), ("c", 6, "01T23:59:59")],
        [("a", 1, "01T23:59:58"), ("a", 8, "02T00:00:01"), ("b", 3, "03T05:00:00"), ("b", 2, "03T05:00:01")],
        [("c", 10, "03T05:00:00")],
    ]
    for number, rows in enumerate(batches):
        lines = [{"user": user, "n": n, "at": f"2024-01-{at}.000Z"} for user, n, at in rows]
        feed(tmp_path, number, *map(json.dumps, lines))
    days = [f"2024-01-0{day}" for day in (1, 2, 3)]
    assert run(tmp_path) == [(days[0], 12, 8, 1), (days[1], 8, 0, 0), (days[2], 12, 3, 1)]


def test_the_last_row_of_each_window_is_joined(spark: SparkSession, tmp_path: Path) -> None:
    """The greatest timestamp of a window is earlier than the end of the window, which is its time."""
    query = """
        WITH last AS (SELECT user, MAX(at) AS at FROM clicks GROUP BY user, window(at, '20 seconds'))
        SELECT c.user, c.n FROM clicks c JOIN last l ON c.user = l.user AND c.at = l.at;
    """
    (tmp_path / "query.sql").write_text(CLICKS + query)
    feed(tmp_path, 0, ("a", 1, 1), ("a", 2, 15), ("b", 3, 3), ("a", 4, 12))
    feed(tmp_path, 1, ("b", 5, 25), ("a", 6, 61), ("b", 7, 24), ("a", 8, 61))
    assert run(tmp_path) == [("a", 2), ("a", 6), ("a", 8), ("b", 3), ("b", 5)]


def test_ranks_of_a_join_in_a_partition_of_its_later_rows(spark: SparkSession, tmp_path: Path) -> None:
    """The partition closes with the timestamp of the later row, not with that of the earlier one."""
    query = """
        SELECT n, earlier FROM (
          SELECT c.n, e.n AS earlier, ROW_NUMBER() OVER (PARTITION BY c.user, c.at ORDER BY e.at DESC) AS rn
          FROM clicks c JOIN clicks e
          ON c.user = e.user AND e.at BETWEEN c.at - INTERVAL 20 SECONDS AND c.at - INTERVAL 1 SECOND)
        WHERE rn = 1;
    """
    (tmp_path / "query.sql").write_text(CLICKS + query)
    feed(tmp_path, 0, ("a", 1, 1), ("a", 2, 15), ("b", 3, 3), ("a", 4, 12))
    feed(tmp_path, 1, ("b", 5, 25), ("a", 6, 33), ("b", 7, 24), ("a", 8, 61))
    assert run(tmp_path) == [(2, 4), (4, 1), (5, 7), (6, 2)]
