"""Functions whose types sqlglot does not know."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import parse_one

from millpond.frontend.parse import parse
from millpond.frontend.spark_functions import to_duckdb

TABLE = (
    "CREATE STREAMING TABLE clicks (url STRING, ms INT, spent DOUBLE, extra MAP<STRING, INT>, at TIMESTAMP);"
)


def find_derived_type(text: str) -> str:
    """The type of the only derived column of a query."""
    [query] = parse(text)
    ((column,),) = (table.derived for table in query.tables.values())
    return column.type.name


@pytest.mark.parametrize(
    ("call", "type_"),
    [
        ("parse_url(url, 'HOST')", "STRING"),
        ("substring_index(url, '/', 1)", "STRING"),
        ("split_part(url, '/', 1)", "STRING"),
        ("nvl2(url, ms, ms)", "INT"),
        ("regexp_count(url, 'a')", "INT"),
        ("width_bucket(spent, 0, 10, 5)", "BIGINT"),
        ("rint(spent)", "DOUBLE"),
        ("map_contains_key(extra, 'a')", "BOOLEAN"),
        ("to_utc_timestamp(at, 'CET')", "TIMESTAMP"),
    ],
)
def test_the_type_of_a_function(call: str, type_: str) -> None:
    assert find_derived_type(f"{TABLE} SELECT ms FROM clicks WHERE {call} IS NOT NULL") == type_


PAYMENTS = "CREATE STREAMING TABLE payments (id INT, amount DECIMAL(6,2), fee DECIMAL(30,10), rate DOUBLE);"


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("amount + id", "DECIMAL(13,2)"),
        ("amount * amount", "DECIMAL(13,4)"),
        ("amount * 1.5", "DECIMAL(9,3)"),
        ("amount / 3", "DECIMAL(10,6)"),
        ("amount % 1.5", "DECIMAL(3,2)"),
        ("amount * fee", "DECIMAL(37,12)"),
        ("fee * fee", "DECIMAL(38,6)"),
        ("fee / amount", "DECIMAL(38,16)"),
        ("amount * rate", "DOUBLE"),
        ("amount + 0.5D", "DOUBLE"),
        ("id % 0.7", "DECIMAL(1,1)"),
        ("amount * 5e-1", "DOUBLE"),
        ("coalesce(amount, 0)", "DECIMAL(12,2)"),
        ("coalesce(amount, 0.125)", "DECIMAL(7,3)"),
        ("CASE WHEN id > 1 THEN amount ELSE rate END", "DOUBLE"),
        ("greatest(amount, fee)", "DECIMAL(30,10)"),
        ("round(amount * 1.19, 2)", "DECIMAL(9,2)"),
        ("floor(amount / 10)", "DECIMAL(5,0)"),
    ],
)
def test_decimals_have_the_type_that_spark_computes(expression: str, type_: str) -> None:
    assert find_derived_type(f"{PAYMENTS} SELECT id FROM payments WHERE abs({expression}) > 1") == type_


@pytest.mark.parametrize("quotient", ["amount / 3", "id / 1.5", "(amount + 1) / 3 * rate", "fee * fee"])
def test_decimals_that_spark_rounds_are_columns(quotient: str) -> None:
    """A sum of rounded numbers is not the sum of the exact ones."""
    [query] = parse(f"{PAYMENTS} SELECT SUM({quotient}) FROM payments")
    assert [table.derived for table in query.tables.values()] != [()]


CARTS = (
    "CREATE STREAMING TABLE carts (id INT, prices ARRAY<INT>, notes MAP<STRING, DATE>, raw STRING, day DATE);"
)


@pytest.mark.parametrize(
    ("call", "type_"),
    [
        ("array_max(prices)", "INT"),
        ("get(prices, 0)", "INT"),
        ("array_position(prices, 3)", "BIGINT"),
        ("array_remove(prices, 3)", "ARRAY<INT>"),
        ("array_union(prices, array(1))", "ARRAY<INT>"),
        ("concat(prices, array(1))", "ARRAY<INT>"),
        ("transform(prices, p -> p * 1.5)", "ARRAY<DECIMAL(13, 1)>"),
        ("transform(prices, (p, i) -> concat('no ', i))", "ARRAY<STRING>"),
        ("aggregate(prices, 0, (total, p) -> total + p)", "INT"),
        ("map_keys(notes)", "ARRAY<STRING>"),
        ("map_values(notes)[0]", "DATE"),
        ("flatten(array(prices, prices))", "ARRAY<INT>"),
        ("array_repeat(raw, 2)", "ARRAY<STRING>"),
        ("try_add(id, 1)", "INT"),
        ("decode(id, 1, 'one', 2, 'two', 'many')", "STRING"),
        ("from_csv(raw, 'time TIMESTAMP')", "STRUCT<time: TIMESTAMP>"),
        ("trunc(day, 'MM')", "DATE"),
    ],
)
def test_the_types_of_arrays_and_maps(call: str, type_: str) -> None:
    assert find_derived_type(f"{CARTS} SELECT {call} AS v FROM carts") == type_


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("dayofweek(day)", 4),
        ("weekday(day)", 2),
        ("extract(DOW FROM day)", 4),
        ("extract(doy FROM day)", 322),
        ("date_part('week', day)", 47),
        ("datepart('MONS', date_add(day, 30))", 12),
    ],
)
def test_fields_of_a_date_have_sparks_values(call: str, value: int) -> None:
    text = to_duckdb(parse_one(call, read="spark"))
    query = f"SELECT {text} FROM (SELECT DATE '2026-11-18' AS day)"  # a Wednesday
    assert duckdb.execute(query).fetchall() == [(value,)]
