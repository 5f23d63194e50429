"""Random queries with windows of time; ``tests.campaigns.windows`` runs many more."""

from __future__ import annotations

import pytest

from tests.campaigns.windows import examine

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize("start", range(0, 40, 20))
def test_random_windows_agree_with_the_definition_and_with_duckdb(start: int) -> None:
    """Verdicts equal those of the definition, witnesses are confirmed, answers are those of DuckDB."""
    findings = [examine(seed) for seed in range(start, start + 20)]
    assert not [problem for finding in findings for problem in finding.problems]
    assert {"bounded", "unbounded"} <= {finding.outcome for finding in findings}
