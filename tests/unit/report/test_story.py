"""The witness as a story: its rows, and answers that are those of the query."""

from __future__ import annotations

import millpond
from millpond.analysis.verdict import Verdict
from millpond.report.story import tell_story

SHOP = """
CREATE STREAMING TABLE clicks (user_id INT, price INT, at TIMESTAMP);
CREATE STREAMING TABLE offers (ceiling INT);
"""


def check(query: str, catalog: str = SHOP) -> Verdict:
    verdict = millpond.check(catalog + query)
    assert isinstance(verdict, Verdict)
    return verdict


def test_the_answer_shows_whether_the_row_was_there() -> None:
    story = tell_story(check("SELECT price FROM clicks, offers WHERE price < ceiling"))
    assert story is not None and story.rows == 3 and story.pasts == 8 and story.is_emitted
    (table,) = story.universe
    assert table.stream == "clicks" and "price" in table.varying and len(table.rows) == 3
    prices = [int(row[table.columns.index("price")]) for row in table.rows]
    for probe in story.probes:
        assert probe.with_row is not None and probe.without_row is not None
        (offer,) = probe.tables
        ceiling = int(offer.rows[0][offer.columns.index("ceiling")])
        below = [price for price in prices if price < ceiling]
        asked = prices[probe.number - 1]
        assert probe.with_row.count == len(below) and probe.without_row.count == len(below) - 1
        # What differs comes first.
        assert probe.with_row.rows[0] == f"price = {asked}"
        assert f"price = {asked}" not in probe.without_row.rows


def test_an_answer_that_is_compared_as_a_whole() -> None:
    story = tell_story(check("SELECT MEDIAN(price) FROM clicks"))
    assert story is not None
    for probe in story.probes:
        assert probe.with_row != probe.without_row


def test_a_query_with_blocks_is_evaluated_as_a_whole() -> None:
    query = "SELECT MAX(n) FROM (SELECT user_id, COUNT(*) AS n FROM clicks GROUP BY user_id) AS u"
    story = tell_story(check(query))
    assert story is not None
    assert [probe.with_row.rows for probe in story.probes if probe.with_row] == [("max(n) = 2",)] * 3


def test_what_duckdb_cannot_compute_has_no_answers() -> None:
    query = "SELECT COUNT(DISTINCT price) FROM clicks GROUP BY session_window(at, '10 minutes')"
    story = tell_story(check(query))
    assert story is not None and all(probe.with_row is None for probe in story.probes)


def test_only_unbounded_queries_with_known_rows_have_a_story() -> None:
    assert tell_story(check("SELECT MAX(price) FROM clicks")) is None
    catalog = "CREATE STREAMING TABLE visits (agent STRING);"
    opaque = check("SELECT DISTINCT regexp_extract(agent, '(.)x', 1) FROM visits", catalog)
    assert opaque.assumptions and (tell_story(opaque) is None or opaque.outcome == "unbounded")


def test_wide_tables_show_the_columns_that_differ() -> None:
    columns = ", ".join(f"c{i} INT" for i in range(9))
    story = tell_story(check("SELECT DISTINCT c4 FROM wide", f"CREATE STREAMING TABLE wide ({columns});"))
    assert story is not None
    assert [table.columns for table in story.universe] == [("c4",)]
