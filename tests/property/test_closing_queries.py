"""Random queries whose results close; ``tests.campaigns.closing`` runs many more."""

from __future__ import annotations

import pytest

from tests.campaigns.closing import examine


@pytest.mark.parametrize("start", [0, pytest.param(20, marks=pytest.mark.campaign)])
def test_random_results_are_written_once_when_they_close(start: int) -> None:
    """On rows out of order, some of them late: DuckDB's answer on all others."""
    findings = [examine(seed) for seed in range(start, start + 8)]
    assert not [problem for problem, _ in findings if problem is not None]
    assert any(has_rows for _, has_rows in findings)
