"""The search for a proof ends, however many candidates there are."""

from __future__ import annotations

import pytest

from millpond import Verdict, check
from millpond.analysis.witness import effort
from millpond.frontend.parse import parse
from millpond.runtime.row_queries import UncomputableError

TEXT = "CREATE STREAMING TABLE bids (auction INT, price INT); SELECT MAX(price) FROM bids"


def test_statements_and_rows_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "_MOST_ROWS", 5)
    (query,) = parse(TEXT)
    world = {"bids": [{"auction": 1, "price": 2}, {"auction": 1, "price": 3}]}
    with effort.limit_effort():
        assert effort.evaluate_limited(query, [world, world])
        with effort.limit_effort(), pytest.raises(UncomputableError):
            effort.evaluate_limited(query, [world])
    assert effort.evaluate_limited(query, [world] * 9)


def test_a_query_without_proof_within_the_limit_is_undetermined(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = "CREATE STREAMING TABLE bids (auction INT, price INT, at TIMESTAMP);"
    ranks = (
        "SELECT auction, price FROM bids QUALIFY ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price) <="
    )
    outcomes = []
    for limit, most in ((3, 500_000), (2, 10)):
        monkeypatch.setattr(effort, "_MOST_ROWS", most)
        verdict = check(f"{streams} {ranks} {limit}")
        assert isinstance(verdict, Verdict)
        outcomes.append(verdict.outcome)
    assert outcomes == ["unbounded", "undetermined"]
