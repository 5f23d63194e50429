"""Random queries of several blocks over clicks and orders, each in Spark's SQL and in DuckDB's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

TABLES = {
    "clicks": ("user_id INT, page STRING, ms INT, ts TIMESTAMP", "ts"),
    "orders": ("user_id INT, page STRING, amount INT, placed TIMESTAMP", "placed"),
}
_VALUES = {"clicks": "ms", "orders": "amount"}
_TIMES = {"clicks": "ts", "orders": "placed"}
_START = datetime(2026, 3, 1)
_PAGES = ("home", "cart", "Pay", None)


@dataclass(frozen=True)
class BlockCase:
    """A query as text for both engines, without declarations."""

    spark: str
    duckdb: str

    @property
    def streams(self) -> list[str]:
        return [name for name in TABLES if name in self.spark]

    def declare(self, folder: str | None = None, delay: int = 0) -> str:
        """The text with the declarations of its streams, which are files in ``folder`` if given."""
        lines = []
        for name in self.streams:
            columns, _ = TABLES[name]
            source = f" USING json OPTIONS (path '{folder}/{name}', maxFilesPerTrigger '1')" if folder else ""
            properties = f" TBLPROPERTIES ('watermark' = '{delay} seconds')" if delay else ""
            lines.append(f"CREATE STREAMING TABLE {name} ({columns}){source}{properties};")
        return "\n".join([*lines, self.spark])


@dataclass(frozen=True)
class _Text:
    """A part of a query for both engines."""

    spark: str
    duckdb: str


def random_block_case(rng: random.Random) -> BlockCase:
    """A query of two or more blocks."""
    made = rng.choice(_SHAPES)(rng)
    return BlockCase(made.spark, made.duckdb)


def random_rows(rng: random.Random, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Rows of both streams in the order of time, some of them at the same timestamp."""
    rows = []
    moment = _START + timedelta(seconds=rng.randrange(60))
    for _ in range(count):
        moment += timedelta(seconds=rng.choice([0, 0, 1, 3, 7, 20]))
        name = rng.choice([*TABLES])
        row = {
            "user_id": rng.choice([1, 2, 3, None]),
            "page": rng.choice(_PAGES),
            _VALUES[name]: rng.choice([None, 0, 1, 2, 5, 9]),
            _TIMES[name]: moment,
        }
        rows.append((name, row))
    return rows


# --- blocks ----------------------------------------------------------------------------------------------


def _windowed(rng: random.Random, stream: str, width: int, key: bool) -> _Text:
    """Groups of a tumbling window: s (its start), e (its end), k if it has a key, m and n."""
    time, value = _TIMES[stream], _VALUES[stream]
    aggregate = rng.choice([f"SUM({value})", f"MAX({value})", f"MIN({value})", f"COUNT({value})"])
    where = rng.choice(["", f" WHERE {value} > 0", " WHERE page LIKE '%a%'", f" WHERE {value} % 2 = 1"])
    bucket = f"time_bucket(INTERVAL '{width} seconds', {time})"
    column, group = (" page AS k,", ", page") if key else ("", "")
    more = f"{column} {aggregate} AS m, COUNT(*) AS n FROM {stream}{where} GROUP BY"
    return _Text(
        f"SELECT window.start AS s, window.end AS e,{more} window({time}, '{width} seconds'){group}",
        f"SELECT {bucket} AS s, {bucket} + INTERVAL '{width} seconds' AS e,{more} {bucket}{group}",
    )


def _pick(rng: random.Random) -> tuple[str, int]:
    return rng.choice([*TABLES]), rng.choice([5, 10, 30])


def _both(form: str, *blocks: _Text) -> _Text:
    """A form with the texts of blocks in it, for each engine."""
    return _Text(form.format(*(b.spark for b in blocks)), form.format(*(b.duckdb for b in blocks)))


def _filter_groups(rng: random.Random) -> _Text:
    stream, width = _pick(rng)
    block = _windowed(rng, stream, width, key=True)
    where = rng.choice(
        ["b.n > 1", "b.m >= 2 OR b.n = 1", "k = 'Pay'", "b.m IS NOT NULL AND upper(k) <> 'HOME'"]
    )
    items = rng.choice(
        ["s, k, m, n", "e, m * 2 + n AS x, k", "s, CASE WHEN n > 1 THEN 'many' ELSE 'one' END AS c"]
    )
    return _both(f"SELECT {items} FROM ({{}}) b WHERE {where}", block)


def _regroup(rng: random.Random) -> _Text:
    stream, width = _pick(rng)
    aggregate = rng.choice(["MAX(n)", "SUM(m)", "COUNT(*)", "AVG(n)", "COUNT(DISTINCT k)"])
    having = rng.choice(["", " HAVING COUNT(*) > 1"])
    form = f"WITH per_key AS ({{}}) SELECT s, {aggregate} AS x FROM per_key GROUP BY s{having}"
    return _both(form, _windowed(rng, stream, width, key=True))


def _window_of_windows(rng: random.Random) -> _Text:
    stream, width = _pick(rng)
    block, long = _windowed(rng, stream, width, key=rng.random() < 0.5), width * rng.choice([2, 6])
    items = "MAX(m) AS most, SUM(n) AS rows_seen"
    bucket = f"time_bucket(INTERVAL '{long} seconds', s)"
    return _Text(
        f"SELECT window.start AS w, {items} FROM ({block.spark}) b GROUP BY window(s, '{long} seconds')",
        f"SELECT {bucket} AS w, {items} FROM ({block.duckdb}) b GROUP BY 1",
    )


def _join_blocks(rng: random.Random) -> _Text:
    width, key = rng.choice([5, 10, 30]), rng.random() < 0.6
    blocks = [_windowed(rng, rng.choice([*TABLES]), width, key) for _ in range(2)]
    on = rng.choice(["a.s = b.s", "a.e = b.e", "a.s = b.s AND a.e = b.e"]) + (" AND a.k = b.k" if key else "")
    extra = rng.choice(["", " WHERE a.n <= b.n", " WHERE a.m = b.m"])
    return _both(f"SELECT a.s, a.m, b.n FROM ({{}}) a JOIN ({{}}) b ON {on}{extra}", *blocks)


def _join_with_stream(rng: random.Random) -> _Text:
    stream, width = _pick(rng)
    value, time = _VALUES[stream], _TIMES[stream]
    block = _windowed(rng, stream, width, key=False)
    on = rng.choice([f"r.{value} = b.m", "r.user_id = b.n", f"r.{value} >= b.m"])
    within = f"r.{time} >= b.s AND r.{time} < b.s + INTERVAL {width} SECONDS"
    form = f"SELECT r.page, r.{value}, b.s FROM ({{}}) b JOIN {stream} r ON {on} WHERE {within}"
    return _both(form, block)


def _rank(rng: random.Random) -> _Text:
    stream, width = _pick(rng)
    block = _windowed(rng, stream, width, key=True)
    count = rng.choice([1, 2])
    order = rng.choice(["n DESC, k", "m, k, n", "k DESC"])
    nulls = _nulls_as_in_spark(order)
    rank = "SELECT *, ROW_NUMBER() OVER (PARTITION BY s ORDER BY {order}) AS place FROM ({block}) b"
    inner = _Text(rank.format(order=order, block=block.spark), rank.format(order=nulls, block=block.duckdb))
    return _both(f"SELECT s, k, m, n, place FROM ({{}}) ranked WHERE place <= {count}", inner)


def _nulls_as_in_spark(order: str) -> str:
    keys = (key.strip() for key in order.split(","))
    return ", ".join(f"{key} NULLS {'LAST' if key.endswith('DESC') else 'FIRST'}" for key in keys)


def _union(rng: random.Random) -> _Text:
    width = rng.choice([5, 10])
    blocks = [_windowed(rng, name, width, key=False) for name in TABLES]
    return _both(
        "SELECT s, n, 'click' AS what FROM ({}) a UNION ALL SELECT s, n, 'order' FROM ({}) b", *blocks
    )


_SHAPES = (_filter_groups, _regroup, _window_of_windows, _join_blocks, _join_with_stream, _rank, _union)


def list_seen(rows: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each stream."""
    return {name: [row for stream, row in rows if stream == name] for name in TABLES}
