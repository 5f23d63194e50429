"""Timestamps in the rows of a block that are known to be near its time."""

from __future__ import annotations

import pytest

from millpond import Verdict, check
from millpond.analysis.blocks import open_table
from millpond.query.time_order import TimeOrder

_SECOND = 1_000_000
_CATALOG = "CREATE STREAMING TABLE clicks (visitor STRING, n INT, at TIMESTAMP);"


def _decide(block: str) -> Verdict:
    joined = "SELECT c.n FROM clicks c JOIN l ON c.visitor = l.visitor AND c.at = l.moment"
    verdict = check(f"{_CATALOG} WITH l AS ({block}) {joined}")
    assert isinstance(verdict, Verdict)
    return verdict


@pytest.mark.parametrize(
    ("value", "group", "seconds"),
    [
        ("MAX(at)", "window(at, '10 seconds')", 10),
        ("MIN_BY(at, n)", "window(at, '10 seconds', '5 seconds')", 10),
        ("MIN(at)", "date_trunc('minute', at)", 60),
        ("MAX(at)", "to_date(at)", 2 * 86_400),  # a day of local time, and one more for a change of the clock
    ],
)
def test_rows_are_compared_as_far_apart_as_the_window_is_long(value: str, group: str, seconds: int) -> None:
    verdict = _decide(f"SELECT visitor, {value} AS moment FROM clicks GROUP BY visitor, {group}")
    assert verdict.outcome == "bounded" and verdict.timed is not None
    ((part, _),) = verdict.timed.selects[0].parts
    order = TimeOrder(part)
    assert len(order.groups) == 1
    assert order.horizon == seconds * _SECOND


@pytest.mark.parametrize("value", ["MAX(at + INTERVAL 1 HOUR)", "MAX(at) + INTERVAL 1 HOUR", "MAX(n)"])
def test_of_other_values_nothing_is_known(value: str) -> None:
    verdict = _decide(
        f"SELECT visitor, {value} AS n, MAX(at) AS moment FROM clicks "
        "GROUP BY visitor, window(at, '10 seconds')"
    )
    facts = open_table(verdict.query.tables["l"]).checks
    assert all("moment" in str(fact) for fact in facts)
