"""The moments at which the rows of a witness come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from millpond.analysis.decide import decide
from millpond.analysis.witness.moments import Moments, add_fields, arrange_moments
from millpond.errors import WitnessSizeError
from millpond.frontend.parse import parse
from millpond.query.expressions import Ref
from millpond.query.model import Select
from millpond.query.number_line import Points

STREAM = "CREATE STREAMING TABLE S (A INT, ts TIMESTAMP);"
AFTER = Points().of(datetime(2020, 5, 6, 7, 8, 9, tzinfo=UTC))
SECOND = Fraction(1_000_000)


def select_of(groups: str) -> Select:
    [query] = parse(f"{STREAM} SELECT COUNT(*) FROM S GROUP BY {groups}")
    return query.selects[0]


def dates(moments: Moments, count: int = 3) -> list[datetime]:
    return [datetime(1970, 1, 1) + timedelta(microseconds=int(moments.at(i))) for i in range(count)]


@pytest.mark.parametrize(
    ("groups", "first", "second"),
    [
        ("A", datetime(2020, 5, 6, 7, 8, 10), datetime(2020, 5, 6, 7, 8, 12)),
        ("window(ts, '1 hour')", datetime(2020, 5, 6, 8), datetime(2020, 5, 6, 9)),
        ("window(ts, '1 hour', '30 minutes', '5 minutes')", datetime(2020, 5, 6, 8, 5), None),
        ("hour(ts)", datetime(2020, 5, 7), datetime(2020, 5, 8)),
        ("date_trunc('week', ts)", datetime(2020, 5, 11), datetime(2020, 5, 18)),
        ("year(ts), month(ts)", datetime(2021, 1, 1), datetime(2023, 1, 1)),
        ("month(ts), dayofweek(ts)", datetime(2021, 1, 4), datetime(2022, 1, 3)),
    ],
)
def test_moments_are_the_starts_of_all_buckets(groups: str, first: datetime, second: datetime | None) -> None:
    found = dates(arrange_moments(select_of(groups), AFTER, SECOND))
    assert found[0] == first
    assert second is None or found[1] == second


def test_a_row_comes_so_long_after_its_moment_that_its_fields_fit() -> None:
    select = select_of("hour(ts), minute(ts)")
    fields = {Ref("S", "hour(ts)"): Fraction(7), Ref("S", "minute(ts)"): Fraction(30)}
    assert add_fields(select, "S", fields) == (7 * 60 + 30) * 60 * SECOND


def test_a_witness_does_not_leave_the_calendar() -> None:
    with pytest.raises(WitnessSizeError, match="future"):
        arrange_moments(select_of("year(ts)"), AFTER, SECOND).at(10_000)


def test_optional_rows_are_in_different_buckets() -> None:
    """Rows in one bucket would prove nothing, as a bucket has boundedly many rows."""
    [query] = parse(
        f"{STREAM} CREATE STREAMING TABLE T (B INT, at TIMESTAMP);"
        "SELECT date_trunc('hour', ts), COUNT(*) FROM S, T WHERE ts < at GROUP BY date_trunc('hour', ts)"
    )
    hours = [entry["row"]["ts"][:13] for entry in decide(query).witness(4)["universe"]]
    assert len(set(hours)) == 4
