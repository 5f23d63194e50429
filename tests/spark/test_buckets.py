"""Time buckets on Spark: streams joined by them, and windows in the result."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millpond.cli import main as cli

DDL = """
CREATE STREAMING TABLE views (ts TIMESTAMP, page INT) USING json OPTIONS (path 'views');
CREATE STREAMING TABLE sales (ts TIMESTAMP, page INT, price INT) USING json OPTIONS (path 'sales');
"""
VIEWS = [("09:10:00", 1), ("09:59:59.999999", 1), ("10:00:00", 1), ("11:30:00", 2)]
SALES = [("09:00:00", 1, 5), ("10:59:00", 1, 7), ("11:00:00", 3, 9), ("12:00:00", 2, 1)]


def run(path: Path, query: str, *options: str) -> tuple[int, Counter[str]]:
    """Run a query over the two streams; its rows as JSON."""
    (path / "query.sql").write_text(DDL + query)
    for name, rows in (("views", VIEWS), ("sales", SALES)):
        (path / name).mkdir()
        lines = [{"ts": f"2024-01-01T{at}Z", "page": page} for at, page, *_ in rows]
        for line, row in zip(lines, rows, strict=True):
            line |= {"price": row[2]} if len(row) > 2 else {}
        (path / name / "1.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code = cli.main(["run", str(path / "query.sql"), "--once", "--output", str(path / "out"), *options])
    found: Counter[str] = Counter()
    for file in (path / "out").glob("part-*.json"):
        found.update(line for line in file.read_text().splitlines() if line)
    return code, found


def as_rows(found: Counter[str]) -> list[dict[str, Any]]:
    return sorted((json.loads(line) for line in found.elements()), key=str)


def test_streams_are_joined_by_equal_hours(spark: SparkSession, tmp_path: Path) -> None:
    """With duplicates, each result names its window, which is one column with a start and an end."""
    query = """
    SELECT v.page, price, window(v.ts, '30 minutes') AS half, hour(s.ts) AS h
    FROM views v JOIN sales s ON date_trunc('hour', v.ts) = date_trunc('hour', s.ts);
    """
    code, found = run(tmp_path, query)
    assert code == 0

    def half(start: str, end: str) -> dict[str, str]:
        return {"start": f"2024-01-01T{start}:00.000Z", "end": f"2024-01-01T{end}:00.000Z"}

    assert as_rows(found) == sorted(
        [
            {"page": 1, "price": 5, "half": half("09:00", "09:30"), "h": 9},
            {"page": 1, "price": 5, "half": half("09:30", "10:00"), "h": 9},
            {"page": 1, "price": 7, "half": half("10:00", "10:30"), "h": 10},
            {"page": 2, "price": 9, "half": half("11:30", "12:00"), "h": 11},
        ],
        key=str,
    )


def test_windows_are_refused_in_csv(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = run(tmp_path, "SELECT window(ts, '1 hour') FROM views;", "--format", "csv")
    assert code == 2 and "select its start and its end" in capsys.readouterr().err
