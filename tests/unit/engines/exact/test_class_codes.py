"""Class codes and packed keys in SQL, checked against the definition of the classes.

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
from millpond.engines.exact.class_codes import (
    MAX_COMBINATIONS,
    ClassCode,
    PackedKey,
    TooManyClassesError,
    allowed_sql,
    pack_codes,
)
from millpond.engines.exact.compile import compile_exact
from millpond.engines.exact.slots import Slot
from millpond.frontend.parse import parse
from millpond.plan.classes import ColumnClasses
from millpond.query.closure import Range
from millpond.query.expressions import Ref
from millpond.query.number_line import Points
from millpond.query.types import BIGINT, DATE, DOUBLE, FLOAT, INT, STRING, Family, SqlType, decimal
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.sql import Dialect
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
    """A column of the first occurrence of a query, and the number of its classes in all slots."""

    column: str
    query: str
    classes: int

    def slots(self) -> list[tuple[Slot, ClassCode]]:
        [query] = parse(DDL + self.query)
        verdict = decide(query)
        assert verdict.outcome == BOUNDED and verdict.plan is not None
        slots = compile_exact(verdict.plan, native_sets=False).slots
        first = query.selects[0].occurrences[0].alias
        return [
            (slot, code)
            for slot in slots
            for code in slot.codes
            if code.classes.column == Ref(first, self.column)
        ]

    def codes(self) -> list[ClassCode]:
        return [code for _, code in self.slots()]


def exact(column: str, condition: str, classes: int) -> Case:
    return Case(column, f"SELECT DISTINCT {column} FROM S WHERE {condition}", classes)


def joined(column: str, condition: str, classes: int) -> Case:
    return Case(column, f"SELECT COUNT(*) FROM S, T WHERE {condition}", classes)


CASES = [
    # every value is a class of its own
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
    # lists: a CASE for each value, or a slot for each value
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
    # joined: all values beyond those of the partner are one class
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
    # dense, with a discrete partner
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


def values_for(code: ClassCode) -> list[Any]:
    """NULL, the ends of the type, and everything around the ends of the code and its allowed ranges."""
    classes, type_ = code.classes, code.type
    points = [classes.low, classes.high, (classes.low + classes.high) / 2]
    points += [end for r in classes.allowed for end in (r.low, r.high) if end is not None]
    return [None, *dict.fromkeys(_around(points, type_, code.points))]


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


def point_of(value: Any, code: ClassCode) -> Fraction | None:
    """The point of a value.

    Beside decimals a double is the number it is written as, because it equals the decimal that Spark and
    DuckDB turn into it.  The infinities and NaN are beyond every number.
    """
    if not isinstance(value, float):
        return None if value is None else code.points.of(value)
    if math.isnan(value) or math.isinf(value):
        return -FAR if value == -math.inf else FAR
    return Fraction(repr(value)) if code.classes.grid else Fraction(value)


def admits(code: ClassCode, point: Fraction | None) -> bool:
    """A row with the value can match, by the definition of the classes."""
    classes = code.classes
    return classes.null if point is None else classes.classes > classes.null and classes.admits(point)


def evaluated(text: str, values: Sequence[Any], type_: SqlType | pa.DataType) -> list[Any]:
    kind = arrow_type(type_) if isinstance(type_, SqlType) else type_
    table = pa.table({"x": pa.array(values, kind), "number": range(len(values))})
    found = ENGINE.query(f"SELECT {text} AS y FROM input ORDER BY number", {"input": table})
    return list(found["y"].to_pylist())


# --- codes ----------------------------------------------------------------------------------------


def admissible(code: ClassCode) -> list[Any]:
    return [value for value in values_for(code) if admits(code, point_of(value, code))]


def assert_codes_are_classes(code: ClassCode) -> None:
    """Two values have the same code exactly if they are in the same class."""
    values = admissible(code)
    assert values, "nothing to look at"
    codes = evaluated(code.code_sql("x", Dialect.DUCKDB), values, code.type)
    assert all(d is not None and 0 <= d < code.radix for d in codes)
    classes = [code.classes.of(point_of(value, code)) for value in values]
    pairs = set(zip(classes, codes, strict=True))
    assert len(pairs) == len(set(classes)) == len(set(codes))


def assert_values_are_decoded(code: ClassCode) -> None:
    values = admissible(code)
    codes = evaluated(code.code_sql("x", Dialect.DUCKDB), values, code.type)
    assert evaluated(code.value_sql("x"), codes, pa.int64()) == values


def assert_allowed_ranges_are_those_of_the_classes(code: ClassCode) -> None:
    values = [value for value in values_for(code) if value is not None or code.classes.null]
    found = evaluated(allowed_sql("x", code, None, Dialect.DUCKDB), values, code.type)
    points = [point_of(value, code) for value in values]
    assert found == [point is None or code.classes.admits(point) for point in points]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_codes_of_a_column_are_its_classes(case: Case) -> None:
    codes = case.codes()
    assert sum(code.classes.classes for code in codes) == case.classes
    for code in codes:
        assert_codes_are_classes(code)
        assert_allowed_ranges_are_those_of_the_classes(code)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_code_is_decoded_to_its_value(case: Case) -> None:
    for code in case.codes():
        classes = code.classes
        hidden = classes.below or classes.above or classes.grid is not None
        unlisted = code.type.step not in (0, 1) and classes.values > 3
        assert code.is_decodable == (not hidden and not unlisted)
        if code.is_decodable:
            assert_values_are_decoded(code)


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
def test_the_codes_of_listed_values_are_their_classes(
    type_: SqlType, values: tuple[Any, ...], null: bool
) -> None:
    points = Points.with_strings(v for v in values if isinstance(v, str))
    singles = sorted({points.of(v) for v in values})
    allowed = tuple(Range(p, p) for p in singles)
    classes = ColumnClasses(
        Ref("S", "A"), singles[0], singles[-1], len(singles), False, False, null, allowed=allowed
    )
    code = ClassCode(classes, type_, points)
    assert code.radix == len(values) + null and code.is_decodable
    assert_codes_are_classes(code)
    assert_allowed_ranges_are_those_of_the_classes(code)
    assert_values_are_decoded(code)
    assert len(admissible(code)) >= len(values) + null


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_slot_ingests_the_rows_that_can_match_and_gives_each_a_key(case: Case) -> None:
    for slot, code in case.slots():
        values = values_for(code)
        table = pa.table({case.column: pa.array(values, arrow_type(code.type)), "number": range(len(values))})
        ingest = slot.ingest(Dialect.DUCKDB)
        key = dict(ingest.columns)[slot.key[0]]
        sql = f"SELECT number, {key} AS key FROM input WHERE {ingest.row_filter} ORDER BY number"
        taken = ENGINE.query(sql, {"input": table}).to_pydict()
        expected = [i for i, value in enumerate(values) if admits(code, point_of(value, code))]
        assert taken["number"] == expected
        assert None not in taken["key"]


def test_more_classes_than_a_key_holds_are_refused() -> None:
    high = Fraction(1 << 61)
    code = ClassCode(_code(-high, high), BIGINT, Points())
    with pytest.raises(
        TooManyClassesError, match=r"S\.A has .* values to distinguish; bound it more closely"
    ):
        _ = code.radix
    assert ClassCode(_code(-high + 2, high - 2), BIGINT, Points()).radix == MAX_COMBINATIONS - 3


# --- packed keys -----------------------------------------------------------------------------------------


def _code(
    low: Fraction, high: Fraction, below: bool = False, above: bool = False, null: bool = False
) -> ColumnClasses:
    return ColumnClasses(Ref("S", "A"), low, high, int(high - low) + 1, below, above, null)


@st.composite
def _codes(draw: st.DrawFn) -> ClassCode:
    low = draw(st.sampled_from([0, 1, -3, -(1 << 31), (1 << 31) - 5]))
    width = draw(
        st.sampled_from([1, 2, 3, 5]) if low > 0 else st.sampled_from([1, 2, 10, 1000, 1 << 20, 1 << 31])
    )
    high = Fraction(low + width - 1)
    return ClassCode(
        _code(Fraction(low), high, draw(st.booleans()), draw(st.booleans()), draw(st.booleans())),
        INT,
        Points(),
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(_codes(), max_size=5), st.data())
def test_codes_are_unpacked_from_their_keys(codes: list[ClassCode], data: st.DataObject) -> None:
    keys = pack_codes(codes)
    assert [d for key in keys for d in key.codes] == codes
    assert keys and all(key.combinations < MAX_COMBINATIONS for key in keys)
    for key in keys:
        _assert_unpacks(key, data)


def _assert_unpacks(key: PackedKey, data: st.DataObject) -> None:
    """Different codes give different keys, and every code is unpacked from its key."""
    ends = [st.sampled_from(sorted({0, d.radix // 2, d.radix - 1})) for d in key.codes]
    rows = data.draw(st.lists(st.tuples(*ends), min_size=1, max_size=8))
    texts = [f"row.v{i}" for i in range(len(key.codes))]
    kind = pa.struct(
        [(f"v{i}", pa.int32() if d.radix < 1 << 31 else pa.int64()) for i, d in enumerate(key.codes)]
    )
    values = [{f"v{i}": v for i, v in enumerate(row)} for row in rows]
    packed = f"CAST({key.pack_sql(texts).replace('row.', 'x.')} AS {key.type})"
    found = evaluated(packed, values, kind if key.codes else pa.int32()) if key.codes else [0] * len(rows)
    assert all(0 <= w < key.combinations for w in found)
    assert len(set(found)) == len(set(rows))
    for i in range(len(key.codes)):
        width = pa.int32() if key.type == "INT" else pa.int64()
        assert evaluated(key.unpack_sql(i, "x"), found, width) == [row[i] for row in rows]


def test_no_codes_are_packed_into_one_key() -> None:
    [key] = pack_codes([])
    assert (key.combinations, key.type, key.pack_sql([])) == (1, "INT", "0")


def test_there_are_as_few_keys_as_possible() -> None:
    wide = ClassCode(_code(Fraction(0), Fraction((1 << 31) - 2)), INT, Points())
    assert [len(key.codes) for key in pack_codes([wide, wide, wide])] == [2, 1]
    byte = ClassCode(_code(Fraction(0), Fraction(255)), INT, Points())
    assert [len(key.codes) for key in pack_codes([byte] * 10)] == [7, 3]
    assert [key.type for key in pack_codes([byte] * 10)] == ["BIGINT", "INT"]
