"""Verdicts on queries with expressions over one row, over aggregates and over several tables."""

from __future__ import annotations

import random
from datetime import date, timedelta
from decimal import Decimal

import pytest

import millpond
from millpond.errors import SqlError
from millpond.frontend.parse import parse
from millpond.query.evaluate import compile_condition
from millpond.runtime.derive import derive_each

TABLES = """
CREATE STREAMING TABLE S (A INT, B STRING, D DOUBLE, K DECIMAL(6,2), N INT, F BOOLEAN, E DATE);
CREATE STREAMING TABLE U (A INT, C INT);
CREATE TABLE R (K INT, L STRING);
CREATE STREAMING TABLE V (
  P STRUCT<id: INT, u: STRUCT<name: STRING>>, T ARRAY<INT>, M MAP<STRING, INT>, X BINARY
);
"""

BOUNDED = [
    "SELECT A % 10, COUNT(*) FROM S GROUP BY A % 10",
    "SELECT A & 31, COUNT(*) FROM S GROUP BY 1",
    "SELECT CASE WHEN A > 3 THEN 'x' ELSE 'y' END AS z, SUM(N) FROM S GROUP BY z",
    "SELECT DISTINCT CASE B WHEN 'p' THEN 1 WHEN 'q' THEN 2 END FROM S",
    "SELECT LEAST(GREATEST(A, 0), 100), COUNT(*) FROM S GROUP BY 1",
    "SELECT CAST(A AS TINYINT), COUNT(*) FROM S GROUP BY 1",
    "SELECT B LIKE 'x%' AS z, COUNT(*) FROM S GROUP BY z",
    "SELECT 10 - A, COUNT(*) FROM S WHERE 10 - A BETWEEN 1 AND 5 GROUP BY 1",
    "SELECT COUNT(DISTINCT A % 5), SUM(A * N), MAX(length(B)), AVG(sqrt(D)) FROM S",
    "SELECT COUNT(*) FILTER (WHERE B LIKE 'a%'), SUM(D) FILTER (WHERE A > 3) FROM S",
    "SELECT COUNT(*) FROM S x, U y WHERE x.A % 7 = y.C % 7",
    "SELECT x.A FROM S x JOIN R ON upper(R.L) = upper(x.B)",
    "SELECT A || 'x', A::DOUBLE, nullif(A, 1), D BETWEEN A + 1 AND N, split(B, ',')[0] FROM S",
    "SELECT A FROM S WHERE F IS NOT TRUE AND A IS DISTINCT FROM N AND B RLIKE '^a' AND A + N < 5",
    "SELECT ROUND(AVG(D), 1), A FROM S WHERE A BETWEEN 1 AND 3 GROUP BY A",
    "SELECT CASE WHEN SUM(A) > 3 THEN 'many' ELSE 'few' END FROM S",
    "SELECT abs(x.A - y.C) FROM S x, U y WHERE x.A = 3 AND y.C = 4",
    "SELECT upper(B), COUNT(*) FROM S WHERE B IN ('a', 'b') GROUP BY upper(B)",
    "SELECT B || A, COUNT(*) FROM S WHERE B = 'x' AND A BETWEEN 1 AND 3 GROUP BY 1",
    "SELECT DISTINCT A FROM S WHERE abs(A - 3) <= 5",
    "SELECT DISTINCT x.A FROM S x, U y WHERE x.A BETWEEN 0 AND 9 AND x.N - y.C > 3",
    "SELECT *, T[0], M['a'], P.u.name, V.P.id, size(T), X FROM V WHERE P.id > 1 AND P.u IS NOT NULL",
    "SELECT P.id % 10, COUNT(*), MAX(T[0]) FROM V GROUP BY P.id % 10",
    "SELECT d.id, d.t.n FROM (SELECT from_json(B, 'id INT, t STRUCT<n: STRING>') AS d FROM S)",
    "SELECT x.A FROM S x, U y WHERE x.A BETWEEN 1 AND 3 AND y.C BETWEEN 1 AND 3 AND abs(x.A - y.C) < 2",
    "SELECT A % 3, COUNT(*) FROM S GROUP BY 1 HAVING round(AVG(D), 1) > 2 AND COUNT(*) > 1",
    "SELECT A % 7L, COUNT(*) FROM S GROUP BY 1",
    "SELECT ~A & 3, COUNT(*) FROM S GROUP BY 1",
    "SELECT R.L IS NULL AS missing, COUNT(*) FROM S LEFT JOIN R ON R.K = S.N GROUP BY R.L IS NULL",
    "SELECT CASE WHEN F AND L > 'k' THEN 'x' ELSE 'y' END z, SUM(D) FROM S JOIN R ON R.K = S.N GROUP BY z",
    "SELECT K % 1.5, COUNT(*) FROM S GROUP BY 1",
    "SELECT DISTINCT GREATEST(-1.5, LEAST(1.5, K)) FROM S",
    "SELECT extract(dow FROM E) % 2, COUNT(*) FROM S GROUP BY 1",
    "SELECT extract(HOUR FROM CAST(B AS TIMESTAMP)) || 'h', COUNT(*) FROM S GROUP BY 1",
    "SELECT date_part('month', E) * 2, COUNT(*) FROM S GROUP BY 1",
    "SELECT pmod(N, 3) > 1 AS z, SUM(1) FILTER (WHERE if(A > 1, 1, 2) = 1) FROM S GROUP BY z",
]
# With the number of assumptions.
UNBOUNDED = [
    ("SELECT UPPER(B), COUNT(*) FROM S GROUP BY UPPER(B)", 1),
    ("SELECT D % 10, COUNT(*) FROM S GROUP BY 1", 1),
    ("SELECT A + 5, COUNT(*) FROM S GROUP BY A + 5", 0),
    ("SELECT abs(K), COUNT(*) FROM S GROUP BY abs(K)", 1),
    ("SELECT A, MAX(D) - MIN(D) FROM S GROUP BY A HAVING MAX(D) - MIN(D) > 10", 0),
    ("SELECT A, STDDEV(D) FROM S GROUP BY A HAVING STDDEV(D) > 10", 0),
    ("SELECT COUNT(DISTINCT A) FROM S WHERE round(K * 1.19, 2) > 10", 0),
    ("SELECT COUNT(DISTINCT A) FROM S WHERE K * K > 20000", 0),
    ("SELECT COUNT(DISTINCT A) FROM S WHERE coalesce(K, 0) >= 100.5", 0),
    ("SELECT year(E), COUNT(*) FROM S GROUP BY year(E)", 1),
    ("SELECT A, COUNT(*) FROM S WHERE B LIKE 'x%' GROUP BY A", 0),
    ("SELECT B, COUNT(*) FROM S WHERE B LIKE 'x%' GROUP BY B", 1),
    ("SELECT B, COUNT(*) FROM S WHERE B RLIKE '^[EF][0-9]+' GROUP BY B", 1),
    ("SELECT regexp_extract(B, '^([a-z]+)', 1), COUNT(*) FROM S GROUP BY 1", 1),
    ("SELECT COUNT(*) FROM S x, U y WHERE x.A * 2 < y.C * 3", 2),
    ("SELECT A, SUM(N), ROUND(SUM(N) / 2, 1) FROM S GROUP BY A", 0),
    ("SELECT x.A, y.C FROM S x, U y WHERE abs(x.A - y.C) < 3", 0),
    ("SELECT COUNT(*) FROM S x, U y WHERE x.A - y.C > 3", 0),
    ("SELECT P.id, P.u.name, COUNT(*) FROM V GROUP BY P.id, P.u.name", 1),
    ("SELECT from_json(B, 'id INT').id AS i, COUNT(*) FROM S GROUP BY i", 1),
    ("SELECT A, SUM(N) AS n FROM S GROUP BY A HAVING abs(SUM(N)) > 2", 0),
    ("SELECT B, COUNT(*) FROM S GROUP BY B HAVING B LIKE 'x%'", 1),
    ("SELECT x.A, y.C FROM S x, U y WHERE sqrt(x.N * x.N + y.A * y.A) < 3", 0),
]
# Few values, but not known to be few: no witness may be confirmed.
NOT_UNBOUNDED = [
    "SELECT month(E), COUNT(*) FROM S GROUP BY month(E)",
    "SELECT sign(A), COUNT(*) FROM S GROUP BY 1",
    "SELECT DISTINCT A FROM S WHERE A * A < 5",
    "SELECT DISTINCT A FROM S WHERE A * A < 300",
    "SELECT A - 7 * (A DIV 7), COUNT(*) FROM S GROUP BY 1",
    "SELECT A - 20 * FLOOR(A / 20), COUNT(*) FROM S GROUP BY 1",
]
REFUSED = [
    ("SELECT DISTINCT P FROM V", "DISTINCT P, which is STRUCT"),
    ("SELECT COUNT(*) FROM V GROUP BY T", "GROUP BY T, which is ARRAY<INT>"),
    ("SELECT X FROM V WHERE T = T", "cannot be compared"),
    ("SELECT MAX(M) FROM V", "MAX of M"),
    ("SELECT P.nothing FROM V", "P.nothing"),
    ("SELECT DISTINCT CASE WHEN A > 1 THEN rand() END FROM S", "does not follow from the row"),
    ("SELECT r FROM (SELECT rand() AS r FROM S) WHERE r > 0.5", "does not follow from the row"),
    ("SELECT MAX(rand()) FROM S", "RAND"),
    ("SELECT A FROM S WHERE uuid() = B", "UUID"),
    ("SELECT upper(explode(split(B, ','))) FROM S", "EXPLODE"),
    ("SELECT not_a_function(A) FROM S", "NOT_A_FUNCTION"),
    ("SELECT kurtosis(A) FROM S", "column 8: the function KURTOSIS"),
    ("SELECT upper(B), SUM(A) FROM S GROUP BY A", "S.B"),
]


def judge(query: str) -> millpond.Verdict:
    verdict = millpond.check(TABLES + query)
    assert isinstance(verdict, millpond.Verdict)
    return verdict


@pytest.mark.parametrize("query", BOUNDED)
def test_bounded(query: str) -> None:
    verdict = judge(query)
    assert verdict.outcome == "bounded"
    assert verdict.assumptions == ()


@pytest.mark.parametrize(("query", "assumptions"), UNBOUNDED)
def test_unbounded(query: str, assumptions: int) -> None:
    verdict = judge(query)
    assert verdict.outcome == "unbounded"
    assert len(verdict.assumptions) == assumptions, verdict.assumptions
    assert verdict.explain().count("assumed:") == assumptions


@pytest.mark.parametrize("query", NOT_UNBOUNDED)
def test_few_values_are_no_witness(query: str) -> None:
    assert judge(query).outcome != "unbounded"


@pytest.mark.parametrize(("query", "named"), REFUSED)
def test_refused(query: str, named: str) -> None:
    with pytest.raises(SqlError, match=named):
        millpond.check(TABLES + query)


def test_strings_that_differ_in_case_are_different_columns() -> None:
    (query,) = parse(TABLES + "SELECT A FROM S WHERE B LIKE 'X%' OR B LIKE 'x%'")
    names = [column.name.lower() for column in query.tables["S"].derived]
    assert len(set(names)) == 2


EXPRESSIONS = (
    "A % 7", "A % -3", "A & 12", "LEAST(GREATEST(A, -2), 5)", "GREATEST(LEAST(A, 5), -2)", "A + 5", "A - 3",
    "4 + A",     "CASE WHEN A > 0 THEN 'p' WHEN A < -5 THEN 'n' END", "IF(A > N, 1, -1)",
    "CASE A WHEN 1 THEN 10 WHEN 2 THEN 20 ELSE 30 END", "LEAST(A, 3)", "LEAST(GREATEST(A, N), 5)", "A % 7L",
    "K % 2", "K % -1.5", "A % 2.5", "LEAST(GREATEST(K, -1.5), 2)",
)  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_facts_hold(expression: str) -> None:
    """What is derived from the form of an expression holds for DuckDB's values of it, NULL included."""
    (query,) = parse(TABLES + f"SELECT COUNT(*) FROM S GROUP BY {expression}")
    table = query.tables["S"]
    rng = random.Random(expression)
    numbers = [None, *range(-12, 13)]
    rows = [
        {"A": rng.choice(numbers), "N": rng.choice(numbers), "B": "b", "D": 0.5, "F": True}
        | {"K": Decimal(rng.randrange(-500, 500)) / 100}
        | {"E": date(2000, 1, 1) + timedelta(days=i)}
        for i in range(200)
    ]
    made = [row for each in derive_each(table, rows) for row in each]
    for column in table.derived:
        assert column.derivation is not None
        for fact in column.derivation.facts:
            holds = compile_condition(fact, {"S": 0})
            assert all(holds((row,)) is not False for row in made), fact


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("upper(B)", "upper(B)"),
        ("A % 3 + 1", "((A % 3) + 1)"),
        ("B LIKE 'x%'", "B LIKE x%"),
        ("B || 'x' || B", "concat(B, x, B)"),
        ("CAST(A AS STRING)", "CAST(A AS STRING)"),
        ("CASE WHEN A > 1 THEN 'x' ELSE B END", "CASE WHEN (A > 1) THEN x ELSE B END"),
        ("ROUND(SUM(D), 1)", "round(sum(D), 1)"),
    ],
)
def test_output_columns_have_the_names_of_spark(item: str, name: str) -> None:
    (query,) = parse(TABLES + f"SELECT {item} FROM S")
    names = [column.name for column in query.projection] or list(query.columns)
    assert names == [name]


def test_expressions_on_the_outer_side_are_computed_after_the_join() -> None:
    """COALESCE is not NULL in a row without partner, so it must not be computed at the source."""
    outer = "FROM S x LEFT JOIN R r ON upper(r.L) = x.B"
    (query,) = parse(TABLES + f"SELECT coalesce(r.K, 0) AS k, upper(x.B) AS b {outer}")
    assert [column.name for column in query.projection] == ["k", "b"]
    assert [column.name for column in query.tables["R"].derived] == ["UPPER(L)"]
    (query,) = parse(TABLES + f"SELECT x.A {outer} WHERE coalesce(r.K, 0) = 0")
    assert query.filter is not None and query.filter.name == "(coalesce(K, 0) = 0)"
    with pytest.raises(SqlError, match="not supported"):
        parse(TABLES + f"SELECT x.A {outer} JOIN U u ON u.A = coalesce(r.K, 0)")
