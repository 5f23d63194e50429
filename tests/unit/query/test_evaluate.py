"""What a query means, against DuckDB on the same text: NULL, aggregates, unions, arithmetic."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from millpond.frontend.parse import parse
from millpond.query.aggregate_functions import aggregate_values
from millpond.query.evaluate import Matcher, answer, compile_condition, compile_expression
from millpond.query.expressions import (
    TRUE,
    Aggregate,
    And,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Literal,
    Not,
    NotTrue,
    Op,
    Or,
    Ref,
    Truth,
)
from millpond.query.model import Session
from millpond.query.trees import conjuncts, find_aggregates, item_refs
from tests.support.generate import OPERATORS, Catalog
from tests.support.oracle import Answer, answer_one, normalise

Row = dict[str, Any]

CATALOG: Catalog = {
    "S": [("A", "INT"), ("B", "INT"), ("X", "DOUBLE"), ("M", "DECIMAL(10,2)"), ("L", "STRING")],
    "T": [("C", "INT"), ("D", "INT"), ("F", "BOOLEAN"), ("W", "DATE")],
}
DDL = "".join(
    f"CREATE STREAMING TABLE {name} ({', '.join(f'{c} {t}' for c, t in columns)}); "
    for name, columns in CATALOG.items()
)


def ours(sql: str, rows: Mapping[str, Sequence[Row]]) -> Answer:
    [query] = parse(DDL + sql)
    return Counter({normalise(row): n for row, n in answer(query, rows).items()})


def assert_agree(sql: str, rows: Mapping[str, Sequence[Row]]) -> Answer:
    mine, truth = ours(sql, rows), answer_one(sql, CATALOG, rows)
    assert mine == truth, sql
    return mine


def s(a: Any = None, b: Any = None, x: Any = None, m: Any = None, label: Any = None) -> Row:
    return {"A": a, "B": b, "X": x, "M": m, "L": label}


def t(c: Any = None, d: Any = None, f: Any = None, w: Any = None) -> Row:
    return {"C": c, "D": d, "F": f, "W": w}


def random_data(rng: random.Random, n: int) -> dict[str, list[Row]]:
    """Small values, so that ties and matches are frequent, and every fifth one NULL."""

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    def number() -> int:
        return rng.randint(-2, 3)

    return {
        "S": [
            s(
                maybe(number()),
                maybe(number()),
                maybe(number() / 2),
                maybe(Decimal(rng.randint(-9, 9)).scaleb(-2) + number()),
                maybe(rng.choice(["a", "b", "ba", ""])),
            )
            for _ in range(n)
        ],
        "T": [
            t(
                maybe(number()),
                maybe(number()),
                maybe(rng.random() < 0.5),
                maybe(date(2024, 2, 26 + rng.randint(0, 3))),
            )
            for _ in range(n)
        ],
    }


# --- three-valued logic -------------------------------------------------------------------------------

_NUMBERS = ("A", "B", "C", "D", "X", "M")


def random_condition(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth and kind < 0.5:
        left, right = random_condition(rng, depth - 1), random_condition(rng, depth - 1)
        if kind < 0.18:
            return f"({left} AND {right})"
        return f"({left} OR {right})" if kind < 0.36 else f"NOT ({left})"
    column = rng.choice(_NUMBERS)
    if kind < 0.58:
        return f"{column} IS {rng.choice(['', 'NOT '])}NULL"
    if kind < 0.66:
        members = ", ".join(rng.choice(["0", "1", "-2", "NULL"]) for _ in range(rng.randint(1, 3)))
        return f"{column} {rng.choice(['', 'NOT '])}IN ({members})"
    if kind < 0.73:
        return f"{column} {rng.choice(['', 'NOT '])}BETWEEN {rng.randint(-2, 1)} AND {rng.randint(-1, 3)}"
    if kind < 0.77:
        return rng.choice(["TRUE", "FALSE", "NULL", "1 < 2", "1 < NULL", "F", "NOT F", "F IS NULL"])
    if kind < 0.81:
        return f"L {rng.choice(OPERATORS)} '{rng.choice(['a', 'b', 'aa'])}'"
    if kind < 0.84:
        return f"W {rng.choice(OPERATORS)} DATE '2024-02-28'"
    other = rng.choice([*_NUMBERS, "1", "0.5", "-1"])
    shift = rng.choice(["", "", " + 1", " - 2"]) if other in _NUMBERS else ""
    return f"{column} {rng.choice(OPERATORS)} {other}{shift}"


@pytest.mark.parametrize("seed", range(100))
def test_conditions_agree_with_duckdb(seed: int) -> None:
    rng = random.Random(seed)
    text = random_condition(rng, 3)
    rows = random_data(rng, 5)
    assert_agree(f"SELECT A, B, C, D, X, L FROM S, T WHERE {text}", rows)


THREE = (True, False, None)


def _truth(name: str) -> Condition:
    return Comparison(Ref("R", name), Op.EQ, Literal(1, None))


@pytest.mark.parametrize("p", THREE)
@pytest.mark.parametrize("q", THREE)
def test_truth_tables(p: bool | None, q: bool | None) -> None:
    row = {"p": None if p is None else int(p), "q": None if q is None else int(q)}

    def value(cond: Condition) -> bool | None:
        return compile_condition(cond, {"R": 0})((row,))

    a, b = _truth("p"), _truth("q")
    known = [x for x in (p, q) if x is not None]
    assert value(a) is p
    assert value(Not(a)) is (None if p is None else not p)
    assert value(NotTrue(a)) is (p is not True)
    both = False if False in known else None if len(known) < 2 else True
    either = True if True in known else None if len(known) < 2 else False
    assert value(And((a, b))) is both
    assert value(Or((a, b))) is either
    assert value(Not(And((a, b)))) is value(Or((Not(a), Not(b))))
    assert value(And((a, Truth(q)))) is both
    assert value(IsNull(Ref("R", "p"))) is (p is None)


def test_a_match_needs_a_true_condition() -> None:
    cond = Comparison(Ref("R", "p"), Op.NE, Ref("Q", "p"))
    rows: list[Row] = [{"p": 1}, {"p": None}, {"p": 2}]
    found = list(Matcher(["R", "Q"], cond).matches([rows, rows]))
    assert found == [({"p": 1}, {"p": 2}), ({"p": 2}, {"p": 1})]
    assert list(Matcher(["R"], Truth(None)).matches([rows])) == []


def test_a_constant_condition_decides_by_itself() -> None:
    rows: list[Row] = [{"p": 1}]
    for value, count in ((True, 1), (False, 0), (None, 0)):
        assert len(list(Matcher(["R"], And((TRUE, Truth(value)))).matches([rows]))) == count


# --- aggregates ---------------------------------------------------------------------------------------

ALL = (
    "COUNT(*), COUNT(A), COUNT(DISTINCT A), SUM(A), AVG(A), MIN(A), MAX(A), MEDIAN(A), SUM(X), AVG(X), "
    "MEDIAN(X), MIN(L), MAX(L), SUM(M), AVG(M), MIN(M), MAX(M), COUNT(L), COUNT(DISTINCT L)"
)


def test_aggregates_of_nothing() -> None:
    empty = (0, 0, 0, *[None] * 14, 0, 0)
    assert ours(f"SELECT {ALL} FROM S", {}) == {empty: 1}
    assert_agree(f"SELECT {ALL} FROM S", {"S": []})
    assert_agree(f"SELECT {ALL} FROM S WHERE A > 5", {"S": [s(1), s(2)]})
    assert ours("SELECT B, COUNT(*) FROM S GROUP BY B", {}) == {}
    assert_agree(f"SELECT {ALL} FROM S HAVING COUNT(*) > 0", {"S": []})


def test_aggregates_of_nulls() -> None:
    nulls = {"S": [s(), s(), s()]}
    assert assert_agree(f"SELECT {ALL} FROM S", nulls) == {(3, 0, 0, *[None] * 14, 0, 0): 1}
    assert assert_agree("SELECT A, COUNT(*), COUNT(B) FROM S GROUP BY A", nulls) == {(None, 3, 0): 1}


@pytest.mark.parametrize("seed", range(25))
def test_aggregates_agree_with_duckdb(seed: int) -> None:
    rng = random.Random(seed)
    rows = random_data(rng, rng.randint(1, 9))
    group = rng.choice(["", "B", "L", "B, L"])
    listed, grouped = (f"{group}, ", f" GROUP BY {group}") if group else ("", "")
    having = rng.choice(
        [
            "",
            "",
            " HAVING COUNT(*) > 1",
            " HAVING SUM(A) > 0 OR MAX(X) IS NULL",
            " HAVING NOT (AVG(A) < MIN(A) + 1)",
        ]
    )
    assert_agree(f"SELECT {listed}{ALL} FROM S{grouped}{having}", rows)
    assert_agree(f"SELECT SUM(A + B) - 2 * COUNT(*), MAX(-D), MIN(C) FROM S, T WHERE B <= C{having}", rows)


@pytest.mark.parametrize(
    ("values", "middle"),
    [
        ([5], 5.0),
        ([1, 4], 2.5),
        ([4, 1, 2], 2.0),
        ([1, 2, 2, 9], 2.0),
        ([1, 1, 2, 9], 1.5),
        ([-3, -2], -2.5),
        ([0.5, 1], 0.75),
        ([Decimal("0.01"), Decimal("0.02")], 0.015),
        ([2**62, 2**62 + 2], float(2**62 + 1)),
    ],
)
def test_the_median_is_the_middle_or_the_mean_of_two(values: list[Any], middle: float) -> None:
    median = Aggregate("MEDIAN", Ref("S", "A"))
    found = aggregate_values(median, Counter(values))
    assert found == middle
    assert type(found) is float
    assert aggregate_values(median, {v: 3 * n for v, n in Counter(values).items()}) == middle


def test_an_average_is_rounded_once() -> None:
    average = Aggregate("AVG", Ref("S", "A"))
    assert aggregate_values(average, {2**53 + 1: 1, -(2**53): 1}) == 0.5
    assert aggregate_values(average, {1: 2, 4: 1}) == 2.0
    total = Aggregate("SUM", Ref("S", "A"))
    assert aggregate_values(total, {2**62: 3, Decimal("0.25"): 2}) == 3 * 2**62 + Decimal("0.5")


def test_aggregates_are_listed_once_in_the_order_of_the_text() -> None:
    [query] = parse(
        DDL + "SELECT 1 + MAX(A), B, MIN(A) - MAX(A) FROM S GROUP BY B HAVING SUM(A) > 1 AND MIN(A) < AVG(X)"
    )
    [select] = query.selects
    assert [a.function for a in find_aggregates(select)] == ["MAX", "MIN", "SUM", "AVG"]
    assert item_refs(select.items) == {Ref("S", "A"), Ref("S", "B")}


# --- terms --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT A FROM S UNION ALL SELECT C FROM T", {(1,): 4, (2,): 2, (None,): 2}),
        ("SELECT A FROM S UNION SELECT C FROM T", {(1,): 1, (2,): 1, (None,): 1}),
        ("SELECT A FROM S UNION ALL SELECT DISTINCT C FROM T", {(1,): 3, (2,): 2, (None,): 2}),
        ("SELECT DISTINCT A FROM S UNION ALL SELECT DISTINCT C FROM T", {(1,): 2, (2,): 2, (None,): 2}),
        ("SELECT DISTINCT A, B FROM S", {(1, 0): 1, (1, None): 1, (2, 0): 1, (None, None): 1}),
        ("SELECT DISTINCT 7 FROM S, T", {(7,): 1}),
        ("SELECT 7 FROM S, T", {(7,): 16}),
        ("SELECT COUNT(*) FROM S UNION ALL SELECT COUNT(C) FROM T", {(4,): 1, (3,): 1}),
        ("SELECT COUNT(A) FROM S UNION SELECT COUNT(C) FROM T", {(3,): 1}),
    ],
)
def test_unions_and_distinct(sql: str, expected: dict[tuple[Any, ...], int]) -> None:
    rows = {"S": [s(1, 0), s(1), s(2, 0), s()], "T": [t(1), t(1), t(2), t()]}
    assert assert_agree(sql, rows) == expected


def test_a_self_join_sees_a_row_beside_itself() -> None:
    rows = {"S": [s(1), s(1), s(2)]}
    assert assert_agree("SELECT x.A FROM S x, S y WHERE x.A = y.A", rows) == {(1,): 4, (2,): 1}
    assert assert_agree("SELECT DISTINCT 1 FROM S x, S y WHERE x.A < y.A", rows) == {(1,): 1}


# --- arithmetic ---------------------------------------------------------------------------------------


def test_expressions_agree_with_duckdb() -> None:
    divisors = [-7, -3, -1, 1, 2, 3, 7, None]  # by 0: below; DuckDB refuses
    rows = {"S": [s(a, b, None if b is None else b / 4) for a in (*divisors, 0) for b in divisors]}
    for sql in (
        "SELECT A, B, A / B, A % B, A * B - 1 FROM S",
        "SELECT A, X, A / X, A * X, X - A, -X FROM S",
        "SELECT A, -(A + B) * 2, A - B - 1 FROM S",
    ):
        assert_agree(sql, rows)


@pytest.mark.parametrize(
    ("left", "right", "rest"),
    [(7, 3, 1), (-7, 3, -1), (7, -3, 1), (-7, -3, -1), (6, 3, 0), (0, -3, 0), (None, 3, None)],
)
def test_a_remainder_has_the_sign_of_the_dividend(left: int | None, right: int, rest: int | None) -> None:
    rows = {"S": [s(left, right)]}
    assert assert_agree("SELECT A % B FROM S", rows) == {(rest,): 1}


def test_division_is_exact_and_by_zero_is_null() -> None:
    rows = {"S": [s(7, 2, 0.0), s(7, 0, 0.5), s(1, 3)]}
    found = ours("SELECT A / B, A / X, A % X, A % B FROM S", rows)
    assert found == {
        (3.5, None, None, 1): 1,
        (None, 14, 0, None): 1,
        (0.333333333333, None, None, 1): 1,
    }


def test_decimals_meet_doubles_and_integers() -> None:
    rows = {"S": [s(2, None, 0.5, Decimal("1.25")), s(None, None, None, Decimal("-0.10"))]}
    assert_agree("SELECT M + A, M * A, M - 1 FROM S", rows)
    assert ours("SELECT M + X, X * M, M / X FROM S", rows) == {(1.75, 0.625, 2.5): 1, (None, None, None): 1}


def test_days_are_added_to_dates() -> None:
    rows = {"T": [t(w=date(2024, 2, 28)), t(w=None)]}
    assert assert_agree("SELECT W FROM T WHERE W + 2 = DATE '2024-03-01'", rows) == {(date(2024, 2, 28),): 1}
    assert assert_agree("SELECT W FROM T WHERE W - 31 < DATE '2024-01-29'", rows) == {(date(2024, 2, 28),): 1}


def test_an_aggregate_has_no_value_in_a_match() -> None:
    call: Expr = Aggregate("SUM", Ref("S", "A"))
    with pytest.raises(ValueError, match="aggregate"):
        compile_expression(call, {"S": 0})


def test_conjuncts_are_flattened_in_order() -> None:
    a, b, c = (_truth(name) for name in "abc")
    assert conjuncts(And((And((a, TRUE)), Or((b, c)), And((c,))))) == [a, Or((b, c)), c]
    assert conjuncts(TRUE) == []


# --- session windows -----------------------------------------------------------------------------------


def test_rows_of_a_group_are_divided_into_sessions_by_the_gap() -> None:
    """Rows have the edges of a session of their own; a row that comes when a session ends belongs to it."""
    gap = timedelta(seconds=5)
    at = {second: datetime(2020, 1, 1) + timedelta(seconds=second) for second in (0, 5, 10, 16, 40)}
    rows = [{"k": key, "t": at[s], "e": at[s] + gap} for key in "xy" for s in at if key == "x" or s == 10]
    [query] = parse(
        "CREATE STREAMING TABLE S (k STRING, t TIMESTAMP, e TIMESTAMP) TBLPROPERTIES ('time' = 't');"
        "SELECT k, t, e, COUNT(*) FROM S GROUP BY k, t, e"
    )
    [select] = query.selects
    session = Session(Ref("S", "t"), 5_000_000, Ref("S", "t"), Ref("S", "e"))
    select = replace(select, group_by=(Ref("S", "k"),), session=session)
    query = replace(query, terms=(replace(query.terms[0], selects=(select,)),))
    assert answer(query, {"S": rows}) == Counter(
        [
            ("x", at[0], at[10] + gap, 3),
            ("x", at[16], at[16] + gap, 1),
            ("x", at[40], at[40] + gap, 1),
            ("y", at[10], at[10] + gap, 1),
        ]
    )
