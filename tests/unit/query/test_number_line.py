"""Values as points on a line: the order of values is the order of points, and the way back."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.query.expressions import Scalar
from millpond.query.number_line import Points
from millpond.query.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    TINYINT,
    SqlType,
    decimal,
)

SETTINGS = settings(derandomize=True, max_examples=200, deadline=None)
# Short strings over few characters are often prefixes of each other; others stretch over all of Unicode.
TEXTS = st.one_of(
    st.text(alphabet="\x00 !ab\x7f\xe9\uffff\U0001f600", max_size=4),
    st.text(max_size=6),
    st.text(alphabet=st.characters(categories=["Cs", "Ll"]), max_size=3),
)


def sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


# --- strings ------------------------------------------------------------------------------------------


@SETTINGS
@given(st.lists(TEXTS, max_size=5), TEXTS, TEXTS)
def test_the_order_of_strings_is_that_of_their_points(constants: list[str], a: str, b: str) -> None:
    points = Points.with_strings(constants)
    assert sign(points.of(a), points.of(b)) == sign(a, b)
    for text in constants:
        assert sign(points.of(text), points.of(a)) == sign(text, a)


def test_a_prefix_lies_below_whatever_follows_it() -> None:
    points = Points(("b",))
    texts = ["", "\x00", "\x00\x00", "a", "a\x00", "a\x00a", "aa", "b", "b\x00", "\U0010ffff"]
    assert [points.of(t) for t in texts] == sorted({points.of(t) for t in texts})


@SETTINGS
@given(st.lists(TEXTS, max_size=6), TEXTS)
def test_constants_are_whole_numbers_and_nothing_else_is(constants: list[str], other: str) -> None:
    points = Points.with_strings(reversed(constants))
    unique = sorted(set(constants))
    assert points.strings == tuple(unique)
    assert [points.of(text) for text in unique] == list(range(1, len(unique) + 1))
    assert (points.of(other).denominator == 1) == (other in unique)
    assert 0 < points.of(other) < len(unique) + 1


@SETTINGS
@given(
    st.lists(TEXTS, max_size=4),
    st.lists(st.fractions(min_value=-3, max_value=8, max_denominator=9), min_size=1, max_size=12),
)
def test_strings_at_points_keep_their_order(constants: list[str], wanted: list[Fraction]) -> None:
    points = Points.with_strings(constants)
    try:
        found = points.strings_at(wanted)
    except ValueError:
        # Only a gap between two constants, or below the first, can be too narrow.
        gaps = [p for p in wanted if p < len(points.strings) and p not in range(1, len(points.strings) + 1)]
        assert gaps
        return
    assert set(found) == set(wanted)
    ordered = sorted(found)
    assert [found[p] for p in ordered] == sorted(set(found.values()))
    assert len(set(found.values())) == len(found)
    for point, text in found.items():
        for place, constant in enumerate(points.strings, start=1):
            assert sign(text, constant) == sign(point, place)


def test_strings_between_constants() -> None:
    points = Points(("a", "b"))
    third = Fraction(1, 3)
    found = points.strings_at([1 + 2 * third, Fraction(1), 1 + third, Fraction(9), Fraction(-4), Fraction(0)])
    assert list(found) == [-4, 0, 1, 1 + third, 1 + 2 * third, 9]
    assert list(found.values()) == sorted(found.values())
    assert found[Fraction(1)] == "a"
    assert found[Fraction(0)] < "a" < found[1 + third] < found[1 + 2 * third] < "b" < found[Fraction(9)]


@pytest.mark.parametrize(
    ("constants", "point"), [(("a", "a\x00"), Fraction(3, 2)), (("",), Fraction(1, 2)), (("",), Fraction(0))]
)
def test_no_string_fits_between_neighbours(constants: tuple[str, ...], point: Fraction) -> None:
    with pytest.raises(ValueError, match="no room"):
        Points(constants).strings_at([point])
    with pytest.raises(ValueError, match="no room"):
        Points(constants).value(point, STRING)


def test_many_strings_in_one_gap() -> None:
    points = Points(("k", "l"))
    wanted = [1 + Fraction(i, 2000) for i in range(1, 2000)]
    texts = list(points.strings_at(wanted).values())
    assert texts == sorted(set(texts))
    assert texts[0] > "k" and texts[-1] < "l"


@SETTINGS
@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_constants_come_back(constants: list[str]) -> None:
    points = Points.with_strings(constants)
    assert [points.value(points.of(text), STRING) for text in constants] == constants


# --- everything else ----------------------------------------------------------------------------------

CENTS = st.decimals(
    min_value=Decimal("-99999999.99"), max_value=Decimal("99999999.99"), places=2, allow_nan=False
)
FAMILIES: list[tuple[SqlType, st.SearchStrategy[Scalar]]] = [
    (DATE, st.dates()),
    (BOOLEAN, st.booleans()),
    (decimal(10, 2), CENTS),
    (INT, st.integers(-(2**31), 2**31 - 1)),
    (BIGINT, st.integers(-(2**63), 2**63 - 1)),
    (TINYINT, st.integers(-128, 127)),
    (DOUBLE, st.floats(allow_nan=False, allow_infinity=False)),
]


@pytest.mark.parametrize(("type_", "values"), FAMILIES, ids=[str(t) for t, _ in FAMILIES])
def test_values_come_back_and_keep_their_order(type_: SqlType, values: st.SearchStrategy[Scalar]) -> None:
    points = Points(("a",))

    @settings(derandomize=True, max_examples=80, deadline=None)
    @given(values, values)
    def check(a: Scalar, b: Scalar) -> None:
        back = points.value(points.of(a), type_)
        assert back == a
        assert type(back) is type(a)
        assert sign(points.of(a), points.of(b)) == sign(a, b)
        if type_.step:
            assert (points.of(a) / type_.step).denominator == 1
        if type_.low is not None and type_.high is not None:
            assert type_.low <= points.of(a) <= type_.high

    check()


def test_the_first_and_the_last_date() -> None:
    assert (DATE.low, DATE.high) == (Points().of(date.min), Points().of(date.max))
    assert Points().of(date(1970, 1, 1)) == 0
    assert Points().value(Fraction(-1), DATE) == date(1969, 12, 31)


def test_dates_are_not_timestamps() -> None:
    assert Points().of(datetime(1970, 1, 2)) == 86_400 * 10**6
    assert Points().of(date(1970, 1, 2)) == 1


@SETTINGS
@given(st.datetimes(), st.datetimes())
def test_timestamps_count_microseconds(a: datetime, b: datetime) -> None:
    points = Points()
    assert points.value(points.of(a), TIMESTAMP) == a
    assert points.of(b) - points.of(a) == (b - a) // timedelta(microseconds=1)
    assert points.of(a.replace(tzinfo=UTC)) == points.of(a)


def test_equal_numbers_of_different_types_have_one_point() -> None:
    points = Points()
    assert points.of(Decimal("0.50")) == points.of(0.5) == Fraction(1, 2)
    assert points.of(0.1) != points.of(Decimal("0.1")) == Fraction(1, 10)
    assert points.of(2**62 + 1) - points.of(2**62) == 1


def test_null_is_not_a_point() -> None:
    with pytest.raises(ValueError, match="NULL"):
        Points().of(None)
