"""The exact and the timed engine compute all aggregates that they accept as the reference evaluation does."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED
from millpond.frontend.parse import parse
from millpond.plan.computed_aggregates import explain_uncomputed
from millpond.query.evaluate import answer
from millpond.runtime.derive import derive_rows
from tests.support.local import Local
from tests.support.timed_local import TimedLocal, micros

S = "CREATE STREAMING TABLE S (K TINYINT, H TINYINT, A INT, X DOUBLE, N STRING, OK BOOLEAN{});"
T = "CREATE STREAMING TABLE T (K TINYINT, C INT{});"
# Several in one query, as they share what they keep.
AGGREGATES = [
    ["VARIANCE(A)", "VAR_POP(A)", "STDDEV(A)", "STDDEV_POP(A) FILTER (WHERE OK)", "SUM(1)", "AVG(A)"],
    ["MAX_BY(N, X)", "MIN_BY(A, X)", "MAX_BY(N, H)", "MAX_BY(A, X) FILTER (WHERE OK)", "MAX(X)"],
    ["COUNT_IF(A > 2)", "BOOL_AND(OK)", "EVERY(A > 1)", "BOOL_OR(OK)", "COUNT(A, X)", "MIN(DISTINCT A)"],
    ["COUNT(DISTINCT H, OK)", "SUM(DISTINCT H)", "AVG(DISTINCT H)", "PERCENTILE(H, 0.3)"],
    ["PERCENTILE_DISC(0.6) WITHIN GROUP (ORDER BY H)", "PERCENTILE_APPROX(H, 0.25)", "MEDIAN(H)"],
]
IN_TIME = [*AGGREGATES, ["FIRST(A)", "LAST(A) IGNORE NULLS", "ANY_VALUE(N)"]]
IN_WINDOWS = ["PERCENTILE(A, 0.8)", "SUM(DISTINCT A)", "COUNT(DISTINCT A, N)"]


def _make_rows(rng: random.Random, count: int) -> list[tuple[str, dict[str, Any]]]:
    orders = rng.sample(range(4 * count), count)  # no ties

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    def make(i: int) -> tuple[str, dict[str, Any]]:
        moment = datetime(2024, 1, 1) + timedelta(seconds=20 * i)
        if rng.random() < 0.3:
            return "T", {"K": rng.randrange(3), "C": rng.randrange(3), "TS": moment}
        row = {"K": rng.randrange(3), "H": maybe(orders[i] - 40), "A": maybe(rng.randrange(-5, 9))}
        row |= {"X": maybe(orders[i] / 8), "N": maybe(rng.choice("abc")), "OK": maybe(rng.random() < 0.5)}
        return "S", {**row, "TS": moment}

    return [make(i) for i in range(count)]


def _assert_equal(found: Counter[Any], expected: Counter[Any]) -> None:
    assert found.total() == expected.total()
    for one, other in zip(sorted(found, key=repr), sorted(expected, key=repr), strict=True):
        for a, b in zip(one, other, strict=True):
            is_close = isinstance(b, float) and a is not None and math.isclose(a, b, rel_tol=1e-12)
            assert a == b or is_close, (one, other)


@pytest.mark.parametrize("aggregates", AGGREGATES, ids=lambda each: each[0])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT K, {} FROM S GROUP BY K",
        "SELECT {} FROM S",
        "SELECT T.C, {} FROM S, T WHERE S.K = T.K AND T.C BETWEEN 0 AND 1 GROUP BY T.C",
    ],
)
def test_groups_without_time(query: str, aggregates: list[str]) -> None:
    [parsed] = parse(S.format("") + T.format("") + query.format(", ".join(aggregates)))
    verdict = decide(parsed)
    assert verdict.outcome == BOUNDED and verdict.plan is not None, verdict.explain()
    assert explain_uncomputed(verdict.plan) is None
    rng = random.Random(query + aggregates[0])
    rows = [(name, {k: v for k, v in row.items() if k != "TS"}) for name, row in _make_rows(rng, 40)]
    engine = Local(verdict.plan)
    for start in range(0, len(rows), 20):
        engine.add(rows[start : start + 20])
        seen = {t: [row for name, row in rows[: start + 20] if name == t] for t in "ST"}
        _assert_equal(engine.answer(), answer(parsed, derive_rows(parsed, seen)))


@pytest.mark.parametrize("aggregates", [*IN_TIME, IN_WINDOWS], ids=lambda each: each[0])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT K, window.start, {} FROM S GROUP BY K, window(TS, '1 minute')",
        "SELECT N, {} FROM S GROUP BY N",
    ],
)
def test_groups_that_close_or_have_a_cardinality(query: str, aggregates: list[str]) -> None:
    table = S.format(", TS TIMESTAMP").replace(");", ") TBLPROPERTIES ('cardinality.N' = '3');")
    [parsed] = parse(table + query.format(", ".join(aggregates)))
    verdict = decide(parsed)
    if aggregates is IN_WINDOWS and "window" not in query:
        assert verdict.outcome != BOUNDED
        return
    assert verdict.outcome == BOUNDED and verdict.timed is not None, verdict.explain()
    assert explain_uncomputed(verdict.timed) is None
    rng = random.Random(query + aggregates[0])
    rows = [(name, row) for name, row in _make_rows(rng, 40) if name == "S"]
    engine = TimedLocal(verdict.timed, updates=True)
    for start in range(0, len(rows), 20):
        batch = rows[start : start + 20]
        engine.add(batch, max((micros(row["TS"]) for _, row in batch), default=0))
        seen = {"S": [row for _, row in rows[: start + 20]]}
        _assert_equal(engine.answer(), answer(parsed, derive_rows(parsed, seen)))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT S.N, COUNT(*), SUM(C), MAX(A) FROM S, T WHERE S.N = T.M GROUP BY S.N",
        "SELECT DISTINCT S.N, OK FROM S, T WHERE S.N = T.M AND C > 0",
        "SELECT COUNT(*), SUM(A) FROM S, T WHERE S.N < T.M",
        "SELECT upper(S.N), COUNT(*) FROM S, T WHERE S.N = T.M AND S.K = T.K GROUP BY upper(S.N)",
    ],
)
def test_joins_of_columns_with_a_cardinality(query: str) -> None:
    promise = " TBLPROPERTIES ('cardinality.{}' = '3');"
    tables = S.format("").replace(";", promise.format("N")) + (
        "CREATE STREAMING TABLE T (K TINYINT, C INT, M STRING)" + promise.format("M")
    )
    [parsed] = parse(tables + query)
    verdict = decide(parsed)
    assert verdict.outcome == BOUNDED and verdict.timed is not None, verdict.explain()
    rng = random.Random(query)
    rows: list[tuple[str, dict[str, Any]]] = []
    for name, row in _make_rows(rng, 40):
        row.pop("TS")
        rows.append((name, {**row, "M": rng.choice("abc")} if name == "T" else row))
    engine = TimedLocal(verdict.timed)
    for start in range(0, len(rows), 10):
        engine.add(rows[start : start + 10])
        seen = {t: [row for name, row in rows[: start + 10] if name == t] for t in "ST"}
        _assert_equal(engine.answer(), answer(parsed, derive_rows(parsed, seen)))
    assert engine.entries <= 3 * 3 * len(rows)
