"""Rendering of numbers and conditions as SQL text."""

from __future__ import annotations

from fractions import Fraction

import pytest

from millpond.frontend.parse import parse
from millpond.query.expressions import Ref
from millpond.runtime.sql import Dialect, condition_sql, number_sql


@pytest.mark.parametrize(
    "text",
    ["0", "-7", "0.07", f"{10**38 - 1}", f"-{10**27}.0000000001", "0." + "0" * 37 + "1"],
)
def test_numbers_are_exact_where_a_decimal_holds_them(text: str) -> None:
    assert number_sql(Fraction(text)) == text


@pytest.mark.parametrize("value", [1e300, -1e40, 2.0**127, 2.0**-40, 0.1, 5e-324])
def test_numbers_are_doubles_where_no_decimal_holds_them(value: float) -> None:
    """Spark refuses a number of more digits than a decimal has."""
    assert number_sql(Fraction(value)) == f"CAST('{value!r}' AS DOUBLE)"


@pytest.mark.parametrize(
    ("condition", "spark", "duckdb"),
    [
        ("a < 3", "(`a` < CAST(3 AS INT))", '("a" < CAST(3 AS INT))'),
        ("s = 'it\\'s'", "(`s` = 'it\\'s')", "(\"s\" = 'it''s')"),
        ("a <> b OR s IS NULL", "((`a` <> `b`) OR (`s` IS NULL))", '(("a" <> "b") OR ("s" IS NULL))'),
    ],
)
def test_a_condition_is_rendered_in_both_dialects(condition: str, spark: str, duckdb: str) -> None:
    [query] = parse(f"CREATE STREAMING TABLE S (a INT, b INT, s STRING); SELECT a FROM S WHERE {condition}")
    where = query.selects[0].where

    def render(dialect: Dialect) -> str:
        def column(ref: Ref) -> str:
            return dialect.name_of(ref.column)

        return condition_sql(where, column, dialect)

    assert (render(Dialect.SPARK), render(Dialect.DUCKDB)) == (spark, duckdb)
