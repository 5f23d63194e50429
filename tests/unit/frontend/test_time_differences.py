"""Comparisons of the distance of two timestamps have the truth values of the distance itself."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import product

import pytest

import millpond
from millpond.frontend.parse import parse
from millpond.query.evaluate import answer
from millpond.runtime.derive import derive_rows

ORDERS = "CREATE STREAMING TABLE orders (id INT, at TIMESTAMP); "
SELECT = ORDERS + ORDERS.replace("orders", "payments") + "SELECT o.id, p.id FROM orders o JOIN payments p ON "
SHIFTS = (0, 400_000, 1_000_000, 60_000_000, 61_000_000, 89_999_999, 90_000_000, 90_000_001)
MOMENTS = [datetime(2024, 1, 1, 23, 58, 30) + timedelta(microseconds=each) for each in SHIFTS]
Distance = Callable[[datetime, datetime], int | timedelta]
DISTANCES: dict[str, Distance] = {
    "unix_timestamp(p.at) - unix_timestamp(o.at)": lambda o, p: count_seconds(p) - count_seconds(o),
    "CAST(p.at AS BIGINT) - (CAST(o.at AS BIGINT))": lambda o, p: count_seconds(p) - count_seconds(o),
    "abs(unix_seconds(p.at) - unix_seconds(o.at))": lambda o, p: abs(count_seconds(p) - count_seconds(o)),
    "unix_millis(o.at) - unix_millis(p.at)": lambda o, p: count_millis(o) - count_millis(p),
    "datediff(p.at, o.at)": lambda o, p: (p.date() - o.date()).days,
    "p.at - o.at": lambda o, p: p - o,
}
OPERATORS = {"<": operator.lt, "<=": operator.le, "=": operator.eq, ">=": operator.ge, ">": operator.gt}


def count_seconds(moment: datetime) -> int:
    return count_millis(moment) // 1000


def count_millis(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1)) // timedelta(milliseconds=1)


def find_pairs(condition: str) -> set[tuple[object, ...]]:
    [query] = parse(SELECT + condition)
    rows = [{"id": number, "at": moment} for number, moment in enumerate(MOMENTS)]
    return set(answer(query, derive_rows(query, {"orders": rows, "payments": rows})))


@pytest.mark.parametrize("distance", DISTANCES)
def test_distances_are_compared_exactly(distance: str) -> None:
    compute = DISTANCES[distance]
    pairs = list(product(enumerate(MOMENTS), repeat=2))
    signs = ("<", "<=") if distance.startswith("abs") else OPERATORS
    for sign, number in product(signs, (-60, 0, 1)):
        limit: int | timedelta = timedelta(seconds=number) if distance == "p.at - o.at" else number
        shown = f"INTERVAL '{number}' SECONDS" if isinstance(limit, timedelta) else str(number)
        expected = {(a, b) for (a, o), (b, p) in pairs if OPERATORS[sign](compute(o, p), limit)}
        assert find_pairs(f"{distance} {sign} {shown}") == expected, f"{distance} {sign} {shown}"
        mirrored = {"<": ">", "<=": ">=", "=": "=", ">=": "<=", ">": "<"}[sign]
        assert find_pairs(f"{shown} {mirrored} {distance}") == expected, f"{distance} {sign} {shown}"


def test_timestamps_are_shifted_by_units_of_fixed_length() -> None:
    shifted = find_pairs("p.at <= timestampadd(SECOND, 60, o.at) AND p.at >= dateadd(MINUTE, -1, o.at)")
    assert shifted == find_pairs("p.at - o.at BETWEEN INTERVAL '-1' MINUTE AND INTERVAL 60 SECONDS")
    assert shifted == {
        (a, b)
        for (a, o), (b, p) in product(enumerate(MOMENTS), repeat=2)
        if abs(p - o) <= timedelta(seconds=60)
    }


@pytest.mark.parametrize(("unit", "length"), [("SECOND", 1), ("MINUTE", 60), ("HOUR", 3600), ("DAY", 86_400)])
def test_complete_units_are_compared_exactly(unit: str, length: int) -> None:
    later = [MOMENTS[0] + timedelta(seconds=s) for s in (3599, 3600, 7200, 86_399, 86_400, 180_000)]
    moments = list(enumerate([*MOMENTS, *later]))
    rows = [{"id": number, "at": moment} for number, moment in moments]
    for (sign, compare), number in product(OPERATORS.items(), (-2, -1, 0, 1, 2)):
        [query] = parse(f"{SELECT}timestampdiff({unit}, o.at, p.at) {sign} {number}")
        found = set(answer(query, derive_rows(query, {"orders": rows, "payments": rows})))
        between = {(a, b): p - o for (a, o), (b, p) in product(moments, moments)}
        count = {pair: int(each / timedelta(seconds=length)) for pair, each in between.items()}
        assert found == {pair for pair, each in count.items() if compare(each, number)}, f"{sign} {number}"


@pytest.mark.parametrize(
    ("condition", "outcome"),
    [
        ("abs(unix_timestamp(p.at) - unix_timestamp(o.at)) <= 60", "bounded"),
        ("p.at - o.at BETWEEN INTERVAL 0 SECONDS AND INTERVAL 1 MINUTE", "bounded"),
        ("datediff(p.at, o.at) = 0", "bounded"),
        ("p.at BETWEEN o.at AND timestampadd(HOUR, 1, o.at)", "bounded"),
        ("p.at BETWEEN timestampadd(DAY, -1, o.at) AND timestampadd(MONTH, 1, o.at)", "bounded"),
        ("timestampdiff(MINUTE, o.at, p.at) BETWEEN -5 AND 5", "bounded"),
        ("p.at >= o.at AND months_between(p.at, o.at) < 1", "bounded"),
        ("unix_timestamp(p.at) - unix_timestamp(o.at) <= 60", "unbounded"),
    ],
)
def test_a_limited_distance_is_a_window(condition: str, outcome: str) -> None:
    verdict = millpond.check(f"{SELECT}{condition} AND o.id = p.id")
    assert isinstance(verdict, millpond.Verdict)
    assert (verdict.outcome, verdict.assumptions) == (outcome, ())


def test_an_unbounded_verdict_says_what_it_assumes_of_other_functions_of_time() -> None:
    verdict = millpond.check(
        f"{SELECT}o.id = p.id AND p.at BETWEEN o.at AND timestampadd(DAY, abs(-1), o.at)"
    )
    assert isinstance(verdict, millpond.Verdict) and verdict.outcome == "unbounded"
    assert verdict.assumptions == (
        "DATE_ADD(DAY, ABS(-1), at) does not limit how far apart matching rows are in time",
    )
