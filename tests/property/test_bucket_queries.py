"""Random joins by time buckets; ``tests.campaigns.buckets`` runs many more."""

from __future__ import annotations

import pytest

from tests.campaigns.buckets import examine

pytestmark = pytest.mark.campaign


def test_random_buckets_agree_with_the_definition_and_with_duckdb() -> None:
    """Verdicts equal those of the definition, witnesses are confirmed, answers are those of DuckDB."""
    findings = [examine(seed) for seed in range(12)]
    assert not [problem for finding in findings for problem in finding.problems]
    assert {"bounded", "unbounded"} <= {finding.outcome for finding in findings}
