"""Lengths of time as they are written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.query.durations import parse_duration

SECOND = 1_000_000
UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3_600 * SECOND,
    "day": 86_400 * SECOND,
    "week": 7 * 86_400 * SECOND,
}


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("10 seconds", 10 * SECOND),
        ("1 second", SECOND),
        ("0 seconds", 0),
        ("5seconds", 5 * SECOND),
        ("  2   minutes ", 120 * SECOND),
        ("INTERVAL 3 Hours", 3 * 3_600 * SECOND),
        ("interval 1 minute 30 seconds", 90 * SECOND),
        ("1 day 1 hour 1 minute 1 second 1 millisecond 1 microsecond", 90_061_001_001),
        ("1 second 1 second", 2 * SECOND),
        ("2 weeks", 14 * 86_400 * SECOND),
        ("007 milliseconds", 7_000),
    ],
)
def test_a_duration_is_parsed_to_microseconds(text: str, length: int) -> None:
    assert parse_duration(text) == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "soon",
        "10",
        "seconds",
        "10 parsecs",
        "-1 second",
        "1.5 seconds",
        "1 second, 2 minutes",
        "1 second and 2 minutes",
        "1 month",
        "1 year",
        "interval",
        "10 secondss",
        "10 seconds ago",
        "x10 seconds",
        "1 minute30 seconds",
        "\u0661 second",
    ],
)
def test_other_texts_are_not_durations(text: str) -> None:
    assert parse_duration(text) is None


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)), st.booleans(), st.booleans()),
        min_size=1,
        max_size=4,
    )
)
def test_a_duration_is_the_sum_of_its_parts(pieces: list[tuple[int, str, bool, bool]]) -> None:
    words = [
        f"{n} {(unit.upper() if loud else unit)}{'s' if several else ''}" for n, unit, loud, several in pieces
    ]
    assert parse_duration(" ".join(words)) == sum(n * UNITS[unit] for n, unit, _, _ in pieces)
