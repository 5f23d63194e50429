"""Random queries whose streams are joined by time buckets: equal hours, days in order, and the like."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.support.time_generate import random_time_case
from tests.support.window_generate import WindowAtom, WindowCase, window_case_from


@dataclass(frozen=True)
class Function:
    """A function of a timestamp ``{}``, for the product and for DuckDB, and its width in seconds.

    ``ordered``: it can be compared by order, not only for equality.
    """

    spark: str
    duckdb: str
    width: int
    ordered: bool = True


def _same(text: str, width: int, ordered: bool = True) -> Function:
    return Function(text, text, width, ordered)


FUNCTIONS = (
    _same("date_trunc('minute', {})", 60),
    _same("date_trunc('second', {})", 1),
    _same("CAST({} AS DATE)", 86_400),
    _same("date_format({}, 'yyyy-MM-dd HH:mm')", 60, ordered=False),
    _same("unix_seconds({})", 1),
    _same("date_trunc('minute', {} + INTERVAL 20 SECONDS)", 60),
    Function("floor(unix_seconds({}) / 7)", "(unix_seconds({0}) - unix_seconds({0}) % 7)", 7),
    Function("window({}, '7 seconds')", "(unix_seconds({0}) - unix_seconds({0}) % 7)", 7),
    Function("window({}, '3 seconds').end", "(unix_seconds({0}) - unix_seconds({0}) % 3 + 3)", 3),
)
# Functions with finitely many values.
RECURRING = ("second({})", "date_format({}, 'ss')")


@dataclass(frozen=True)
class BucketCase:
    """A query for the product, and the same query for DuckDB with the windows that its buckets imply."""

    sql: str
    case: WindowCase


def random_bucket_case(rng: random.Random) -> BucketCase:
    """A random query with comparisons of buckets between its streams, and buckets in its result."""
    base = random_time_case(rng, time_constants=0, time_unequal=0, cyclic=0, merged=0, self_join=0)
    windows: list[WindowAtom] = []
    texts: list[tuple[str, str]] = []
    time = {alias: f"{alias}.{base.times[stream]}" for alias, stream in base.occurrences.items()}
    for alias, operator, other in base.time_atoms:
        assert isinstance(other, str)
        if operator[0] == ">":
            alias, operator, other = other, operator.replace(">", "<"), alias
        function = rng.choice(FUNCTIONS)
        if rng.random() < 0.2:
            windows.append((alias, operator, other, 0))
            texts.append((f"{time[alias]} {operator} {time[other]}",) * 2)
            continue
        if rng.random() < 0.6 or not function.ordered:
            operator = "="
            windows.append((other, "<=", alias, function.width))
        windows.append((alias, "<=", other, function.width))
        texts.append(
            (
                f"{function.spark.format(time[alias])} {operator} {function.spark.format(time[other])}",
                f"{function.duckdb.format(time[alias])} {operator} {function.duckdb.format(time[other])}",
            )
        )
        if rng.random() < 0.15:
            text = rng.choice(RECURRING)
            texts.append((f"{text.format(time[alias])} = {text.format(time[other])}",) * 2)
    case = window_case_from(base, ())
    shown, (spark, duckdb) = _show_bucket(rng, case, time)
    where = [" AND ".join(side) for side in zip(*texts, strict=True)] or ["TRUE", "TRUE"]
    sql, oracle = (
        _rewrite(case.sql, items, cond) for items, cond in zip((spark, duckdb), where, strict=True)
    )
    return BucketCase(sql, replace(case, sql=oracle, oracle=oracle, windows=tuple(windows), shown=shown))


def _show_bucket(
    rng: random.Random, case: WindowCase, time: dict[str, str]
) -> tuple[tuple[str, ...], tuple[str, str]]:
    """Sometimes an occurrence whose bucket is shown, and the item."""
    if case.aggregate is not None or case.distinct or rng.random() < 0.7:
        return (), ("", "")
    alias, function = rng.choice(sorted(time)), rng.choice(FUNCTIONS[:4])
    text = function.spark.format(time[alias])
    return (alias,), (f"{text} AS bucket, ",) * 2


def _rewrite(sql: str, items: str, condition: str) -> str:
    """The query with more items and one more condition."""
    head, _, tail = sql.partition("SELECT DISTINCT " if "SELECT DISTINCT " in sql else "SELECT ")
    word = sql[len(head) : len(sql) - len(tail)]
    body, _, end = tail.rstrip(";").partition(" GROUP BY ")
    joined = f"{body} AND {condition}" if " WHERE " in body else f"{body} WHERE {condition}"
    return f"{head}{word}{items}{joined}{f' GROUP BY {end}' if end else ''};"
