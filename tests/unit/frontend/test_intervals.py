"""Lengths of time: what they are, what they are added to, and what follows for joins and groups."""

from __future__ import annotations

import pytest
from sqlglot import parse_one

from millpond.analysis.decide import decide
from millpond.errors import SqlError
from millpond.frontend.intervals import Length, read_interval, read_shift
from millpond.frontend.parse import parse
from millpond.query.calendar import DAY, HOUR, MINUTE, SECOND
from millpond.query.expressions import Ref
from millpond.query.types import INTERVAL_VALUE

DDL = """
CREATE STREAMING TABLE clicks (ts TIMESTAMP, user_id BIGINT, day DATE, seen TIMESTAMP, n INT)
    TBLPROPERTIES ('time' = 'ts');
CREATE STREAMING TABLE orders (at TIMESTAMP, user_id BIGINT);
"""
JOIN = "SELECT c.user_id FROM clicks c JOIN orders o ON c.user_id = o.user_id AND o.at > c.ts AND "


def find_outcome(query: str) -> str:
    (parsed,) = parse(DDL + query)
    return decide(parsed).outcome


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("INTERVAL 1 HOUR", Length(micros=HOUR)),
        ("INTERVAL '-5' MINUTES", Length(micros=-5 * MINUTE)),
        ("INTERVAL -5 MINUTES", Length(micros=-5 * MINUTE)),
        ("-INTERVAL 5 MINUTES", Length(micros=-5 * MINUTE)),
        ("INTERVAL '1 hour 30 minutes'", Length(micros=90 * MINUTE)),
        ("INTERVAL 1 HOUR 30 MINUTES", Length(micros=90 * MINUTE)),
        ("INTERVAL '1:30' HOUR TO MINUTE", Length(micros=90 * MINUTE)),
        ("INTERVAL '-1 02:00:00.5' DAY TO SECOND", Length(0, -1, -2 * HOUR - SECOND // 2)),
        ("INTERVAL '1-6' YEAR TO MONTH", Length(months=18, keeps_dates=True)),
        ("INTERVAL '1' WEEK", Length(days=7, keeps_dates=True)),
        ("INTERVAL '1.5' SECOND", Length(micros=3 * SECOND // 2)),
        ("INTERVAL '1' HOUR * 2", Length(micros=2 * HOUR)),
        ("2 * (INTERVAL '1' HOUR - INTERVAL '1' MINUTE)", Length(micros=118 * MINUTE)),
        ("INTERVAL '1' HOUR / 3", Length(micros=20 * MINUTE)),
        (
            "make_interval(1, 2, 1, 3, 4, 5, 6.5)",
            Length(14, 10, 4 * HOUR + 5 * MINUTE + 13 * SECOND // 2, True),
        ),
        ("make_dt_interval(1, 2)", Length(0, 1, 2 * HOUR)),
        ("make_ym_interval(1, 2)", Length(months=14, keeps_dates=True)),
        ("INTERVAL '1' SECOND / 3", None),
        ("INTERVAL 1.5 HOUR", None),
        ("INTERVAL 'soon'", None),
        ("make_interval(n)", None),
        ("n * INTERVAL 1 HOUR", None),
        ("1", None),
    ],
)
def test_lengths_are_those_of_spark(text: str, length: Length | None) -> None:
    assert read_interval(parse_one(text, read="spark")) == length


@pytest.mark.parametrize(
    "text",
    [
        "ts + INTERVAL 1 HOUR + INTERVAL 30 MINUTES",
        "INTERVAL 90 MINUTES + ts",
        "(ts - INTERVAL 30 MINUTES) + make_interval(0, 0, 0, 0, 2)",
        "timestampadd(MINUTE, 90, ts)",
        "dateadd(HOUR, 2, ts) - INTERVAL '30' MINUTE",
    ],
)
def test_shifts_are_added_up(text: str) -> None:
    found = read_shift(parse_one(text, read="spark"))
    assert found is not None and found[0].name == "ts" and found[1].fixed == 90 * MINUTE


def test_days_have_a_fixed_length_only_without_changes_of_the_clock() -> None:
    assert all(Length(days=1).is_exact(slack) == (slack == 0) for slack in (0, HOUR))
    assert not Length(micros=DAY).is_exact(HOUR) and Length(micros=DAY - 1).is_exact(HOUR)
    assert not Length(months=1).is_exact(0)


@pytest.mark.parametrize(
    "bound",
    [
        "o.at < c.ts + make_interval(0, 0, 0, 0, 1)",
        "o.at < c.ts + INTERVAL '1' HOUR * 2",
        "o.at < c.ts + (INTERVAL 1 HOUR + INTERVAL 30 MINUTES)",
        "o.at < INTERVAL 1 HOUR + c.ts",
        "o.at - INTERVAL 1 HOUR < c.ts + INTERVAL 1 HOUR",
        "o.at - c.ts < 2 * INTERVAL 1 HOUR",
        "o.at < c.ts + INTERVAL 1 MONTH",
        "o.at = c.ts + INTERVAL 1 MONTH",
        "o.at BETWEEN c.ts AND c.ts + INTERVAL '1' YEAR",
        "c.ts >= o.at - make_ym_interval(0, 1)",
        "floor(unix_timestamp(c.ts) / 300) = floor(unix_timestamp(o.at) / 300)",
        "date_trunc('hour', c.ts + INTERVAL 5 MINUTES) = date_trunc('hour', o.at)",
    ],
)
def test_lengths_of_time_bound_joins(bound: str) -> None:
    assert find_outcome(JOIN + bound) == "bounded"


@pytest.mark.parametrize("bound", ["o.at > c.ts + INTERVAL 1 MONTH", "o.at > c.ts - make_interval(0, 1)"])
def test_lower_bounds_leave_joins_unbounded(bound: str) -> None:
    assert find_outcome(JOIN + bound) != "bounded"


def test_a_month_bounds_a_join_by_31_days() -> None:
    (parsed,) = parse(DDL + JOIN + "o.at < c.ts + INTERVAL 1 MONTH")
    state = decide(parsed).state
    assert state is not None and max(w["seconds"] for w in state.windows) == pytest.approx(31 * 86_400, abs=1)


@pytest.mark.parametrize(
    ("item", "type_"),
    [
        ("ts + INTERVAL 1 HOUR", "TIMESTAMP"),
        ("ts + INTERVAL 1 MONTH", "TIMESTAMP"),
        ("seen - make_dt_interval(1)", "TIMESTAMP"),
        ("day + 1", "DATE"),
        ("day - INTERVAL 1 WEEK", "DATE"),
        ("day + INTERVAL 1 HOUR", "TIMESTAMP"),
        ("dateadd(DAY, 1, day)", "TIMESTAMP"),
        ("date_trunc('hour', ts + n * INTERVAL 1 HOUR)", "TIMESTAMP"),
    ],
)
def test_results_have_the_types_of_spark(item: str, type_: str) -> None:
    ((select,),) = (parsed.selects for parsed in parse(f"{DDL} SELECT {item} FROM clicks"))
    shown = select.items[0].expression
    assert isinstance(shown, Ref) and select.type_of(shown).name == type_


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("SELECT ts + INTERVAL 1 HOUR, COUNT(*) FROM clicks GROUP BY 1", "bounded"),
        ("SELECT DISTINCT ts - INTERVAL 1 DAY, user_id FROM clicks", "bounded"),
        (
            "SELECT date_trunc('hour', ts) + INTERVAL 1 DAY FROM clicks GROUP BY n, date_trunc('hour', ts)",
            "bounded",
        ),
        (
            "SELECT floor(unix_timestamp(ts) / 300) AS b, user_id, COUNT(*) FROM clicks GROUP BY 1, 2",
            "bounded",
        ),
        ("SELECT seen + INTERVAL 1 HOUR, COUNT(*) FROM clicks GROUP BY 1", "unbounded"),
        ("SELECT date_add(day, 1), COUNT(*) FROM clicks GROUP BY 1", "unbounded"),
        ("SELECT ts + INTERVAL 1 MONTH, COUNT(*) FROM clicks GROUP BY 1", "undetermined"),
        ("SELECT unix_timestamp(ts) / 60, COUNT(*) FROM clicks GROUP BY 1", "undetermined"),
        (
            "SELECT hour(t), date(t) FROM (SELECT date_trunc('minute', ts) t FROM clicks) GROUP BY 1, 2",
            "bounded",
        ),
    ],
)
def test_groups_of_shifted_times_close(query: str, outcome: str) -> None:
    assert find_outcome(query) == outcome


def test_constant_lengths_are_no_results() -> None:
    with pytest.raises(SqlError):
        parse(DDL + "SELECT INTERVAL 1 HOUR FROM clicks")


@pytest.mark.parametrize("text", ["ts - seen", "day - day", "ts - TIMESTAMP '2024-01-01'"])
def test_the_time_between_two_moments_is_a_value(text: str) -> None:
    (query,) = parse(f"{DDL} SELECT {text} AS d, MAX({text}) FROM clicks GROUP BY {text}")
    item = query.selects[0].items[0].expression
    assert isinstance(item, Ref) and query.selects[0].type_of(item) is INTERVAL_VALUE


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ts + INTERVAL 99999999999 DAYS FROM clicks",
        "SELECT date_add(ts, 999999999) FROM clicks",
        JOIN + "o.at < c.ts + INTERVAL 99999999999 DAYS",
        JOIN + "o.at BETWEEN c.ts AND c.ts + INTERVAL '9999999999' YEAR",
        "SELECT COUNT(*) FROM clicks GROUP BY unix_timestamp(ts) DIV 99999999999",
        "SELECT percentile_approx(n, 0.5, 0) FROM clicks",
    ],
)
def test_numbers_beyond_all_timestamps_are_read(query: str) -> None:
    assert find_outcome(query)


@pytest.mark.parametrize(
    "unit", ["microseconds", "second", "Minutes", "HOURS", "day", "weeks", "month", "years"]
)
def test_a_number_and_its_unit_may_be_one_string(unit: str) -> None:
    (one,) = parse(f"{DDL} SELECT at + INTERVAL '3 {unit}' x FROM orders")
    (two,) = parse(f"{DDL} SELECT at + INTERVAL '3' {unit} x FROM orders")
    assert one.columns == ("x",)
    assert one.selects[0].items == two.selects[0].items


def test_an_error_after_an_interval_in_a_string_has_its_place() -> None:
    query = "SELECT at FROM orders WHERE at > TIMESTAMP '2024-01-01' + INTERVAL '3 days' AND nothing = 1"
    with pytest.raises(SqlError) as refused:
        parse(DDL + query)
    assert refused.value.position is not None
    assert refused.value.position.column == query.index("nothing") + 1
