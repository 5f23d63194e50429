"""Expressions of constants have the value and the kind of type that Spark gives them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from millpond.frontend.parse import parse
from millpond.query.expressions import Comparison, Literal
from millpond.query.types import Domain, Family

EXPRESSIONS = {
    "text": [
        "upper('new')",
        "concat('a', '-', 'b')",
        "'a' || 'b'",
        "substring('abcdef', 2, 3)",
        "lpad('7', 3, '0')",
        "split('a,b', ',')[1]",
        "date_format(TIMESTAMP '2024-02-29 13:14:15', 'yyyy-MM-dd HH')",
        "CASE WHEN 2 > 1 THEN 'x' ELSE 'y' END",
        "CAST(12.50 AS STRING)",
    ],
    "amount": ["abs(-3)", "CAST('10' AS INT)", "length('abc')", "greatest(3, 7)", "year(DATE '2024-02-29')"],
    "price": ["CAST('1.25' AS DECIMAL(10,2))", "round(1.255, 2)", "CAST(10 AS DECIMAL(10,2)) / 3"],
    "ratio": ["pow(2, 3)", "sqrt(16)", "CAST('0.5' AS DOUBLE)"],
    "day": [
        "to_date('2024-02-29')",
        "date_sub(DATE '2024-03-01', 1)",
        "make_date(2024, 2, 29)",
        "last_day(DATE '2024-02-01')",
        "add_months(DATE '2024-01-31', 1)",
        "DATE('2024-02-29')",
    ],
    "at": [
        "to_timestamp('2024-02-29 12:30:00')",
        "date_trunc('hour', TIMESTAMP '2024-02-29 12:30:00')",
        "TIMESTAMP('2024-02-29 12:30:00')",
        "date_trunc('week', TIMESTAMP '2024-02-29 12:30:00')",
        "timestamp_seconds(1709208000)",
    ],
}
CATALOG = """
CREATE STREAMING TABLE orders (
    text STRING, amount BIGINT, price DECIMAL(20,6), ratio DOUBLE, day DATE, other TIMESTAMP, at TIMESTAMP
) TBLPROPERTIES ('time' = 'at');
"""


def fold(column: str, text: str) -> Literal:
    (query,) = parse(f"{CATALOG} SELECT other FROM orders WHERE {column} = {text}")
    condition = query.selects[0].where
    assert isinstance(condition, Comparison) and isinstance(condition.right, Literal)
    return condition.right


@pytest.mark.parametrize(("column", "texts"), EXPRESSIONS.items(), ids=EXPRESSIONS)
def test_a_folded_constant_has_sparks_value(spark: SparkSession, column: str, texts: list[str]) -> None:
    shown = ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts))
    (row,) = spark.sql(f"SELECT {shown}").collect()
    for text, expected in zip(texts, row, strict=True):
        found = fold(column, text)
        assert found.value == expected, text
        assert found.type is not None and (found.type.family is Family.TIME) == (column == "at")
        assert (found.type.domain is Domain.TIME) == (column == "at")


def test_constants_bound_columns() -> None:
    (query,) = parse(f"{CATALOG} SELECT DISTINCT text FROM orders WHERE text IN (upper('a'), 'b' || 'c')")
    values = {each.right.value for each in query.selects[0].where.operands}  # type: ignore[union-attr]
    assert values == {"A", "bc"}
