"""Functions of a timestamp in SQL: names of results, buckets, comparisons, and what is refused."""

from __future__ import annotations

import pytest

from millpond.analysis.decide import decide
from millpond.errors import SqlError
from millpond.frontend.parse import parse
from millpond.query.buckets import find_bucket
from millpond.query.model import Query

DDL = """
CREATE STREAMING TABLE a (ts TIMESTAMP, k INT, u STRING, sent TIMESTAMP) TBLPROPERTIES ('time' = 'ts');
CREATE STREAMING TABLE b (at TIMESTAMP, k INT);
"""


def read(query: str) -> Query:
    (parsed,) = parse(DDL + query)
    return parsed


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("date_trunc('HOUR', ts)", "date_trunc(HOUR, ts)"),
        ("CAST(a.ts AS DATE)", "ts"),
        ("to_date(ts)", "to_date(ts)"),
        ("extract(hour FROM ts)", "extract(hour FROM ts)"),
        ("unix_timestamp(ts)", "unix_timestamp(ts, yyyy-MM-dd HH:mm:ss)"),
        ("window(ts, '1 hour').start", "window.start"),
    ],
)
def test_results_are_named_as_in_spark(call: str, name: str) -> None:
    assert read(f"SELECT {call} FROM a").columns == (name,)


def test_a_window_is_two_columns_that_are_written_as_one() -> None:
    query = read("SELECT k, window, COUNT(*) FROM a GROUP BY window(ts, '10 minutes'), k")
    assert query.columns == ("k", "window start", "window end", "count(1)")
    assert query.windows == ((1, "window"),)


@pytest.mark.parametrize(
    ("groups", "end"),
    [
        ("ts", "ts"),
        ("year(ts)", "end of year of ts"),
        ("year(ts), month(ts), hour(ts)", "end of month of ts"),
        ("date(ts), hour(ts)", "end of hour of ts"),
        ("year(ts), quarter(ts), dayofyear(ts)", "end of day of ts"),
        ("date_format(ts, 'dd.MM.yyyy HH')", "end of hour of ts"),
        ("date_format(ts, 'yyyy EEE')", "end of year of ts"),
        ("date_trunc('week', ts), hour(ts)", "end of week of ts"),
        ("window(ts, '1 hour'), date(ts)", "window(ts, '1 h').end"),
        ("window(ts, '1 hour', '10 minutes')", "window(ts, '1 h', '10 min').end"),
        ("window(CAST(ts AS TIMESTAMP), '1 hour')", "window(ts, '1 h').end"),
        ("window(ts::timestamp, '1 hour')", "window(ts, '1 h').end"),
        ("window(to_timestamp(ts), '1 hour')", "window(ts, '1 h').end"),
        ("window(ts + INTERVAL 9 HOURS, '1 day')", "end of window(ts + INTERVAL 9 HOURS, '1 d')"),
        ("unix_timestamp(ts)", "end of unix_timestamp(ts)"),
        ("ts + INTERVAL 1 HOUR", "end of microsecond of ts + INTERVAL 1 HOUR"),
        ("date_trunc('hour', ts - INTERVAL '90' MINUTES)", "end of hour of ts - INTERVAL 90 MINUTES"),
        (
            "year(ts + INTERVAL 9 HOURS), month(ts + INTERVAL 9 HOURS)",
            "end of month of ts + INTERVAL 9 HOURS",
        ),
        ("year(ts + INTERVAL 9 HOURS), month(ts)", "end of year of ts + INTERVAL 9 HOURS"),
        ("date_add(ts, 1)", "end of day of ts + INTERVAL 1 DAY"),
        ("date_trunc('hour', ts) + INTERVAL 1 HOUR", "end of date_trunc('hour', ts) + INTERVAL 1 HOUR"),
        (
            "date_format(date_trunc('hour', ts), 'yyyy HH')",
            "end of date_format(date_trunc('hour', ts), 'yyyy HH')",
        ),
        ("last_day(ts)", "end of month of ts"),
        ("floor(unix_seconds(ts) / 300)", "end of floor(unix_seconds(ts) / 300)"),
        ("unix_timestamp(ts) DIV 60", "end of (unix_timestamp(ts) DIV 60)"),
        ("month(ts + INTERVAL 9 HOURS)", None),
        ("hour(date_trunc('hour', ts))", None),
        ("floor(unix_seconds(ts) / k)", None),
        ("from_unixtime(unix_seconds(ts), u)", None),
        ("ts + k * INTERVAL 1 HOUR", None),
        ("ts + INTERVAL 1 MONTH", None),
        ("unix_seconds(ts) % 60", None),
        ("sent + INTERVAL 1 HOUR", None),
        ("hour(ts)", None),
        ("month(ts), day(ts)", None),
        ("date_format(ts, 'yy-MM')", None),
        ("year(sent)", None),
    ],
)
def test_a_bucket_ends_if_its_fields_have_no_gap(groups: str, end: str | None) -> None:
    (select,) = read(f"SELECT COUNT(*) FROM a GROUP BY {groups}").selects
    bucket = find_bucket(select, "a", select.group_by or ())
    assert (bucket.end.column if bucket else None) == end
    if bucket is not None:
        assert select.occurrence("a").table.column(bucket.end.column)


def test_grouping_by_name_position_and_expression_is_the_same() -> None:
    texts = ("1", "h", "date_trunc('hour', ts)", "date_trunc('Hour', a.ts)")
    groups = {read(f"SELECT date_trunc('hour', ts) h FROM a GROUP BY {g}").selects[0].group_by for g in texts}
    assert len(groups) == 1


@pytest.mark.parametrize(
    ("condition", "seconds"),
    [
        ("date_trunc('hour', ts) = date_trunc('hour', at)", 3600),
        ("window(ts, '5 minutes') = window(at, '5 minutes')", 300),
        ("CAST(ts AS DATE) = to_date(at)", 86_400),
        ("date_format(ts, 'yyyyMMdd HH') = date_format(at, 'yyyyMMdd HH')", 3600),
        ("unix_seconds(ts) BETWEEN unix_seconds(at) AND unix_seconds(at) + 59", 60),
        ("year(ts) = year(at)", 366 * 86_400),
    ],
)
def test_equal_buckets_are_a_window(condition: str, seconds: int) -> None:
    verdict = decide(read(f"SELECT u, sent FROM a, b WHERE {condition} AND a.k = b.k"))
    assert verdict.outcome == "bounded"
    assert max(window["seconds"] for window in verdict.state.windows) == pytest.approx(seconds, abs=1e-5)


@pytest.mark.parametrize("format_", ["HH:mm", "EEE", "h a"])
def test_equal_times_of_day_are_no_window(format_: str) -> None:
    """They are equalities of bounded columns: with free columns beside them, memory must grow."""
    equal = f"date_format(ts, '{format_}') = date_format(at, '{format_}')"
    assert decide(read(f"SELECT a.k FROM a, b WHERE {equal} AND a.k = b.k")).outcome == "unbounded"
    assert decide(read(f"SELECT COUNT(*) FROM a, b WHERE {equal}")).outcome == "bounded"


def test_values_that_recur_are_never_called_unbounded() -> None:
    for query in (
        "SELECT DISTINCT date_format(ts, 'HH:mm') FROM a",
        "SELECT DISTINCT date_format(ts, 'EEE') FROM a",
    ):
        assert decide(read(query)).outcome != "unbounded"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT date_trunc('age', ts) FROM a", "has the unit 'age'"),
        ("SELECT date_format(ts, 'GG') FROM a", "has GG in its pattern"),
        ("SELECT window(ts, 'soon') FROM a", "'soon', which is not a duration"),
        ("SELECT window(ts, '1 hour', '2 hours') FROM a", "slides by more than its width"),
        ("SELECT session_window(sent, '1 hour') FROM a", "declare TBLPROPERTIES ('time' = 'sent')"),
        ("SELECT session_window(timestamp_millis(k), '1 hour') FROM a", "over timestamp_millis(k) is not"),
        ("SELECT window(k, '1 hour') FROM a", "window() needs a TIMESTAMP, but k is INT"),
        (
            "SELECT k FROM a GROUP BY k, session_window(ts + INTERVAL 1 DAY, '1 hour')",
            "session_window() over",
        ),
        ("SELECT window.start FROM a", "there is no table or alias window"),
        ("SELECT window.mid FROM a GROUP BY window(ts, '1 hour')", "write window.start or window.end"),
        ("SELECT MAX(window(ts, '1 hour')) FROM a", "MAX of a window is not supported"),
        ("SELECT year(ts) FROM a GROUP BY month(ts)", "is neither in GROUP BY nor inside an aggregate"),
        ("SELECT 1 FROM a, b WHERE window(ts, '1 hour') = window(at, '1 day')", "of different widths"),
        ("SELECT 1 FROM a, a c WHERE window(a.ts, '2 hours', '1 hour').start = c.ts", "with and without"),
    ],
)
def test_what_is_not_supported_is_refused(query: str, message: str) -> None:
    with pytest.raises(SqlError) as raised:
        read(query)
    assert message in str(raised.value)


def test_functions_are_refused_in_checks() -> None:
    with pytest.raises(SqlError, match="not supported in CHECK"):
        parse("CREATE STREAMING TABLE a (ts TIMESTAMP CHECK (hour(ts) > 3)); SELECT 1 FROM a")
