"""How many results that close are kept, and which results close at all."""

from __future__ import annotations

import pytest

from millpond.analysis.decide import decide
from millpond.frontend.parse import parse

STREAMS = (
    "CREATE STREAMING TABLE S (A INT, N STRING, H TINYINT NOT NULL CHECK (H BETWEEN 0 AND 9), I TIMESTAMP) "
    "TBLPROPERTIES ('rate' = '10 per second'); CREATE STREAMING TABLE T (B INT, M STRING, J TIMESTAMP);"
)
NEAR = "J BETWEEN I AND I + INTERVAL 1 MINUTE"
CASES = [
    # at the declared rate: every row may be a group, or one in each window that it lies in
    (
        "SELECT window.start, N, COUNT(*) FROM S GROUP BY window(I, '1 minute'), N",
        620,
        "groups of the last 1 min",
    ),
    ("SELECT window.start, N, COUNT(*) FROM S GROUP BY window(I, '1 minute', '20 seconds'), N", 1860, ""),
    ("SELECT DISTINCT N, I FROM S", 20, "rows already written with the current timestamp"),
    (
        f"SELECT DISTINCT N, date_trunc('hour', I) FROM S, T WHERE {NEAR}",
        36_620,
        "rows already written of the last 1 h 1 min",
    ),
    # without a rate: the buckets that are open, times the values of other columns
    ("SELECT window.start, COUNT(*) FROM T GROUP BY window(J, '1 minute')", 3, "groups of the last 1 min"),
    ("SELECT window.start, H, COUNT(*) FROM S GROUP BY window(I, '1 minute', '20 seconds'), H", 50, ""),
    ("SELECT DISTINCT M, J FROM T", None, "rows already written with the current timestamp"),
    (f"SELECT DISTINCT N, M, I FROM S, T WHERE {NEAR}", None, "rows already written of the last 1 min"),
]


@pytest.mark.parametrize(("query", "entries", "keeps"), CASES, ids=[query for query, _, _ in CASES])
def test_the_results_that_have_not_closed_are_bounded(query: str, entries: int | None, keeps: str) -> None:
    verdict = decide(parse(f"{STREAMS} {query}")[0])
    assert verdict.outcome == "bounded"
    (answer,) = [kept for kept in verdict.state.streams if kept.stream is None]
    assert answer.entries == entries and answer.closes
    assert keeps in answer.keeps[0]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT window(I, '1 minute').start, A FROM S UNION SELECT window(J, '1 hour').start, B FROM T",
        "SELECT A, I FROM S UNION SELECT B, TIMESTAMP '2024-01-01 00:00:00' FROM T",
        "SELECT DISTINCT COUNT(*) FROM S GROUP BY I",
    ],
)
def test_rows_that_do_not_close_together_are_not_called_bounded(query: str) -> None:
    assert decide(parse(f"{STREAMS} {query}")[0]).outcome != "bounded"
