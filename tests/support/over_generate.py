"""Random queries with window functions, and random rows for them."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

CATALOG = (
    "CREATE STREAMING TABLE s (u INT, k TINYINT CHECK (k BETWEEN 0 AND 2), x INT, y INT, b BOOLEAN, "
    "ts TIMESTAMP) TBLPROPERTIES ('watermark' = '5 seconds');"
)
_START = datetime(2024, 1, 1, 10)


def make_rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Rows with distinct timestamps, each at most five seconds out of order."""
    rows = []
    clock = _START
    for _ in range(count):
        clock += timedelta(seconds=rng.choice([0.5, 1, 1, 2, 700]))
        rows.append(
            {
                "u": rng.randrange(4),
                "k": rng.randrange(3),
                "x": rng.choice([None, *range(6)]),
                "y": rng.randrange(1_000_000),
                "b": rng.choice([True, False, None]),
                "ts": clock,
            }
        )
    order = sorted(rows, key=lambda row: (row["ts"] + timedelta(seconds=rng.random() * 4), row["ts"]))
    return order


def make_query(rng: random.Random) -> str:
    """A query with one to three window functions."""
    if rng.random() < 0.25:
        return _make_rank(rng)
    if rng.random() < 0.25:
        return _make_nested(rng)
    items = [f"{_make_function(rng)} AS f{i}" for i in range(rng.choice([1, 1, 2, 3]))]
    where = rng.choice(["", "", " WHERE x > 1", " WHERE u = 1 OR y > 1000"])
    return f"SELECT u, y, {', '.join(items)} FROM s{where}"


def make_consumer(rng: random.Random) -> str:
    """Groups, a set, a join or a rank of groups over the results of window functions."""
    rows = f"(SELECT u, k, x, y, ts, {_make_function(rng)} AS f FROM s)"
    first = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY k, u ORDER BY ts) AS f FROM s WHERE u < 3)"
    near = "t.u = r.u AND t.ts BETWEEN r.ts AND r.ts + INTERVAL 3 SECONDS"
    return rng.choice(
        [
            f"SELECT k, COUNT(f), MAX(f), SUM(y) FROM {rows} r GROUP BY k",
            f"SELECT k, date_trunc('hour', ts) AS h, COUNT(*), MIN(f) FROM {rows} r "
            "GROUP BY k, date_trunc('hour', ts)",
            f"SELECT DISTINCT k, f > 1 AS g FROM {rows} r",
            f"SELECT r.y, r.f, t.y AS z FROM {rows} r JOIN s t ON {near}",
            f"SELECT r.y, r.f FROM {rows} r WHERE NOT EXISTS (SELECT 1 FROM s t WHERE {near} AND t.y > r.y)",
            f"SELECT date_trunc('hour', ts) AS h, SUM(y) FROM {first} r WHERE f = 1 "
            "GROUP BY date_trunc('hour', ts)",
            f"SELECT k, n, RANK() OVER (ORDER BY n DESC, k) AS p FROM "
            f"(SELECT k, COUNT(f) AS n FROM {rows} r GROUP BY k) c",
            "SELECT MAX(n) AS m, COUNT(*) AS c FROM (SELECT k, b, SUM(y) AS n FROM s GROUP BY k, b) c",
        ]
    )


def _make_nested(rng: random.Random) -> str:
    """Window functions over window functions, maybe only over some of their rows."""
    inner = ", ".join(f"{_make_function(rng)} AS {name}" for name in rng.choice([["f"], ["f", "g"]]))
    value = rng.choice(["f", "f + 1", "coalesce(f, 0)", "CASE WHEN f > 2 THEN 1 ELSE 0 END"])
    where = rng.choice(["", "", " WHERE f > 1", " WHERE f IS NOT NULL AND k < 2"])
    outer = rng.choice(["LAG(v)", "SUM(v)", "MAX(v)", "COUNT(v)", "ROW_NUMBER()", "LEAD(v)"])
    frame = rng.choice(["", " ROWS 2 PRECEDING"]) if outer[:3] in ("SUM", "MAX", "COU") else ""
    partition = rng.choice(["", "PARTITION BY k "])
    rows = f"SELECT u, k, y, ts, {value} AS v FROM (SELECT *, {inner} FROM s){where}"
    return f"SELECT u, y, v, {outer} OVER ({partition}ORDER BY ts{frame}) AS h FROM ({rows})"


def _make_rank(rng: random.Random) -> str:
    order = rng.choice(["x DESC, y", "y", "ts DESC", "ts", "x NULLS LAST, y DESC"])
    name = rng.choice(["ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK"])
    limit = rng.choice(["<= 2", "= 1", "< 4", "= 2", "IN (1, 3)"])
    shown = "u, y" if name == "ROW_NUMBER" or "y" in order or "ts" in order else "k"
    rank = rng.choice(["", ", rn"])
    return (
        f"SELECT {shown}{rank} FROM (SELECT *, {name}() OVER (PARTITION BY k ORDER BY {order}) AS rn FROM s) "
        f"WHERE rn {limit}"
    )


def _make_function(rng: random.Random) -> str:
    partition = rng.choice(
        ["PARTITION BY k ", "PARTITION BY k, b ", "", "PARTITION BY u, date_trunc('hour', ts) "]
    )
    direction = rng.choice(["", "", " DESC"])
    kind = rng.choice(["offset", "offset", "running", "rows", "range", "rank", "value"])
    if kind == "offset":
        call = rng.choice(["LAG", "LEAD"]) + rng.choice(["(x)", "(y, 2)", "(x, 3, -1)", "(y, 1, u)"])
        return f"{call} OVER ({partition}ORDER BY ts{direction})"
    if kind == "rank":
        if direction and "hour" not in partition:
            direction = ""
        return (
            f"{rng.choice(['ROW_NUMBER', 'RANK', 'DENSE_RANK'])}() OVER ({partition}ORDER BY ts{direction})"
        )
    aggregate = rng.choice(
        ["COUNT(*)", "COUNT(x)", "SUM(x)", "AVG(x)", "MIN(x)", "MAX(y)", "COUNT_IF(b)", "SUM(x + y)"]
    )
    if kind == "running":
        aggregate = rng.choice([aggregate, "ROUND(STDDEV(x), 6)", "ROUND(VAR_POP(y), 1)", "MAX_BY(x, y)"])
        previous = " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
        unit = rng.choice(["", " ROWS UNBOUNDED PRECEDING", previous])
        if aggregate.startswith("ROUND"):
            call, digits = aggregate[len("ROUND(") :].split(", ")
            return f"ROUND({call} OVER ({partition}ORDER BY ts{unit}), {digits}"
        return f"{aggregate} OVER ({partition}ORDER BY ts{unit})"
    if kind == "value":
        call = rng.choice(["FIRST_VALUE(x)", "LAST_VALUE(y)", "FIRST_VALUE(y)", "NTH_VALUE(x, 2)"])
        call += rng.choice(["", " IGNORE NULLS"])
        frame = rng.choice(
            [
                "",
                " ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
                " ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING",
                " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
            ]
        )
        if rng.random() < 0.2:
            return f"LAG(x, {rng.choice([1, 2])}) IGNORE NULLS OVER ({partition}ORDER BY ts)"
        return f"{call} OVER ({partition}ORDER BY ts{frame})"
    if kind == "rows":
        frame = rng.choice(
            ["2 PRECEDING", "BETWEEN 3 PRECEDING AND 1 PRECEDING", "BETWEEN 1 PRECEDING AND 2 FOLLOWING"]
        )
        return f"{aggregate} OVER ({partition}ORDER BY ts{direction} ROWS {frame})"
    partition = rng.choice([partition, "PARTITION BY u "])
    frame = rng.choice(
        [
            "INTERVAL 3 SECONDS PRECEDING",
            "BETWEEN INTERVAL 10 MINUTES PRECEDING AND INTERVAL 1 SECOND PRECEDING",
            "BETWEEN INTERVAL 2 SECONDS PRECEDING AND INTERVAL 2 SECONDS FOLLOWING",
        ]
    )
    return f"{aggregate} OVER ({partition}ORDER BY ts{direction} RANGE {frame})"
