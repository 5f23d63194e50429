"""Repairs of random queries; ``tests.campaigns.repairs`` runs many more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.repairs import FAMILIES, Finding, examine, examine_file

pytestmark = pytest.mark.campaign
QUERIES = sorted((Path(__file__).parents[2] / "../shared/data/queries").glob("*.sql"))


def test_first_repairs_of_random_queries_are_bounded_and_minimal() -> None:
    """Those with the same answer have it, on the engines and random rows."""
    findings = [examine(seed) for seed in range(48)]
    assert not [problem for finding in findings for problem in finding.problems]
    repaired = [finding for finding in findings if finding.outcome == "unbounded"]
    assert {finding.family for finding in repaired} == set(FAMILIES)
    assert len({finding.kind for finding in repaired}) > 2 and sum(finding.same for finding in repaired) > 10


@pytest.mark.skipif(not QUERIES, reason="the queries are not there")
def test_first_repairs_of_the_shared_queries_are_bounded_and_minimal() -> None:
    findings: list[Finding] = [examine_file(str(path)) for path in QUERIES]
    assert not [problem for finding in findings for problem in finding.problems]
    assert sum(finding.outcome == "unbounded" for finding in findings) == 23
