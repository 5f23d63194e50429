"""Table I of paper 1, as the tour shows it; the other examples are in ``tests/fixtures/verdicts``."""

from __future__ import annotations

import pytest

from millpond import Verdict, check
from millpond.cli.tour import CATALOG as TABLE_I_STREAMS
from millpond.cli.tour import TABLE_I

YES, NO = "bounded", "unbounded"

# Query → bounded with duplicates kept, bounded with DISTINCT.
VERDICTS = {
    "Q1": (YES, NO),
    "Q2": (NO, NO),
    "Q3": (YES, YES),
    "Q4": (NO, YES),
    "Q5": (NO, NO),
    "Q6": (NO, YES),
    "Q7": (YES, YES),
}


@pytest.mark.parametrize(("name", "text"), TABLE_I)
def test_table_i(name: str, text: str) -> None:
    kept = check(f"{TABLE_I_STREAMS} SELECT {text}")
    distinct = check(f"{TABLE_I_STREAMS} SELECT DISTINCT {text}")
    assert isinstance(kept, Verdict) and isinstance(distinct, Verdict)
    assert (kept.outcome, distinct.outcome) == VERDICTS[name]
