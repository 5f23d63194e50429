"""The reasons of a verdict are true: a column that they call unbounded is, and bounding it removes them."""

from __future__ import annotations

import pytest

from millpond.analysis.decide import check
from millpond.analysis.verdict import Verdict

CATALOG = """
CREATE STREAMING TABLE P (id BIGINT, name STRING, state STRING);
CREATE STREAMING TABLE A (id BIGINT, seller BIGINT, category INT, state STRING CHECK (state IN ('OR', 'ID')));
CREATE STREAMING TABLE L (ts TIMESTAMP, level INT);
"""


def verdict_of(query: str) -> Verdict:
    verdict = check(CATALOG + query)
    assert isinstance(verdict, Verdict)
    return verdict


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        (
            "SELECT P.name, P.state, A.id FROM A, P WHERE A.seller = P.id AND P.state IN ('OR', 'ID', 'CA')",
            {"P.name", "A.id", "A.seller", "P.id"},
        ),
        ("SELECT DISTINCT name, state FROM P WHERE state = 'OR' OR state = 'ID'", {"P.name"}),
        ("SELECT DISTINCT P.name, P.state FROM P, A WHERE P.state = A.state", {"P.name"}),
        ("SELECT A.state, A.id, COUNT(*) FROM A GROUP BY A.state, A.id", {"A.id"}),
        ("SELECT DISTINCT state, id FROM A WHERE category = 1 OR category = 2", {"A.id"}),
    ],
)
def test_columns_with_listed_values_are_no_reason(query: str, columns: set[str]) -> None:
    """Whether a condition, a CHECK or an equality lists the values."""
    verdict = verdict_of(query)
    assert verdict.outcome == "unbounded"
    assert {column for reason in verdict.reasons for column in reason.columns} == columns


def test_a_count_and_the_last_timestamp_are_bounded() -> None:
    verdict = verdict_of("SELECT COUNT(*), MAX(ts) FROM L")
    assert verdict.outcome == "bounded" and verdict.state.entries == 2


@pytest.mark.parametrize(
    ("query", "entries"),
    [
        # Ten counts of A for each state of P, ten of P for all of them, and three groups.
        (
            "SELECT P.state, COUNT(*) FROM P, A WHERE P.id = A.id AND A.id BETWEEN 1 AND 10 "
            "AND P.state IN ('OR', 'ID', 'CA') GROUP BY P.state",
            3 * 10 + 10 + 3,
        ),
        (
            "SELECT DISTINCT P.state FROM P, A WHERE P.id = A.id AND A.id BETWEEN 1 AND 10 "
            "AND P.state IN ('OR', 'ID', 'CA')",
            3 * 10 + 10 + 3,
        ),
        ("SELECT COUNT(*) FROM A, P WHERE (A.category = 1 OR A.category = 2) AND P.state = 'OR'", 1 + 1 + 1),
    ],
)
def test_disjuncts_share_what_they_keep_of_a_stream(query: str, entries: int) -> None:
    assert verdict_of(query).state.entries == entries
