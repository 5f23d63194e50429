"""Random queries that read earlier rows of a free partition where these are near, or only to see that."""

from __future__ import annotations

import random

_COUNTS = (
    "unix_timestamp(ts) - unix_timestamp(prev)",
    "TIMESTAMPDIFF(SECOND, prev, ts)",
    "datediff(SECOND, prev, ts)",
    "CAST(ts AS LONG) - CAST(prev AS LONG)",
    "(unix_timestamp(ts) - unix_timestamp(prev)) / 2",
    "datediff(ts, prev) * 86400",
    "TIMESTAMPDIFF(MINUTE, prev, ts)",
)
_OPERATORS = ("<", "<=", ">", ">=", "=", "<>")


def make_near_query(rng: random.Random) -> str:
    """A query over rows of ``over_generate`` with the row before, and the time since then as a column."""
    count = rng.choice(_COUNTS)
    if rng.random() < 0.3:
        count = count.replace("prev", "prev2")
    values = (
        "LAG(ts) OVER w AS prev, LAG(ts, 2) OVER w AS prev2, LAG(x) OVER w AS px, LAG(y, 2) OVER w AS py, "
        "LAG(x, 1, -1) OVER w AS pd, LEAD(y) OVER d AS pl"
    )
    rows = (
        f"SELECT u, k, x, y, b, ts, {values} FROM s "
        "WINDOW w AS (PARTITION BY u ORDER BY ts), d AS (PARTITION BY u ORDER BY ts DESC)"
    )
    gap = f"WITH r AS ({rows}), p AS (SELECT *, {count} AS gap FROM r)"
    shown = rng.choice(["gap", "px", "prev", "py", "y"])
    if rng.random() < 0.5:
        return f"{gap} SELECT u, y, {shown} FROM p WHERE {_make_condition(rng)}"
    one, other = rng.choice(["1", "x", "y - py", "px", "gap", "pl", "pd"]), rng.choice(["0", "NULL", "y"])
    flag = f"CASE WHEN {_make_condition(rng)} THEN {one} ELSE {other} END"
    if rng.random() < 0.2:
        flag = f"IF({_make_condition(rng)}, {one}, {other})"
    return f"{gap} SELECT u, y, {flag} AS f FROM p"


def _make_condition(rng: random.Random) -> str:
    atoms = [_make_atom(rng) for _ in range(rng.choice([1, 1, 2, 3]))]
    condition = atoms[0]
    for atom in atoms[1:]:
        condition = f"({condition} {rng.choice(['AND', 'OR'])} {atom})"
    return condition


def _make_atom(rng: random.Random) -> str:
    earlier, seconds = rng.choice(["prev", "prev", "prev2"]), rng.choice([0, 1, 2, 30, 700, 1000])
    operator = rng.choice(_OPERATORS)
    return rng.choice(
        [
            f"gap {operator} {seconds}",
            f"gap {operator} {seconds}",
            f"gap BETWEEN 1 AND {seconds}",
            f"ts - {earlier} {operator} INTERVAL {seconds} SECONDS",
            f"gap IS {rng.choice(['', 'NOT '])}NULL",
            f"{earlier} IS {rng.choice(['', 'NOT '])}NULL",
            f"{earlier} {operator} ts - INTERVAL {seconds} SECONDS",
            f"ts {operator} {earlier} + INTERVAL {seconds} SECONDS",
            f"to_date({earlier}) {operator} to_date(ts)",
            f"date_trunc('minute', ts) {operator} date_trunc('minute', {earlier})",
            f"NOT (gap {operator} {seconds})",
            f"coalesce(gap {operator} {seconds}, {rng.choice(['TRUE', 'FALSE'])})",
            "x > 1",
            "x < px",
        ]
    )


def make_counted_query(rng: random.Random) -> str:
    """A query with a frame of so many seconds, or units of them, by a number that counts time."""
    count, most = rng.choice(
        [
            ("unix_timestamp(ts)", 900),
            ("CAST(ts AS LONG)", 900),
            ("unix_seconds(ts)", 3),
            ("unix_millis(ts)", 1_500),
            ("floor(unix_timestamp(ts) / 60)", 15),
            ("unix_timestamp(ts) DIV 2", 4),
        ]
    )
    start, end = sorted(rng.choice([-most, -1, 0, 0, 1, most]) for _ in range(2))
    edges = [
        f"{abs(n)} {'PRECEDING' if n < 0 else 'FOLLOWING'}" if n else "CURRENT ROW" for n in (start, end)
    ]
    call = rng.choice(["COUNT(*)", "SUM(x)", "AVG(x)", "MIN(x)", "MAX(y)", "COUNT_IF(b)"])
    partition = rng.choice(["PARTITION BY u ", "PARTITION BY k, u ", ""])
    order = f"{partition}ORDER BY {count}{rng.choice(['', ' DESC'])}"
    return f"SELECT u, y, {call} OVER ({order} RANGE BETWEEN {edges[0]} AND {edges[1]}) AS f FROM s"
