"""Every aggregate of the language on random groups, against DuckDB."""

from __future__ import annotations

import math
import random
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from millpond.frontend.parse import parse
from millpond.query.evaluate import answer
from millpond.runtime.derive import derive_rows
from millpond.runtime.duckdb import get_process_duckdb

DDL = "CREATE STREAMING TABLE S (K TINYINT, A INT, B INT, X DOUBLE, N STRING, OK BOOLEAN, TS TIMESTAMP);"
SCHEMA = pa.schema(
    {
        **{"K": pa.int8(), "A": pa.int32(), "B": pa.int32(), "X": pa.float64()},
        **{"N": pa.string(), "OK": pa.bool_(), "TS": pa.timestamp("us")},
    }
)
# Aggregates, and how DuckDB writes them where that differs.
AGGREGATES = {
    "VARIANCE(A)": "",
    "VAR_SAMP(X)": "",
    "VAR_POP(A)": "",
    "STDDEV(X)": "",
    "STD(A)": "stddev_samp(A)",
    "STDDEV_POP(A)": "",
    "CORR(A, X)": "",
    "COVAR_POP(A, B)": "",
    "COVAR_SAMP(A, X)": "",
    "MEAN(A)": "avg(A)",
    "MAX_BY(N, X)": "arg_max_null(N, X)",
    "MIN_BY(A, X)": "arg_min_null(A, X)",
    "FIRST(B)": "arg_min_null(B, TS)",
    "LAST(B)": "arg_max_null(B, TS)",
    "LAST(B) IGNORE NULLS": "arg_max(B, TS) FILTER (WHERE B IS NOT NULL)",
    "FIRST(A, true)": "arg_min(A, TS) FILTER (WHERE A IS NOT NULL)",
    "BOOL_AND(OK)": "",
    "EVERY(A > 2)": "bool_and(A > 2)",
    "BOOL_OR(OK)": "",
    "ANY(A > 3)": "bool_or(A > 3)",
    "SOME(OK)": "bool_or(OK)",
    "COUNT_IF(A > B)": "count(*) FILTER (WHERE A > B)",
    "COUNT(A, B)": "count(*) FILTER (WHERE A IS NOT NULL AND B IS NOT NULL)",
    "COUNT(DISTINCT A, B)": "count(DISTINCT {'a': A, 'b': B}) FILTER (WHERE A IS NOT NULL AND B IS NOT NULL)",
    "SUM(DISTINCT A)": "",
    "AVG(DISTINCT A)": "",
    "MIN(DISTINCT A)": "",
    "PERCENTILE(A, 0.3)": "quantile_cont(CAST(A AS DOUBLE), 0.3)",
    "PERCENTILE(X, 1)": "max(X)",
    "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY X)": "quantile_cont(X, 0.25)",
    "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY X DESC)": "quantile_cont(X, 0.75)",
    "PERCENTILE_DISC(0.6) WITHIN GROUP (ORDER BY A)": "quantile_disc(A, 0.6)",
    "PERCENTILE_APPROX(A, 0.6)": "quantile_disc(A, 0.6)",
    "COLLECT_SET(A)": "coalesce(list_sort(list(DISTINCT A) FILTER (WHERE A IS NOT NULL)), [])",
    "ARRAY_AGG(A)": "coalesce(list_sort(list(A) FILTER (WHERE A IS NOT NULL)), [])",
    "SUM(1)": "",
    "AVG(2.5)": "",
    "COUNT(DISTINCT 1)": "",
    "SUM(A) FILTER (WHERE OK)": "",
    "STDDEV_POP(A) FILTER (WHERE A > B)": "",
    "MAX_BY(N, X) FILTER (WHERE OK)": "arg_max_null(N, X) FILTER (WHERE OK)",
    "COUNT(DISTINCT A) FILTER (WHERE OK)": "",
}


def _make_rows(rng: random.Random) -> list[dict[str, Any]]:
    orders = rng.sample(range(100), 40)  # no ties: which of several values MAX_BY chooses is left open

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    return [
        {
            "K": rng.randrange(4),
            "A": maybe(rng.randrange(-3, 6)),
            "B": maybe(rng.randrange(6)),
            "X": maybe(orders[i] / 8),
            "N": maybe(rng.choice("abc")),
            "OK": maybe(rng.random() < 0.5),
            "TS": datetime(2024, 1, 1, second=i),
        }
        for i in range(rng.randrange(40))
    ]


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_aggregates_are_those_of_duckdb(aggregate: str) -> None:
    rng = random.Random(aggregate)
    for group, selected in (("GROUP BY K", "K, "), ("", "")):
        rows = _make_rows(rng)
        [query] = parse(f"{DDL} SELECT {selected}{aggregate} AS V FROM S {group}")
        found = answer(query, derive_rows(query, {"S": rows}))
        text = f"SELECT {selected}{AGGREGATES[aggregate] or aggregate} AS V FROM S {group}"
        result = get_process_duckdb().query(text, {"S": pa.Table.from_pylist(rows, schema=SCHEMA)})
        expected = [tuple(row.values()) for row in result.to_pylist()]
        assert len(expected) == found.total()
        for one, other in zip(sorted(found, key=repr), sorted(map(_freeze, expected), key=repr), strict=True):
            assert all(_is_equal(a, b) for a, b in zip(one, other, strict=True)), (one, other)


def _freeze(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in row)


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and other is not None:
        return math.isclose(one, float(other), rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other) or (one is None and isinstance(other, float) and math.isnan(other))
