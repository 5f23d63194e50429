"""The queries of the auction benchmark get the verdicts that their headers state."""

from __future__ import annotations

import pytest

import millpond
from benchmarks.auction.compare import AuctionQuery, read_queries
from millpond.analysis.verdict import Verdict


@pytest.mark.parametrize("query", list(read_queries()), ids=lambda query: f"q{query.number:02}")
def test_verdict_is_as_expected(query: AuctionQuery) -> None:
    verdict = millpond.check(query.sql)
    assert isinstance(verdict, Verdict)
    assert verdict.outcome == query.expected


def test_every_bounded_query_has_an_answer_to_compare_with() -> None:
    assert all((query.duckdb is None) == (query.expected == "unbounded") for query in read_queries())
