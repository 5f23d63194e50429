"""State against rows: the bound of the query, what a witness proves, and the model of Spark's own plan."""

from __future__ import annotations

import pytest

import millpond
from millpond.analysis.verdict import Verdict
from millpond.report.growth import find_growth
from millpond.report.spark_model import model_spark

SHOP = """
CREATE STREAMING TABLE clicks (user_id INT, price INT, country TINYINT, at TIMESTAMP)
  TBLPROPERTIES ('rate' = '10 per second', 'watermark' = '5 seconds');
CREATE STREAMING TABLE orders (user_id INT, amount INT, at TIMESTAMP)
  TBLPROPERTIES ('rate' = '10 per second');
CREATE TABLE users (user_id INT, name STRING);
"""
WINDOW = "o.at BETWEEN c.at AND c.at + INTERVAL 1 MINUTE"
LONG_WINDOW = WINDOW.replace("1 MINUTE", "50 WEEKS")


def check(query: str) -> Verdict:
    verdict = millpond.check(SHOP + query)
    assert isinstance(verdict, Verdict)
    return verdict


def find_lines(query: str) -> dict[str, tuple[tuple[float, float], ...]]:
    growth = find_growth(check(query))
    assert growth is not None
    return {series.name: series.points for series in growth.chart.series}


def test_a_bounded_query_has_its_bound_and_a_join_of_spark_keeps_every_row() -> None:
    query = "SELECT DISTINCT country FROM clicks c, orders o WHERE c.user_id = o.user_id AND c.user_id < 10"
    verdict = check(query + " AND c.user_id > 0")
    growth = find_growth(verdict)
    assert growth is not None and verdict.state.entries is not None
    lines = {series.name: series.points for series in growth.chart.series}
    assert lines["this query"][0][1] < lines["this query"][-1][1] == verdict.state.entries
    assert lines["Spark's own plan (model)"][-1][1] >= 1e6


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT c.price FROM clicks c, orders o WHERE c.price = o.amount AND {WINDOW}",
        f"SELECT c.price FROM clicks c, orders o WHERE c.price = o.amount AND {LONG_WINDOW}",
        "SELECT country, COUNT(*), SUM(price) FROM clicks GROUP BY country",
        "SELECT SUM(price) FROM clicks",
    ],
)
def test_a_query_keeps_no_more_than_it_has_read_until_its_limit_is_reached(query: str) -> None:
    """The limit is a line of its own: it is no state of a short stream."""
    verdict = check(query)
    growth = find_growth(verdict)
    assert growth is not None
    limit = verdict.state.entries
    lines = {series.name: series.points for series in growth.chart.series}
    line = lines["this query"]
    parts = sum(len(kept.keeps) for kept in verdict.state.streams)
    assert all(y <= min(x * parts, limit or 0) for x, y in line)
    assert [y for _, y in line] == sorted(y for _, y in line) and line[-1][1] == limit
    if line[0][1] != limit:
        (dotted,) = (series for series in growth.chart.series if series.dashes == "dotted")
        (start, first), (reached, last) = dotted.points
        assert first == last == limit and start == 1
        assert reached == next(x for x, y in line if y == limit)


def test_an_unbounded_query_has_the_rows_that_its_witnesses_prove() -> None:
    lines = find_lines("SELECT DISTINCT price FROM clicks")
    assert [y for _, y in lines[""]] == [1, 3, 10]
    assert lines["every program, at least"][-1] == (1e6, 1e6)
    assert "this query" not in lines


def test_a_rate_is_assumed_where_none_is_declared() -> None:
    sql = """
    CREATE STREAMING TABLE a (x INT, at TIMESTAMP); CREATE STREAMING TABLE b (x INT, at TIMESTAMP);
    SELECT a.x FROM a, b WHERE a.x = b.x AND b.at BETWEEN a.at AND a.at + INTERVAL 10 SECONDS
    """
    verdict = millpond.check(sql)
    assert isinstance(verdict, Verdict) and verdict.state.entries is None
    growth = find_growth(verdict)
    assert growth is not None
    # 100 rows a second of stream a for 10 seconds, and those of the current moment.
    (line,) = (series for series in growth.chart.series if series.name == "this query")
    assert line.points[-1][1] == pytest.approx(1000, rel=0.2)
    assert any("100 rows per second is assumed" in note for note in growth.notes)


@pytest.mark.parametrize(
    ("query", "entries", "text"),
    [
        ("SELECT price FROM clicks WHERE price > 3", 0, ""),
        ("SELECT price, name FROM clicks c, users u WHERE c.user_id = u.user_id", 0, ""),
        ("SELECT DISTINCT country FROM clicks", 256, "dropDuplicates keeps each different clicks.country"),
        ("SELECT DISTINCT price FROM clicks", 1e6, "dropDuplicates keeps every different clicks.price"),
        ("SELECT country, COUNT(*) FROM clicks GROUP BY country", 256, "a group for each clicks.country"),
        ("SELECT SUM(price) FROM clicks", 1, "the aggregation keeps one group"),
        ("SELECT MEDIAN(price) FROM clicks", 1e6, "every value of each group"),
        ("SELECT MEDIAN(country) FROM clicks", 256, "every value of each group"),
        ("SELECT c.price FROM clicks c, orders o WHERE c.price = o.amount", 1e6, "every row of o and of c"),
        # 10 rows a second: clicks for a minute and the watermark of 5 seconds, orders for the watermark.
        (f"SELECT c.price FROM clicks c, orders o WHERE c.price = o.amount AND {WINDOW}", 700, "too old"),
        (
            f"SELECT 1 FROM clicks c WHERE NOT EXISTS "
            f"(SELECT 1 FROM orders o WHERE c.price = o.amount AND {WINDOW})",
            700,
            "a LEFT JOIN, as Spark has no NOT EXISTS",
        ),
    ],
)
def test_spark_keeps_what_its_operators_keep_by_definition(query: str, entries: float, text: str) -> None:
    model = model_spark(check(query).query)
    assert model is not None and model.refuses is None
    assert model.count(1e6, open_groups=0) == entries
    assert model.grows == (entries == 1e6)
    assert any(text in operator.text for operator in model.operators) or not text
    assert bool(model.operators) == bool(text)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT DISTINCT country FROM clicks, orders WHERE price < amount", "only on an equality"),
        ("SELECT COUNT(DISTINCT country) FROM clicks", "no DISTINCT inside aggregates"),
        ("SELECT LAG(price) OVER (PARTITION BY country ORDER BY at) FROM clicks", "no window functions"),
        ("SELECT c.price FROM clicks c LEFT JOIN orders o ON c.price = o.amount", "with a window of time"),
    ],
)
def test_what_spark_refuses_is_said(query: str, reason: str) -> None:
    verdict = check(query)
    model = model_spark(verdict.query)
    assert model is not None and model.refuses is not None and reason in model.refuses
    growth = find_growth(verdict)
    assert growth is None or any(reason in note for note in growth.notes)


def test_groups_that_close_are_those_of_the_bound() -> None:
    query = "SELECT country, COUNT(*) FROM clicks GROUP BY country, window(at, '1 minute')"
    verdict = check(query)
    lines = find_lines(query)
    assert verdict.state.entries is not None
    assert lines["Spark's own plan (model)"][-1][1] == verdict.state.entries
