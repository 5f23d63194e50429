"""Aggregates over two tables: the engines answer from sums and extremes of each as DuckDB does from all rows.

``python -m tests.campaigns.aggregates --joint`` checks any number of other seeds.
"""

from __future__ import annotations

import pytest

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED
from millpond.frontend.parse import parse
from millpond.plan.computed_aggregates import explain_uncomputed
from tests.campaigns.aggregates import examine_joint

# Streams, a relation, a window; sums, averages, counts, CASE, FILTER, extremes.
SEEDS = (5009, 5012, 5016, 5017, 5023)
STREAMS = "CREATE STREAMING TABLE A (K TINYINT, M {m}); CREATE STREAMING TABLE B (K TINYINT, N {n});"


@pytest.mark.parametrize("seed", SEEDS)
def test_engines_agree_with_duckdb(seed: int) -> None:
    outcome, problem = examine_joint(seed)
    assert problem is None
    assert outcome == BOUNDED


@pytest.mark.parametrize(
    ("m", "n", "is_run"),
    [
        ("DECIMAL(18,2)", "DECIMAL(19,4)", True),
        ("DECIMAL(20,2)", "DECIMAL(18,4)", False),
        ("INT", "DOUBLE", True),
    ],
)
def test_products_that_are_rounded_one_by_one_are_not_run(m: str, n: str, is_run: bool) -> None:
    text = STREAMS.format(m=m, n=n) + "SELECT SUM(A.M * B.N) FROM A, B WHERE A.K = B.K"
    verdict = decide(parse(text)[0])
    assert verdict.outcome == BOUNDED and verdict.plan is not None
    reason = explain_uncomputed(verdict.plan)
    assert (reason is None) == is_run
    assert is_run or "more than 38 digits" in str(reason)
