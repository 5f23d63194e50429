"""Repairs of random queries; ``tests.campaigns.repairs`` runs many more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.repairs import FAMILIES, Finding, examine, examine_file

pytestmark = pytest.mark.campaign
QUERIES = sorted((Path(__file__).parents[2] / "../shared/data/queries").glob("*.sql"))


# Seeds of unbounded queries, of every family.
SEEDS = (3, 4, 8, 11, 14, 18, 20, 37)


def test_first_repairs_of_random_queries_are_bounded_and_minimal() -> None:
    """One with the same answer has it, on the engine and random rows."""
    findings = [examine(seed, runs=1) for seed in SEEDS]
    assert not [problem for finding in findings for problem in finding.problems]
    assert {finding.outcome for finding in findings} == {"unbounded"}
    assert {finding.family for finding in findings} == set(FAMILIES)
    assert sum(finding.same for finding in findings) > 4


@pytest.mark.skipif(not QUERIES, reason="the queries are not there")
def test_first_repairs_of_the_shared_queries_are_bounded_and_minimal() -> None:
    """A part of them; the campaign takes all."""
    findings: list[Finding] = [examine_file(str(path)) for path in QUERIES[::4]]
    assert not [problem for finding in findings for problem in finding.problems]
    assert sum(finding.outcome == "unbounded" for finding in findings) > 2
