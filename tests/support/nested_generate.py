"""Random queries of several blocks, in text that Spark and DuckDB both read."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

CATALOG = {
    "S": [("A", "INT"), ("B", "INT"), ("K", "INT"), ("ts", "TIMESTAMP")],
    "T": [("D", "INT"), ("E", "INT"), ("L", "INT"), ("ts", "TIMESTAMP")],
}
DECLARED = """
CREATE STREAMING TABLE S (A INT, B INT, K INT CHECK (K BETWEEN 0 AND 2), ts TIMESTAMP);
CREATE STREAMING TABLE T (D INT, E INT, L INT CHECK (L BETWEEN 0 AND 2), ts TIMESTAMP);
"""
_BUCKETS = ("hour", "day")
_AGGREGATES = ("COUNT", "SUM", "MAX", "MIN")


@dataclass(frozen=True)
class BlockColumn:
    """A column of a block: its name, and what it is: free, bounded, a timestamp or an aggregate."""

    name: str
    kind: str


@dataclass(frozen=True)
class BlockText:
    """The text of a query, and its columns."""

    text: str
    columns: tuple[BlockColumn, ...]

    def pick(self, rng: random.Random, *kinds: str) -> str | None:
        """A column of one of some kinds."""
        found = [c.name for c in self.columns if c.kind in kinds]
        return rng.choice(found) if found else None


def random_nested_query(rng: random.Random) -> str:
    """A query with one to three blocks, without CREATE statements."""
    made = _random_inner(rng)
    for level in range(rng.choice((0, 1, 1, 1, 2))):
        made = _wrap(rng, made, level)
    if rng.random() < 0.25:
        made = _join(rng, made)
    return made.text


def random_rows(rng: random.Random, count: int) -> dict[str, list[dict[str, Any]]]:
    """Rows of both streams, in the order of time."""
    rows: dict[str, list[dict[str, Any]]] = {"S": [], "T": []}
    clock = datetime(2026, 1, 1)
    for _ in range(count):
        clock += timedelta(minutes=rng.choice((0, 5, 40, 300)))
        name = rng.choice(("S", "S", "T"))
        values = [rng.choice((None, 0, 1, 2, 3)), rng.randrange(4), rng.choice((None, 0, 1, 2))]
        rows[name].append(dict(zip([c for c, _ in CATALOG[name]], [*values, clock], strict=True)))
    return rows


def _random_inner(rng: random.Random) -> BlockText:
    choice = rng.random()
    if choice < 0.12:
        return BlockText(
            "SELECT A AS a, K AS k, ts AS t FROM S UNION ALL SELECT D, L, ts FROM T",
            (BlockColumn("a", "free"), BlockColumn("k", "bounded"), BlockColumn("t", "time")),
        )
    where = rng.choice(("", "", " WHERE B < 2", " WHERE A > 0", " WHERE A = 1", " WHERE A BETWEEN 0 AND 3"))
    if choice < 0.22:
        text = f"SELECT A AS a, B AS b, K AS k, ts AS t FROM S{where}"
        kinds = (("a", "free"), ("b", "free"), ("k", "bounded"), ("t", "time"))
        return BlockText(text, tuple(BlockColumn(*each) for each in kinds))
    if choice < 0.34:
        shown = rng.choice((("A", "a", "free"), ("K", "k", "bounded")))
        more = rng.choice(("", ", B AS b", ", ts AS t"))
        found = [BlockColumn(shown[1], shown[2])]
        found += [BlockColumn("b", "free")] if "b" in more else []
        found += [BlockColumn("t", "time")] if "t" in more else []
        return BlockText(f"SELECT DISTINCT {shown[0]} AS {shown[1]}{more} FROM S{where}", tuple(found))
    return _group_base(rng, where)


def _group_base(rng: random.Random, where: str) -> BlockText:
    keys = [("A", BlockColumn("a", "free"))] if rng.random() < 0.6 else []
    keys += [("K", BlockColumn("k", "bounded"))] if rng.random() < 0.6 else []
    if rng.random() < 0.5:
        keys.append((f"date_trunc('{rng.choice(_BUCKETS)}', ts)", BlockColumn("w", "time")))
    functions = rng.sample(_AGGREGATES, rng.choice((1, 1, 2)))
    values = [f"{f}({'*' if f == 'COUNT' else 'B'}) AS v{i}" for i, f in enumerate(functions)]
    shown = [f"{text} AS {column.name}" for text, column in keys]
    group = f" GROUP BY {', '.join(text for text, _ in keys)}" if keys else ""
    having = " HAVING COUNT(*) > 1" if keys and rng.random() < 0.15 else ""
    columns = [*(column for _, column in keys), *(BlockColumn(f"v{i}", "value") for i in range(len(values)))]
    return BlockText(f"SELECT {', '.join([*shown, *values])} FROM S{where}{group}{having}", tuple(columns))


def _wrap(rng: random.Random, inner: BlockText, level: int) -> BlockText:
    source = f"({inner.text}) AS q{level}"
    conditions = []
    for kind, values in (("free", "< 3"), ("bounded", "= 1"), ("value", "> 1")):
        name = inner.pick(rng, kind)
        if name is not None and rng.random() < 0.25:
            conditions.append(f"{name} {values}")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    choice = rng.random()
    if choice < 0.35:
        kept = [c for c in inner.columns if rng.random() < 0.7] or list(inner.columns[:1])
        names = ", ".join(c.name for c in kept)
        distinct = "DISTINCT " if rng.random() < 0.25 else ""
        return BlockText(f"SELECT {distinct}{names} FROM {source}{where}", tuple(kept))
    keys = [c for c in inner.columns if c.kind != "value" and rng.random() < 0.5]
    argument = inner.pick(rng, "value", "free", "bounded")
    function = rng.choice(_AGGREGATES) if argument is not None else "COUNT"
    value = f"{function}({argument if function != 'COUNT' else '*'}) AS x{level}"
    shown = ", ".join([*(c.name for c in keys), value])
    group = f" GROUP BY {', '.join(c.name for c in keys)}" if keys else ""
    columns = (*keys, BlockColumn(f"x{level}", "value"))
    return BlockText(f"SELECT {shown} FROM {source}{where}{group}", columns)


def _join(rng: random.Random, inner: BlockText) -> BlockText:
    """A join of a block with a stream."""
    key = inner.pick(rng, "free", "bounded", "value")
    if key is None:
        return inner
    other = rng.choice(("D", "L"))
    shown = rng.choice((f"j.{key}", "T.E", "COUNT(*) AS n", "DISTINCT T.L"))
    time = inner.pick(rng, "time")
    during = ""
    if time is not None and rng.random() < 0.6:
        during = f" AND T.ts >= j.{time} AND T.ts < j.{time} + INTERVAL 1 HOUR"
    text = f"SELECT {shown} FROM T JOIN ({inner.text}) AS j ON T.{other} = j.{key}{during}"
    return BlockText(text, ())
