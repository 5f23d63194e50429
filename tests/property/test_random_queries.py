"""Random queries: the verdict is checked against the definition, its witness, and its synopses.

The seeds are fixed; ``python -m tests.campaigns.verdicts`` checks any number of other seeds.
"""

from __future__ import annotations

import pytest

from millpond.analysis.verdict import UNDETERMINED
from tests.campaigns.verdicts import Finding, examine_plain, examine_rich

BATCH = 100


@pytest.mark.campaign
@pytest.mark.parametrize("start", range(0, 400, BATCH))
def test_plain_queries_agree_with_the_definition_and_their_witnesses(start: int) -> None:
    findings = [examine_plain(seed) for seed in range(start, start + BATCH)]
    assert _problems(findings) == []
    open_cases = [f for f in findings if f.outcome == UNDETERMINED and not f.self_join]
    assert open_cases == [], "without self-joins every conjunctive query is decided"


@pytest.mark.campaign
@pytest.mark.parametrize("start", range(0, 300, BATCH))
def test_rich_queries_agree_with_their_witnesses(start: int) -> None:
    findings = [examine_rich(seed) for seed in range(start, start + BATCH)]
    assert _problems(findings) == []
    assert sum(f.outcome == UNDETERMINED for f in findings) <= BATCH // 10


def _problems(findings: list[Finding]) -> list[str]:
    return [problem for finding in findings for problem in finding.problems]
