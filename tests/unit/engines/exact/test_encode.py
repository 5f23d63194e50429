"""Digits and words in SQL against the classes they stand for.

The codes are those that real queries get; DuckDB evaluates the SQL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED
from millpond.engines.exact.compile import compile_plan
from millpond.engines.exact.encode import WORD, Digit, TooLarge, Word, admitted, packed
from millpond.engines.exact.slots import Slot
from millpond.frontend.parse import parse
from millpond.plan.classes import ColumnClasses
from millpond.query.closure import Range
from millpond.query.model import Ref
from millpond.query.number_line import Points
from millpond.query.types import BIGINT, DATE, DOUBLE, FLOAT, INT, STRING, Family, SqlType, decimal
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.sql import Dialect, number_sql
from tests.support.local import arrow_type

DDL = r"""
CREATE STREAMING TABLE S (
    i INT, b BIGINT, t TINYINT, k SMALLINT, o BOOLEAN, d DATE, m DECIMAL(10,2), x DOUBLE, f FLOAT, s STRING);
CREATE STREAMING TABLE T (
    i INT, b BIGINT, t TINYINT, k SMALLINT, o BOOLEAN, d DATE, m DECIMAL(10,2), x DOUBLE, f FLOAT, s STRING);
CREATE STREAMING TABLE H (h INT CHECK (h BETWEEN 0 AND 23));
CREATE STREAMING TABLE U (u INT CHECK (u IN (1, 20, 300)));
CREATE STREAMING TABLE Y (y DATE CHECK (y IN (DATE '1969-12-31', DATE '2024-02-29')) NOT NULL);
"""
ENGINE = DuckDb()
FAR = Fraction(10) ** 400


@dataclass(frozen=True)
class Case:
    """A column of the first occurrence of a query, and how many classes its slots tell apart."""

    column: str
    query: str
    classes: int

    def slots(self) -> list[tuple[Slot, Digit]]:
        [query] = parse(DDL + self.query)
        verdict = decide(query)
        assert verdict.outcome == BOUNDED and verdict.plan is not None
        slots = compile_plan(verdict.plan, native_sets=False).slots
        first = query.selects[0].occurrences[0].alias
        return [
            (slot, digit)
            for slot in slots
            for digit in slot.digits
            if digit.code.column == Ref(first, self.column)
        ]

    def digits(self) -> list[Digit]:
        return [digit for _, digit in self.slots()]


def exact(column: str, condition: str, classes: int) -> Case:
    return Case(column, f"SELECT DISTINCT {column} FROM S WHERE {condition}", classes)


def joined(column: str, condition: str, classes: int) -> Case:
    return Case(column, f"SELECT COUNT(*) FROM S, T WHERE {condition}", classes)


CASES = [
    # every value a class of its own
    exact("i", "i BETWEEN -3 AND 4", 8),
    exact("i", "i BETWEEN 5 AND 5", 1),
    exact("i", "i BETWEEN -2147483648 AND 2147483647", 1 << 32),
    exact("i", "i BETWEEN 2147483640 AND 2147483649", 10),
    exact("b", "b BETWEEN 9223372036854775800 AND 9223372036854775807", 8),
    exact("b", "b BETWEEN -9223372036854775808 AND -9223372036854775800", 9),
    exact("b", "b BETWEEN -2305843009213693950 AND 2305843009213693950", (1 << 62) - 3),
    exact("b", "b BETWEEN 2147483646 AND 2147483650", 5),
    exact("k", "k BETWEEN -32768 AND 32767", 1 << 16),
    exact("d", "d BETWEEN DATE '1969-12-30' AND DATE '1970-01-02'", 4),
    exact("d", "d BETWEEN DATE '0001-01-01' AND DATE '9999-12-31'", 3652059),
    exact("m", "m BETWEEN -0.05 AND 0.03", 9),
    exact("m", "m BETWEEN -99999999.99 AND 99999999.99", 19999999999),
    exact("t", "t > 120", 7),
    exact("o", "o = TRUE", 1),
    # with NULL
    Case("t", "SELECT DISTINCT t FROM S", 257),
    Case("o", "SELECT DISTINCT o FROM S", 3),
    Case("h", "SELECT DISTINCT h FROM H", 25),
    exact("i", "i IS NULL", 1),
    exact("i", "i IN (1, 100) OR i IS NULL", 3),
    exact("s", "s = 'a' OR s IS NULL", 2),
    # lists, looked up in one table or each value in a slot of its own
    Case("u", "SELECT DISTINCT u FROM U", 4),
    Case("y", "SELECT DISTINCT y FROM Y", 2),
    exact("i", "i IN (-2147483648, 0, 2147483647)", 3),
    exact("i", "i IN (1, 2, 3)", 3),
    exact("b", "b IN (-9223372036854775808, 9223372036854775807)", 2),
    exact("d", "d IN (DATE '0001-01-01', DATE '2024-02-29', DATE '9999-12-31')", 3),
    exact("m", "m IN (-99999999.99, 0.07, 99999999.99)", 3),
    exact("x", "x IN (0.1, -2.5, 1e300)", 3),
    exact("x", "x = 0", 1),
    exact("f", "f IN (0.5, -2.25)", 2),
    exact("s", r"s IN ('', 'it\'s', 'a\\b', '%_', '\"', '`', 'ä', '😀', 'NULL')", 9),
    # joined: what lies beyond the partner's values is told apart no further
    joined("i", "S.i < T.i AND T.i BETWEEN 0 AND 5", 6),
    joined("i", "S.i < T.i AND T.i > 10 AND S.i < 20", 10),
    joined("i", "S.i <> T.i AND T.i BETWEEN 0 AND 2", 5),
    joined("i", "S.i < T.i AND T.i IN (0, 100, 200)", 201),
    joined("b", "S.b > T.i AND T.i BETWEEN 0 AND 2", 3),
    joined("m", "S.m <= T.i AND T.i BETWEEN 0 AND 1", 101),
    joined("d", "S.d < T.d AND T.d BETWEEN DATE '2024-02-28' AND DATE '2024-03-01'", 3),
    joined("t", "S.t < T.t", 255),
    joined("o", "S.o = T.o", 2),
    joined("s", "S.s <> T.s AND T.s = 'it\\'s'", 3),
    # dense, told apart by a discrete partner
    joined("x", "S.x < T.i AND T.i BETWEEN 0 AND 5", 14),
    joined("x", "S.x <= T.i AND T.i BETWEEN -1 AND 1", 8),
    joined("x", "S.x > T.i AND T.i BETWEEN 1000000 AND 1000002", 8),
    joined("x", "S.x <> T.i AND T.i IN (0, 7)", 19),
    joined("x", "S.x < T.m AND T.m BETWEEN -0.03 AND 0.07", 24),
    joined("x", "S.x = T.m AND T.m BETWEEN -0.03 AND 0.07", 23),
    joined("x", "S.x < T.m AND T.m BETWEEN 0.28 AND 0.58", 64),
    joined("x", "S.x < T.m AND T.m BETWEEN 99999999.90 AND 99999999.99", 22),
    joined("x", "S.x + 0.5 < T.i AND T.i BETWEEN 0 AND 2", 8),
    joined("f", "S.f < T.i AND T.i BETWEEN 0 AND 2", 8),
]
IDS = [f"{case.column}: {case.query}" for case in CASES]


# --- values ----------------------------------------------------------------------------------------


def values_for(digit: Digit) -> list[Any]:
    """NULL, the ends of the type, and everything around the ends of the code and its allowed ranges."""
    code, type_ = digit.code, digit.type
    points = [code.low, code.high, (code.low + code.high) / 2]
    points += [end for r in code.allowed for end in (r.low, r.high) if end is not None]
    return [None, *dict.fromkeys(_around(points, type_, digit.points))]


def _around(points: Sequence[Fraction], type_: SqlType, known: Points) -> list[Any]:
    if type_.family is Family.STRING:
        return [*known.strings, *(s + end for s in known.strings for end in " \\'a😀"), "", "zz", "😀", "'"]
    if not type_.step:
        return _floats(points, single=type_.name == "FLOAT")
    assert type_.low is not None and type_.high is not None
    steps = [p / type_.step + n for p in (*points, type_.low, type_.high) for n in (-2, -1, 0, 1, 2)]
    inside = [math.floor(s) for s in steps if type_.low <= math.floor(s) * type_.step <= type_.high]
    match type_.family:
        case Family.BOOLEAN:
            return [False, True]
        case Family.DATE:
            return [date(1970, 1, 1) + timedelta(days=n) for n in inside]
        case _ if type_.step == 1:
            return list(inside)
    return [Decimal(n).scaleb(-2) for n in inside]


def _floats(points: Sequence[Fraction], single: bool) -> list[float]:
    near = [float(p) + n / 100 for p in points for n in range(-120, 121)]
    if single:
        near = [round(x * 4) / 4 for x in near]  # what a FLOAT holds exactly
        return [*near, 3.0e38, -3.0e38, math.inf, -math.inf, math.nan]
    near = [float(p) for p in points] + [round(x, 2) for x in near]
    near += [y for x in near[:] for y in (math.nextafter(x, math.inf), math.nextafter(x, -math.inf))]
    return [*near, 1.7e308, -1.7e308, 5e-324, math.inf, -math.inf, math.nan, -0.0]


def point_of(value: Any, digit: Digit) -> Fraction | None:
    """The point of a value.

    Beside decimals a double is the number it is written as, because it equals the decimal that Spark and
    DuckDB turn into it.  The infinities and NaN are beyond every number.
    """
    if not isinstance(value, float):
        return None if value is None else digit.points.of(value)
    if math.isnan(value) or math.isinf(value):
        return -FAR if value == -math.inf else FAR
    return Fraction(repr(value)) if digit.code.grid else Fraction(value)


def admits(digit: Digit, point: Fraction | None) -> bool:
    """A row with the value can match, by the definition of the code."""
    code = digit.code
    return code.null if point is None else code.classes > code.null and code.admits(point)


def evaluated(text: str, values: Sequence[Any], type_: SqlType | pa.DataType) -> list[Any]:
    kind = arrow_type(type_) if isinstance(type_, SqlType) else type_
    table = pa.table({"x": pa.array(values, kind), "number": range(len(values))})
    found = ENGINE.query(f"SELECT {text} AS y FROM input ORDER BY number", {"input": table})
    return list(found["y"].to_pylist())


# --- digits ----------------------------------------------------------------------------------------


def admissible(digit: Digit) -> list[Any]:
    return [value for value in values_for(digit) if admits(digit, point_of(value, digit))]


def assert_digits_are_classes(digit: Digit) -> None:
    """Two values have the same digit exactly if they are in the same class."""
    values = admissible(digit)
    assert values, "nothing to look at"
    digits = evaluated(digit.of("x", Dialect.DUCKDB), values, digit.type)
    assert all(d is not None and 0 <= d < digit.radix for d in digits)
    classes = [digit.code.of(point_of(value, digit)) for value in values]
    pairs = set(zip(classes, digits, strict=True))
    assert len(pairs) == len(set(classes)) == len(set(digits))


def assert_values_come_back(digit: Digit) -> None:
    values = admissible(digit)
    digits = evaluated(digit.of("x", Dialect.DUCKDB), values, digit.type)
    assert evaluated(digit.value("x"), digits, pa.int64()) == values


def assert_admits_as_the_code_does(digit: Digit) -> None:
    values = [value for value in values_for(digit) if value is not None or digit.code.null]
    found = evaluated(admitted("x", digit, None, Dialect.DUCKDB), values, digit.type)
    points = [point_of(value, digit) for value in values]
    assert found == [point is None or digit.code.admits(point) for point in points]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_digits_of_a_column(case: Case) -> None:
    digits = case.digits()
    assert sum(digit.code.classes for digit in digits) == case.classes
    for digit in digits:
        assert_digits_are_classes(digit)
        assert_admits_as_the_code_does(digit)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_value_of_a_digit_is_the_value(case: Case) -> None:
    for digit in case.digits():
        code = digit.code
        hidden = code.below or code.above or code.grid is not None
        unlisted = digit.type.step not in (0, 1) and code.values > 3
        assert digit.readable == (not hidden and not unlisted)
        if digit.readable:
            assert_values_come_back(digit)


STRANGE = (
    "",
    " ",
    "a",
    "A",
    "it's",
    "''",
    "a\\b",
    "\\",
    "\\'",
    "%_",
    '"',
    "`",
    "ä",
    "a\u0308",
    "😀",
    "NULL",
    "\n",
    "--",
)
LISTS: list[tuple[SqlType, tuple[Any, ...]]] = [
    (STRING, STRANGE),
    (DOUBLE, (0.1, -2.5, 1e300, 5e-324, -0.0, 1 / 3)),
    (FLOAT, (0.5, -2.25, 3.0)),
    (BIGINT, (-(1 << 63), -1, 0, (1 << 63) - 1)),
    (DATE, (date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31))),
    (decimal(10, 2), (Decimal("-99999999.99"), Decimal("0.07"), Decimal("12.30"))),
]


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize(("type_", "values"), LISTS, ids=[str(t) for t, _ in LISTS])
def test_digits_of_a_list_of_values(type_: SqlType, values: tuple[Any, ...], null: bool) -> None:
    points = Points.with_strings(v for v in values if isinstance(v, str))
    singles = sorted({points.of(v) for v in values})
    allowed = tuple(Range(p, p) for p in singles)
    code = ColumnClasses(
        Ref("S", "A"), singles[0], singles[-1], len(singles), False, False, null, allowed=allowed
    )
    digit = Digit(code, type_, points)
    assert digit.radix == len(values) + null and digit.readable
    assert_digits_are_classes(digit)
    assert_admits_as_the_code_does(digit)
    assert_values_come_back(digit)
    assert len(admissible(digit)) >= len(values) + null


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_slot_takes_the_rows_that_can_match_and_gives_each_a_key(case: Case) -> None:
    for slot, digit in case.slots():
        values = values_for(digit)
        table = pa.table(
            {case.column: pa.array(values, arrow_type(digit.type)), "number": range(len(values))}
        )
        ingest = slot.ingest(Dialect.DUCKDB)
        key = dict(ingest.columns)[slot.key[0]]
        sql = f"SELECT number, {key} AS key FROM input WHERE {ingest.admits} ORDER BY number"
        taken = ENGINE.query(sql, {"input": table}).to_pydict()
        expected = [i for i, value in enumerate(values) if admits(digit, point_of(value, digit))]
        assert taken["number"] == expected
        assert None not in taken["key"]


def test_more_values_than_a_word_holds_are_refused() -> None:
    high = Fraction(1 << 61)
    digit = Digit(_code(-high, high), BIGINT, Points())
    with pytest.raises(TooLarge, match=r"S\.A has .* values to be told apart; bound it more closely"):
        _ = digit.radix
    assert Digit(_code(-high + 2, high - 2), BIGINT, Points()).radix == WORD - 3


@pytest.mark.parametrize(
    "text",
    ["0", "-7", "0.07", f"{10**38 - 1}", f"-{10**27}.0000000001", "0." + "0" * 37 + "1"],
)
def test_numbers_are_spelled_in_full_where_a_decimal_holds_them(text: str) -> None:
    assert number_sql(Fraction(text)) == text


@pytest.mark.parametrize("value", [1e300, -1e40, 2.0**127, 2.0**-40, 0.1, 5e-324])
def test_numbers_are_doubles_where_no_decimal_holds_them(value: float) -> None:
    """Spark refuses a number of more digits than a decimal has."""
    assert number_sql(Fraction(value)) == f"CAST('{value!r}' AS DOUBLE)"


# --- words -----------------------------------------------------------------------------------------


def _code(
    low: Fraction, high: Fraction, below: bool = False, above: bool = False, null: bool = False
) -> ColumnClasses:
    return ColumnClasses(Ref("S", "A"), low, high, int(high - low) + 1, below, above, null)


@st.composite
def _digits(draw: st.DrawFn) -> Digit:
    low = draw(st.sampled_from([0, 1, -3, -(1 << 31), (1 << 31) - 5]))
    width = draw(
        st.sampled_from([1, 2, 3, 5]) if low > 0 else st.sampled_from([1, 2, 10, 1000, 1 << 20, 1 << 31])
    )
    high = Fraction(low + width - 1)
    return Digit(
        _code(Fraction(low), high, draw(st.booleans()), draw(st.booleans()), draw(st.booleans())),
        INT,
        Points(),
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(_digits(), max_size=5), st.data())
def test_words_hold_their_digits(digits: list[Digit], data: st.DataObject) -> None:
    words = packed(digits)
    assert [d for word in words for d in word.digits] == digits
    assert words and all(word.size < WORD for word in words)
    for word in words:
        _assert_holds(word, data)


def _assert_holds(word: Word, data: st.DataObject) -> None:
    """Different digits give different words, and every digit can be told from its word."""
    ends = [st.sampled_from(sorted({0, d.radix // 2, d.radix - 1})) for d in word.digits]
    rows = data.draw(st.lists(st.tuples(*ends), min_size=1, max_size=8))
    texts = [f"row.v{i}" for i in range(len(word.digits))]
    kind = pa.struct(
        [(f"v{i}", pa.int32() if d.radix < 1 << 31 else pa.int64()) for i, d in enumerate(word.digits)]
    )
    values = [{f"v{i}": v for i, v in enumerate(row)} for row in rows]
    spelled = f"CAST({word.of(texts).replace('row.', 'x.')} AS {word.type})"
    found = (
        evaluated(spelled, values, kind if word.digits else pa.int32()) if word.digits else [0] * len(rows)
    )
    assert all(0 <= w < word.size for w in found)
    assert len(set(found)) == len(set(rows))
    for i in range(len(word.digits)):
        width = pa.int32() if word.type == "INT" else pa.int64()
        assert evaluated(word.digit(i, "x"), found, width) == [row[i] for row in rows]


def test_no_digits_are_one_word() -> None:
    [word] = packed([])
    assert (word.size, word.type, word.of([])) == (1, "INT", "0")


def test_words_are_as_few_as_hold_the_digits() -> None:
    wide = Digit(_code(Fraction(0), Fraction((1 << 31) - 2)), INT, Points())
    assert [len(word.digits) for word in packed([wide, wide, wide])] == [2, 1]
    byte = Digit(_code(Fraction(0), Fraction(255)), INT, Points())
    assert [len(word.digits) for word in packed([byte] * 10)] == [7, 3]
    assert [word.type for word in packed([byte] * 10)] == ["BIGINT", "INT"]
