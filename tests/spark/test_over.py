"""Window functions on Spark: several files, rows out of order, late rows, retractions."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millpond.cli import main as cli

DDL = """
CREATE STREAMING TABLE gauge (post STRING, kind TINYINT, depth INT, at TIMESTAMP)
USING json OPTIONS (path 'gauge', maxFilesPerTrigger '1') TBLPROPERTIES ('watermark' = '10 seconds');
"""
FILES = [
    [("a", 1, 10, "09:00:00"), ("b", 1, 20, "09:00:05"), ("a", 2, 12, "09:00:03")],
    [("a", 1, 11, "09:01:00"), ("b", 2, 30, "09:00:55"), ("c", 1, 9, "09:01:30")],
    [("a", 1, 50, "09:00:10"), ("a", 2, 33, "09:02:00")],  # the first is late
]


def run(path: Path, query: str) -> tuple[int, list[dict[str, Any]]]:
    """Run a query over the files, one in each micro-batch; the rows that are written."""
    (path / "gauge").mkdir()
    for number, rows in enumerate(FILES):
        lines = [
            {"post": post, "kind": kind, "depth": depth, "at": f"2024-01-01T{at}Z"}
            for post, kind, depth, at in rows
        ]
        file = path / "gauge" / f"{number}.json"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        stamp = datetime(2024, 1, 1, 12, number).timestamp()
        os.utime(file, (stamp, stamp))
    (path / "query.sql").write_text(DDL + query)
    code = cli.main(["run", str(path / "query.sql"), "--once", "--output", str(path / "out")])
    texts = [file.read_text() for file in (path / "out").glob("part-*.json")]
    return code, sorted((json.loads(line) for text in texts for line in text.splitlines() if line), key=str)


def test_functions_by_time_are_written_once(spark: SparkSession, tmp_path: Path) -> None:
    """LAG, LEAD, a running sum, a RANGE of time, and an expression; the late row is rejected.

    The division by zero in the row that WHERE excludes must not be evaluated.
    """
    query = """
    SELECT post, depth, depth - LAG(depth, 1, 0) OVER w AS rise, LEAD(depth) OVER w AS after,
           SUM(depth) OVER w AS total,
           CAST(AVG(depth) OVER minute AS INT) AS mean, CAST(SUM(1000 / (depth - 9)) OVER w AS INT) AS parts
    FROM gauge WHERE depth > 9
    WINDOW w AS (PARTITION BY kind ORDER BY at),
           minute AS (PARTITION BY post ORDER BY at RANGE INTERVAL 1 MINUTE PRECEDING);
    """
    code, found = run(tmp_path, query)
    assert code == 0

    def row(*values: Any) -> dict[str, Any]:
        return dict(zip(("post", "depth", "rise", "after", "total", "mean", "parts"), values, strict=True))

    assert found == sorted(
        [
            row("a", 10, 10, 20, 10, 10, 1000),
            row("b", 20, 10, 11, 30, 20, 1090),
            row("a", 12, 12, 30, 12, 11, 333),
            row("b", 30, 18, 33, 42, 25, 380),
            row("a", 11, -9, None, 41, 11, 1590),
            row("a", 33, 3, None, 75, 22, 422),
        ],
        key=str,
    )
    rejected = [file.read_text() for file in (tmp_path / "out" / "_rejected").rglob("*.json")]
    assert [line.count("late") for text in rejected for line in text.splitlines()] == [1]


def test_ranks_of_groups_follow_their_changes(spark: SparkSession, tmp_path: Path) -> None:
    """Counts are joined with a subquery of relations, and ranked anew whenever they change."""
    (tmp_path / "posts.json").write_text(
        '{"post": "a", "m": 3}\n{"post": "a", "m": 5}\n{"post": "b", "m": 9}\n'
    )
    query = """
    CREATE TABLE posts (post STRING, m INT) USING json OPTIONS (path 'posts.json');
    SELECT kind, n, RANK() OVER (ORDER BY n DESC, kind) AS place FROM (
      SELECT kind, SUM(p.m) AS n
      FROM gauge g JOIN (SELECT post, MAX(m) AS m FROM posts GROUP BY post) p ON g.post = p.post GROUP BY kind
    );
    """
    code, found = run(tmp_path, query)
    assert code == 0
    answer: Counter[tuple[Any, ...]] = Counter()
    for row in found:
        answer[row["kind"], row["n"], row["place"]] += -1 if row["_retracted"] else 1
    assert +answer == Counter({(1, 19, 1): 1, (2, 19, 2): 1}) and any(row["_retracted"] for row in found)


def test_rows_that_leave_the_first_ones_are_taken_back(spark: SparkSession, tmp_path: Path) -> None:
    query = """
    SELECT post, kind, depth
    FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY depth DESC) AS place FROM gauge)
    WHERE place = 1;
    """
    code, found = run(tmp_path, query)
    assert code == 0
    answer: Counter[tuple[Any, ...]] = Counter()
    for row in found:
        answer[row["post"], row["kind"], row["depth"]] += -1 if row["_retracted"] else 1
    assert +answer == Counter({("b", 1, 20): 1, ("a", 2, 33): 1})
    assert any(row["_retracted"] for row in found) and all("_revision" in row for row in found)
