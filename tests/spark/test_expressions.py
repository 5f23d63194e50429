"""Expressions in every place of a query give what Spark's own batch answer gives, on every engine."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millpond.cli import main as cli
from tests.campaigns.expressions_on_spark import examine
from tests.support.expression_generate import random_query

NEAR = "q.ts BETWEEN p.ts - INTERVAL 5 SECONDS AND p.ts + INTERVAL 5 SECONDS"
QUERIES = [
    ("SELECT get_json_object(j, '$.t'), CAST(m AS INT), CASE WHEN b <> 0 THEN a / b END, s || 'x' FROM P "
     "WHERE b <> 0 AND a % b = 0 OR s LIKE '%a%'", 0),
    ("SELECT if(a > 1, 1, 2), round(m, 1), r.w || p.s FROM P p LEFT JOIN R r ON p.a = r.k", 0),
    ("SELECT a % 3, round(AVG(coalesce(m, 0)), 1), SUM(x) FILTER (WHERE f) / COUNT(*) FROM P GROUP BY a % 3 "
     "HAVING COUNT(*) > 1 AND abs(SUM(a)) > 5", 1),
    ("SELECT window(ts, '10 seconds').start, upper(s), coalesce(SUM(m * 2), 0) FROM P "
     "GROUP BY window(ts, '10 seconds'), upper(s)", 0),
    ("SELECT ts - TIMESTAMP '2024-01-01 00:00:00' AS d, a FROM P WHERE ts - TIMESTAMP '2020-01-01' "
     "IN (INTERVAL 3 DAYS) OR a > 2", 0),
    ("SELECT window(ts, '10 seconds').start, MAX(ts - TIMESTAMP '2020-01-01') AS d, SUM(ts - "
     "TIMESTAMP '2024-01-01') AS e FROM P GROUP BY window(ts, '10 seconds')", 0),
    (f"SELECT p.ts, lower(p.s), length(q.s) + 1, p.a + q.b FROM P p, Q q WHERE {NEAR} AND p.a % 3 = q.n % 3 "
     "AND (p.s RLIKE '^[0-9]+$' AND CAST(p.s AS INT) > 7) AND abs(p.a - q.b) < 5", 0),
    ("SELECT p.a, upper(q.s), CASE WHEN p.x > q.x THEN 1 ELSE 0 END FROM P p, Q q WHERE p.a = q.a", 0),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "keys"), QUERIES)
def test_a_run_writes_what_spark_answers(spark: SparkSession, sql: str, keys: int) -> None:
    assert examine(spark, sql, keys, random.Random(1)) is None


@pytest.mark.campaign
def test_random_expressions(spark: SparkSession) -> None:
    """``python -m tests.campaigns.expressions_on_spark`` runs more of them."""
    for seed in range(2):
        rng = random.Random(seed)
        assert examine(spark, *random_query(rng), rng) is None


def run_on_rows(folder: Path, columns: str, query: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that ``millpond run --once`` writes."""
    (folder / "in").mkdir()
    (folder / "in" / "0.json").write_text("\n".join(map(json.dumps, rows)))
    table = f"CREATE STREAMING TABLE t ({columns}) USING json OPTIONS (path 'in');"
    (folder / "query.sql").write_text(f"{table} {query}")
    assert cli.main(["run", str(folder / "query.sql"), "--once", "--output", str(folder / "out")]) == 0
    written = [line for file in (folder / "out").glob("*.json") for line in file.read_text().splitlines()]
    return [json.loads(line) for line in written]


def test_rows_that_conditions_exclude_cannot_fail_a_run(spark: SparkSession, tmp_path: Path) -> None:
    """Neither those that WHERE excludes, nor those that break a CHECK."""
    values = [(6, 2, "3"), (1, 0, "4"), (1, 5, "no number"), (-1, 0, "7")]
    rows = [{"a": a, "b": b, "s": s, "ts": f"2024-01-01 00:00:{i:02}"} for i, (a, b, s) in enumerate(values)]
    # Rows of this query wait for partners, also those that WHERE excludes.
    query = """SELECT x.a / x.b AS q, CAST(x.s AS INT) * 2 AS n FROM t x JOIN t y
        ON x.a = y.a AND y.ts BETWEEN x.ts AND x.ts + INTERVAL 1 SECOND
        WHERE x.b <> 0 AND x.s RLIKE '^[0-9]+$'"""
    found = run_on_rows(tmp_path, "a INT CHECK (a > 0), b INT, s STRING, ts TIMESTAMP", query, rows)
    assert found == [{"q": 3.0, "n": 6}]


def test_nested_values_are_used_and_passed_on(spark: SparkSession, tmp_path: Path) -> None:
    columns = "k INT, tags ARRAY<STRING>, p STRUCT<id: INT, u: STRUCT<name: STRING>>, m MAP<STRING, INT>"
    row = {"k": 1, "tags": ["x", "y"], "p": {"id": 7, "u": {"name": "ann"}}, "m": {"a": 3}}
    wrong = {"k": 2, "tags": "none", "p": {"id": 8, "u": {"name": "bob"}}, "m": {}}
    query = (
        "SELECT *, tags[1] AS tag, p.u.name, t.p.id + m['a'] AS n FROM t WHERE p.id > 1 AND size(tags) > 0"
    )
    found = run_on_rows(tmp_path, columns, query, [row, wrong])
    assert found == [{**row, "tag": "y", "name": "ann", "n": 10}]
    assert "tags" in next((tmp_path / "out" / "_rejected").glob("*.json")).read_text()
