"""Table I of paper 1; the other examples are in ``tests/fixtures/verdicts``."""

from __future__ import annotations

import pytest

from millpond import Verdict, check
from tests.support.scenario import TABLE_I as STREAMS

YES, NO = "bounded", "unbounded"

QUERIES = (
    ("Q1", "A FROM S WHERE A > 10"),
    ("Q2", "A FROM S, T WHERE A = D"),
    ("Q3", "A FROM S, T WHERE A = D AND A > 10 AND D < 20"),
    ("Q4", "A FROM S, T WHERE B < D AND A = 10"),
    ("Q5", "A FROM S, T WHERE B < D AND C < E AND A = 10"),
    ("Q6", "A FROM S, T WHERE B < D AND C < E AND B < E AND C < D AND A = 10"),
    ("Q7", "A FROM S, T WHERE B < D AND D > 10 AND B < 20 AND A = 10"),
)
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


@pytest.mark.parametrize(("name", "text"), QUERIES)
def test_table_i(name: str, text: str) -> None:
    kept = check(f"{STREAMS} SELECT {text}")
    distinct = check(f"{STREAMS} SELECT DISTINCT {text}")
    assert isinstance(kept, Verdict) and isinstance(distinct, Verdict)
    assert (kept.outcome, distinct.outcome) == VERDICTS[name]
