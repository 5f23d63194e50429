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
    for seed in range(3):
        rng = random.Random(seed)
        assert examine(spark, *random_query(rng), rng) is None


def test_rows_that_conditions_exclude_cannot_fail_a_run(spark: SparkSession, tmp_path: Path) -> None:
    """Neither those that WHERE excludes, nor those that break a CHECK."""
    rows: list[dict[str, Any]] = [
        {"a": 6, "b": 2, "s": "3"},
        {"a": 1, "b": 0, "s": "4"},
        {"a": 1, "b": 5, "s": "no number"},
        {"a": -1, "b": 1, "s": "bad"},
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text("\n".join(map(json.dumps, rows)))
    table = "CREATE STREAMING TABLE t (a INT CHECK (a > 0), b INT, s STRING) USING json OPTIONS (path 'in');"
    query = "SELECT a / b AS q, CAST(s AS INT) * 2 AS n FROM t WHERE b <> 0 AND s RLIKE '^[0-9]+$'"
    (tmp_path / "query.sql").write_text(f"{table} {query}")
    assert cli.main(["run", str(tmp_path / "query.sql"), "--once", "--output", str(tmp_path / "out")]) == 0
    written = [line for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert [json.loads(line) for line in written] == [{"q": 3.0, "n": 6}]
