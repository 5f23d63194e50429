"""Random queries whose results close: with timestamps or time buckets in GROUP BY or under DISTINCT.

``random_closing_case`` takes a query of ``window_generate`` and puts time buckets in the place of its
timestamps, more aggregates, HAVING, or a UNION.  The same query is also written in DuckDB's SQL, which has no
``window``: a sliding window is a join with the starts of all windows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.window_generate import WindowCase, random_window_case

# The stretch of time in which rows lie, for the starts of windows.
_FROM, _TO = "TIMESTAMP '2019-12-31 23:00:00'", "TIMESTAMP '2020-01-01 06:00:00'"
_HAVING = ("COUNT(*) > 1", "COUNT(*) < 3", "COUNT(*) = 2")


@dataclass(frozen=True)
class ClosingCase:
    """A query for Spark and for DuckDB, and the streams that it reads."""

    sql: str
    duckdb: str
    base: WindowCase


@dataclass(frozen=True)
class _Bucket:
    """Expressions of a timestamp as Spark and DuckDB write them, and what GROUP BY contains.

    ``source`` is one more table of DuckDB's FROM, with a ``condition``.
    """

    spark: tuple[str, ...]
    duckdb: tuple[str, ...]
    group: tuple[str, ...]
    source: str | None = None
    condition: str | None = None


def random_closing_case(rng: random.Random) -> ClosingCase:
    """A random query; it need not be bounded."""
    while True:
        base = random_window_case(rng, times=1.0)
        if base.distinct or base.aggregate is not None:
            break
    ddl = "\n".join(line for line in base.sql.splitlines() if line.startswith("CREATE"))
    if rng.random() < 0.3:
        spark, duckdb = _single_stream(rng, base)
    else:
        spark, duckdb = _join(rng, base)
    return ClosingCase(f"{ddl}\n{spark};", duckdb, base)


def _random_bucket(rng: random.Random, time: str, number: int) -> _Bucket:
    kind = rng.choice(
        ["plain", "plain", "window", "window", "slide", "trunc", "fields", "format", "shifted", "count"]
    )
    width = rng.choice([2, 3, 5, 10])
    if kind == "window":
        call = f"window({time}, '{width} seconds')"
        start = f"time_bucket(INTERVAL {width} SECONDS, {time}, TIMESTAMP '1970-01-01')"
        return _Bucket((f"{call}.start",), (start,), (call,))
    if kind == "slide":
        slide, width = rng.choice([(2, 4), (5, 10), (2, 6), (4, 10)])
        call = f"window({time}, '{width} seconds', '{slide} seconds')"
        starts = f"(SELECT unnest(generate_series({_FROM}, {_TO}, INTERVAL {slide} SECONDS)) AS s) w{number}"
        inside = f"w{number}.s <= {time} AND {time} < w{number}.s + INTERVAL {width} SECONDS"
        return _Bucket((f"{call}.start",), (f"w{number}.s",), (call,), starts, inside)
    if kind == "trunc":
        call = f"date_trunc('minute', {time})"
        return _Bucket((call,), (call,), (call,))
    if kind == "fields":
        calls = (f"CAST({time} AS DATE)", f"hour({time})", f"minute({time})")
        kept = calls[: rng.choice([2, 3])]
        return _Bucket(kept, kept, kept)
    if kind == "format":
        call = f"date_format({time}, 'yyyy-MM-dd HH:mm')"
        return _Bucket((call,), (f"strftime({time}, '%Y-%m-%d %H:%M')",), (call,))
    if kind == "shifted":
        shift = rng.choice(["+ INTERVAL 20 SECONDS", "- INTERVAL 7 SECONDS", "+ INTERVAL 2 HOURS"])
        call = rng.choice([f"{time} {shift}", f"date_trunc('minute', {time} {shift})"])
        return _Bucket((call,), (call,), (call,))
    if kind == "count":
        count = f"floor(unix_seconds({time}) / {width})"
        call = rng.choice([count, f"timestamp_seconds({count} * {width})"])
        start = f"time_bucket(INTERVAL {width} SECONDS, {time}, TIMESTAMP '1970-01-01')"
        return _Bucket(
            (call,), (start if "timestamp" in call else f"epoch_us({start}) // {width}000000",), (call,)
        )
    return _Bucket((time,), (time,), (time,))


def _join(rng: random.Random, base: WindowCase) -> tuple[str, str]:
    """The query of the base case with buckets, more aggregates and HAVING."""
    query = base.sql.splitlines()[-1].rstrip(";")
    body = query[query.index(" FROM ") :].split(" GROUP BY ")[0]
    buckets = [
        _random_bucket(rng, f"{alias}.{base.times[base.occurrences[alias]]}", number)
        for number, alias in enumerate(base.shown)
    ]
    if sum("window(" in text for bucket in buckets for text in bucket.group) > 1:
        buckets = buckets[:1]  # Spark takes one window
    columns = [f"{alias}.{column}" for alias, column in base.projection]
    values = []
    if base.aggregate is not None:
        function, unique, argument = base.aggregate
        inner = "*" if argument is None else ("DISTINCT " if unique else "") + ".".join(argument)
        values = [f"{function}({inner})", *rng.choice([[], [], ["COUNT(*)"]])]
    having = rng.choice(_HAVING) if base.aggregate is not None and rng.random() < 0.2 else None
    return _write(base.distinct, columns, buckets, values, body, having)


def _single_stream(rng: random.Random, base: WindowCase) -> tuple[str, str]:
    """A query over one stream: groups, a set, or both in a UNION."""
    stream = rng.choice(sorted(base.streams))
    columns = [f"{stream}.{c}" for c in base.streams[stream]]
    bucket = _random_bucket(rng, f"{stream}.{base.times[stream]}", 0)
    where = rng.choice(["", f" WHERE {columns[0]} > 0", f" WHERE {columns[0]} <> {columns[-1]}"])
    keys = rng.sample(columns, rng.randint(0, len(columns) - 1))
    argument = rng.choice(columns)
    calls = ["COUNT(*)", f"COUNT(DISTINCT {argument})", f"SUM({argument})", f"AVG({argument})"]
    calls += [f"MIN({argument})", f"MAX({argument})", f"MEDIAN({argument})"]
    values = rng.sample(calls, rng.choice([1, 1, 2, 3]))
    having = rng.choice(_HAVING) if rng.random() < 0.3 else None
    kind = rng.choice(["groups", "groups", "groups", "rows", "UNION", "UNION ALL"])
    body = f" FROM {stream}{where}"
    if kind.startswith("UNION"):
        values = ["COUNT(*)"]
    groups = _write(rng.random() < 0.1, keys, [bucket], values, body, having)
    rows = _write(True, keys, [bucket], [f"{argument} + 0"], body, None, is_grouped=False)
    if kind in ("groups", "rows"):
        return groups if kind == "groups" else rows
    return (f"{groups[0]} {kind} {rows[0]}", f"{groups[1]} {kind} {rows[1]}")


def _write(
    distinct: bool,
    columns: Sequence[str],
    buckets: Sequence[_Bucket],
    values: Sequence[str],
    body: str,
    having: str | None,
    is_grouped: bool = True,
) -> tuple[str, str]:
    """The query in both dialects."""
    out = []
    for is_spark in (True, False):
        shown = [text for b in buckets for text in (b.spark if is_spark else b.duckdb)]
        groups = [text for b in buckets for text in (b.group if is_spark else b.duckdb)]
        items = ", ".join(f"{text} AS c{i}" for i, text in enumerate([*columns, *shown, *values]))
        text, where = body, []
        if not is_spark:
            sources = "".join(f", {b.source}" for b in buckets if b.source is not None)
            where = [b.condition for b in buckets if b.condition is not None]
            before, _, after = text.partition(" WHERE ")
            text = before + sources + (f" WHERE {after}" if after else "")
        if where:
            text += (" AND " if " WHERE " in text else " WHERE ") + " AND ".join(where)
        if values and is_grouped:
            keys = [*columns, *groups]
            text += f" GROUP BY {', '.join(keys)}" if keys else ""
            text += f" HAVING {having}" if having else ""
        out.append(f"SELECT {'DISTINCT ' if distinct else ''}{items}{text}")
    return out[0], out[1]
