"""session_window in GROUP BY: what is read, what is refused, and what is bounded."""

from __future__ import annotations

import pytest

import millpond
from millpond.errors import SqlError
from millpond.frontend.parse import parse
from millpond.query.expressions import Ref

STREAMS = """
CREATE STREAMING TABLE s (k STRING, v INT, b TINYINT, ts TIMESTAMP) TBLPROPERTIES ('rate' = '10 per second');
CREATE STREAMING TABLE t (k STRING, ts TIMESTAMP);
"""


def check(query: str) -> millpond.Verdict:
    verdict = millpond.check(STREAMS + query)
    assert isinstance(verdict, millpond.Verdict)
    return verdict


@pytest.mark.parametrize(
    "query",
    [
        "SELECT session_window.start, k FROM s GROUP BY session_window(ts, '1 minute'), k",
        "SELECT session_window(ts, '60 seconds') AS w, k, COUNT(*) FROM s GROUP BY w, k HAVING COUNT(*) > 1",
        "SELECT k, session_window.end, SUM(v) FROM s GROUP BY 1, session_window(ts, '1 minute')",
    ],
)
def test_a_session_is_not_a_column_of_the_group(query: str) -> None:
    [parsed] = parse(STREAMS + query)
    (select,) = parsed.selects
    assert select.session is not None
    assert (select.session.gap, select.group_by) == (60_000_000, (Ref("s", "k"),))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT session_window(ts, '1 minute') FROM s", "only supported in GROUP BY"),
        ("SELECT k FROM s WHERE session_window(ts, '1 minute').start = ts", "only supported in GROUP BY"),
        ("SELECT MAX(session_window.end) FROM s GROUP BY session_window(ts, '1 minute')", "an aggregate of"),
        ("SELECT COUNT(*) FROM s, t GROUP BY session_window(s.ts, '1 minute')", "over a join"),
        ("SELECT COUNT(*) FROM s GROUP BY session_window(ts, '0 minutes')", "longer than 0"),
        ("SELECT COUNT(*) FROM s GROUP BY session_window(ts, k)", "is not supported"),
        ("SELECT COUNT(*) FROM s GROUP BY session_window(v, '1 minute')", "needs a TIMESTAMP"),
        ("SELECT session_window.length FROM s GROUP BY session_window(ts, '1 minute')", "has no field"),
    ],
)
def test_other_uses_are_refused(query: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        parse(STREAMS + query)


def test_open_sessions_follow_from_the_rate() -> None:
    verdict = check("SELECT k, AVG(v), MAX(v) FROM s GROUP BY k, session_window(ts, '1 minute')")
    assert verdict.outcome == "bounded" and verdict.state.entries == 610
    assert verdict.state.windows == [{"stream": "s", "seconds": 60.0}]


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("SELECT COUNT(DISTINCT b) FROM s GROUP BY session_window(ts, '1 minute')", "bounded"),
        ("SELECT COUNT(DISTINCT v) FROM s WHERE v IN (1, 2) GROUP BY session_window(ts, '1 day')", "bounded"),
        ("SELECT COUNT(DISTINCT v) FROM s GROUP BY session_window(ts, '1 minute')", "unbounded"),
        ("SELECT MEDIAN(v) FROM s GROUP BY session_window(ts, '1 minute')", "unbounded"),
        ("SELECT DISTINCT COUNT(*) FROM s GROUP BY session_window(ts, '1 minute')", "undetermined"),
    ],
)
def test_values_of_a_session_must_be_bounded(query: str, outcome: str) -> None:
    assert check(query).outcome == outcome
