"""Bounded queries that no engine runs are refused, with the reason."""

from __future__ import annotations

import pytest

from millpond.analysis.decide import decide
from millpond.errors import MillpondError
from millpond.frontend.parse import parse
from millpond.spark.admission import admit

_CATALOG = """
CREATE TABLE machines (machine STRING, hall STRING) USING json OPTIONS (path 'machines.json');
CREATE STREAMING TABLE alarms (machine STRING, level INT, at TIMESTAMP) USING json OPTIONS (path 'alarms');
"""
_HALLS = "SELECT m.hall, COUNT(a.level) AS n FROM machines m LEFT JOIN alarms a ON a.machine = m.machine "


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (f"{_HALLS} GROUP BY m.hall", "groups of a relation"),
        (f"SELECT MAX(n) FROM ({_HALLS} GROUP BY m.hall) h", "groups of a relation"),
    ],
)
def test_a_bounded_query_is_checked_but_not_run(query: str, reason: str) -> None:
    (parsed,) = parse(_CATALOG + query)
    verdict = decide(parsed)
    assert verdict.outcome == "bounded"
    with pytest.raises(MillpondError, match=f"{reason}.* checked, but not run"):
        admit(verdict)
