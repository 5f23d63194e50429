"""Queries that group, join or deduplicate rows with window functions are divided into blocks."""

from __future__ import annotations

import random

import pytest

from millpond import check
from millpond.analysis.split_over import split_over
from millpond.analysis.verdict import Verdict
from millpond.frontend.parse import parse
from millpond.runtime.query_sql import evaluate_worlds
from millpond.spark.admission import admit
from tests.support.over_generate import make_rows

CATALOG = (
    "CREATE STREAMING TABLE s (u INT, k TINYINT CHECK (k BETWEEN 0 AND 2), x INT, y INT, b BOOLEAN, "
    "ts TIMESTAMP) USING json OPTIONS (path 's'); "
)
_LAG = "(SELECT *, x - LAG(x) OVER (PARTITION BY k ORDER BY ts) AS f FROM s)"
_FIRST = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS f FROM s)"
_BEST = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY y DESC) AS f FROM s)"
_GAP = "ts > LAG(ts) OVER (PARTITION BY k ORDER BY ts) + INTERVAL 10 SECONDS"
_FLAG = f"(SELECT *, CASE WHEN {_GAP} THEN 1 END AS f FROM s)"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT k, COUNT(f), MAX(f) FROM {_LAG} r GROUP BY k",
        f"SELECT k, window.start AS w, AVG(f) FROM {_LAG} r GROUP BY k, window(ts, '1 minute')",
        f"SELECT DISTINCT k, f > 1 FROM {_LAG} r",
        f"SELECT window.start AS w, SUM(x) FROM {_FIRST} r WHERE f = 1 GROUP BY window(ts, '1 hour')",
        f"SELECT r.y, t.y AS z FROM {_FIRST} r JOIN s t "
        "ON r.u = t.u AND t.ts BETWEEN r.ts AND r.ts + INTERVAL 9 SECONDS WHERE f <= 2",
        f"SELECT r.y, f FROM {_LAG} r WHERE NOT EXISTS "
        "(SELECT 1 FROM s t WHERE t.u = r.u AND t.ts > r.ts AND t.ts <= r.ts + INTERVAL 5 SECONDS)",
        f"SELECT k, SUM(f) FROM {_FLAG} r GROUP BY k",
        f"SELECT COUNT(*), SUM(x) FROM {_BEST} r WHERE f <= 2",
        f"SELECT y FROM s r UNION ALL SELECT y FROM {_FIRST} q WHERE f = 1",
        f"SELECT y, MAX(f) OVER (PARTITION BY k ORDER BY ts) AS g FROM {_LAG} r WHERE f > 0",
        f"SELECT k, MAX(g) FROM (SELECT k, SUM(f) OVER (ORDER BY ts ROWS 2 PRECEDING) AS g FROM {_FLAG} r) q "
        "GROUP BY k",
    ],
)
def test_blocks_have_the_same_answer_and_run(sql: str) -> None:
    (query,) = parse(CATALOG + sql)
    rows = make_rows(random.Random(2), 50)
    assert evaluate_worlds(split_over(query), [{"s": rows}]) == evaluate_worlds(query, [{"s": rows}])
    verdict = check(CATALOG + sql)
    assert isinstance(verdict, Verdict) and verdict.outcome == "bounded" and verdict.blocks
    admit(verdict)


def test_conditions_on_the_rows_alone_limit_the_rank_in_the_block() -> None:
    verdict = check(f"{CATALOG} SELECT SUM(x) FROM {_BEST} r WHERE f <= 2 AND y > 3")
    assert isinstance(verdict, Verdict)
    (block,) = verdict.blocks.values()
    assert block.over is not None and [need.limit for need in block.over.needs] == [2]
    assert verdict.state.entries == block.state.entries == 8


def test_rows_that_wait_for_later_rows_are_read_without_their_time() -> None:
    """LEAD holds a row back until the next one of its partition comes, however long that takes."""
    lead = "(SELECT *, LEAD(x) OVER (PARTITION BY k ORDER BY ts) AS f FROM s)"
    groups = check(f"{CATALOG} SELECT k, MAX(f) FROM {lead} r GROUP BY k")
    windows = check(f"{CATALOG} SELECT MAX(f) FROM {lead} r GROUP BY window(ts, '1 minute')")
    assert isinstance(groups, Verdict) and isinstance(windows, Verdict)
    assert (groups.outcome, windows.outcome) == ("bounded", "undetermined")
