"""Random queries over one stream whose groups or rows close, each also in a form that DuckDB evaluates."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

START = datetime(2024, 1, 1)
COLUMNS = "k STRING, g INT, v INT, b TINYINT, ts TIMESTAMP"
NAMES = ("k", "g", "v", "b", "ts")
_AGGREGATES = ("COUNT(*)", "COUNT(v)", "SUM(v)", "AVG(v)", "MIN(v)", "MAX(v)", "MAX(k)", "SUM(b)", "MIN(ts)")
_VALUES = ("COUNT(DISTINCT b)", "MEDIAN(b)")
_FILTERS = ("v > 0", "k <> 'a'", "v > 0 AND g IS NOT NULL", "b BETWEEN 0 AND 5")


@dataclass(frozen=True)
class NativeCase:
    """A query for Spark, its form for DuckDB over the table ``s``, and the end of a row's group.

    ``end`` is DuckDB SQL: from this timestamp on, no row belongs to the group.  ``gap`` is that of a session.
    """

    sql: str
    duckdb: str
    where: str
    end: str
    gap: int | None = None


def random_native_case(rng: random.Random) -> NativeCase:
    """A query with a window, a session, a truncated timestamp or a timestamp that closes its results."""
    kind = rng.choice(["window", "window", "session", "trunc", "shifted", "count", "timestamp", "distinct"])
    keys = rng.sample(["k", "g"], rng.randint(0, 2))
    where = rng.choice([*_FILTERS, "TRUE", "TRUE"])
    width = rng.choice([3, 5, 10, 60])
    if kind == "session":
        return _session_case(rng, keys, where, rng.choice([2, 3, 5, 10]))
    if kind == "window":
        offset = rng.choice([0, 0, 1, 2])
        origin = f"TIMESTAMP '1970-01-01' + INTERVAL {offset} SECONDS"
        start = f"time_bucket(INTERVAL {width} SECONDS, ts, {origin})"
        moved = f", '{width} seconds', '{offset} seconds'" if offset else ""
        call = f"window(ts, '{width} seconds'{moved})"
        shown, end = ("window.start", start), f"{start} + INTERVAL {width} SECONDS"
        grouped = (call, start)
    elif kind == "trunc":
        start = "date_trunc('minute', ts)"
        shown, end, grouped = (start, start), f"{start} + INTERVAL 1 MINUTE", (start, start)
    elif kind == "shifted":
        start = "date_trunc('minute', ts + INTERVAL 20 SECONDS)"
        shown, end, grouped = (start, start), f"{start} + INTERVAL 40 SECONDS", (start, start)
    elif kind == "count":
        start = f"time_bucket(INTERVAL {width} SECONDS, ts, TIMESTAMP '1970-01-01')"
        call = f"timestamp_seconds(unix_timestamp(ts) DIV {width} * {width})"
        shown, end, grouped = (call, start), f"{start} + INTERVAL {width} SECONDS", (call, start)
    else:
        shown, end, grouped = ("ts", "ts"), "ts + INTERVAL 1 MICROSECOND", ("ts", "ts")
    if kind == "distinct":
        text = f"SELECT DISTINCT {', '.join([*keys, 'v', 'ts'])} FROM s WHERE {where}"
        return NativeCase(text, text, where, end)
    aggregates = rng.sample(_AGGREGATES, rng.randint(1, 3))
    having = rng.choice(["", "", " HAVING COUNT(*) > 1"])
    texts = [
        f"SELECT {', '.join([bucket, *keys, *aggregates])} FROM s WHERE {where} "
        f"GROUP BY {', '.join([group, *keys])}{having}"
        for bucket, group in zip(shown, grouped, strict=True)
    ]
    return NativeCase(texts[0], texts[1], where, end)


def _session_case(rng: random.Random, keys: list[str], where: str, gap: int) -> NativeCase:
    """Sessions; in DuckDB, a session begins where the row before is more than the gap earlier."""
    aggregates = rng.sample([*_AGGREGATES, *_VALUES], rng.randint(1, 3))
    having = rng.choice(["", "", " HAVING COUNT(*) > 1"])
    listed = "".join(f", {each}" for each in [*keys, *aggregates])
    sql = f"SELECT session_window.start, session_window.end{listed} FROM s WHERE {where} GROUP BY "
    sql += ", ".join([*keys, f"session_window(ts, '{gap} seconds')"]) + having
    divided = f"PARTITION BY {', '.join(keys)} " if keys else ""
    apart = f"OVER ({divided}ORDER BY ts)"
    begins = f"CASE WHEN ts <= lag(ts) {apart} + INTERVAL {gap} SECONDS THEN 0 ELSE 1 END"
    duckdb = (
        f"WITH marked AS (SELECT *, {begins} AS begins FROM s WHERE {where}), "
        f"numbered AS (SELECT *, sum(begins) {apart} AS session FROM marked) "
        f"SELECT min(ts), max(ts) + INTERVAL {gap} SECONDS{listed} FROM numbered "
        f"GROUP BY {', '.join([*keys, 'session'])}{having}"
    )
    return NativeCase(sql, duckdb, where, "ts + INTERVAL 1 MICROSECOND", gap)


def random_native_rows(rng: random.Random, count: int, late: int, nulls: float) -> list[tuple[Any, ...]]:
    """Rows in the order of arrival: most are out of order by up to ``late`` seconds, a few by much more."""
    rows, now = [], 0.0
    for _ in range(count):
        now += rng.choice([0, 0.25, 1, 1, 4, 12])
        behind = rng.uniform(0, late) if rng.random() < 0.9 else rng.uniform(0, 60)
        ts = START + timedelta(seconds=30 + round(4 * max(0, now - behind)) / 4)
        values = [rng.choice("abc"), rng.randint(0, 2), rng.randint(-3, 9), rng.randint(0, 5)]
        rows.append((*(None if rng.random() < nulls else value for value in values), ts))
    return rows
