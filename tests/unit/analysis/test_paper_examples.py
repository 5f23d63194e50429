"""The examples of paper 1 and of the criteria built on it, each under its own number.

An expectation is what the text says.  Where Millpond knows better than the paper, the title says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from millpond import Verdict, check
from millpond.cli.tour import CATALOG as TABLE_I_STREAMS
from millpond.cli.tour import TABLE_I

YES, NO = "bounded", "unbounded"


@dataclass(frozen=True)
class Example:
    title: str
    streams: str  # "S(A, B) T(C)": columns are INT unless a type is given
    query: str
    outcome: str
    entries: int | None = None  # where the text says how much is kept


def judged(streams: str, query: str) -> Verdict:
    verdict = check(f"{declared(streams)} {query}")
    assert isinstance(verdict, Verdict)
    return verdict


def declared(streams: str) -> str:
    """CREATE statements for ``S(A, B STRING) T(C)``."""
    statements = []
    for stream in streams.split(")")[:-1]:
        name, columns = stream.strip().split("(")
        typed = [c if " " in c else f"{c} INT" for c in (column.strip() for column in columns.split(","))]
        statements.append(f"CREATE STREAMING TABLE {name} ({', '.join(typed)});")
    return " ".join(statements)


# --- Table I ---------------------------------------------------------------------------------------

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


# --- sections 5 to 8 of paper 1 --------------------------------------------------------------------

PAPER = (
    Example(
        "5.5 and 6.1, the two joins that matter: MaxRef(S1) is {A, C}",
        "S1(A, B, C, D) S2(E, F, G) S3(H, I, J)",
        "SELECT DISTINCT 1 FROM S1, S2, S3 WHERE H < A AND G < C",
        NO,
    ),
    Example(
        "5.7: counts for 11 to 19",
        "S(A, B) T(C)",
        "SELECT A FROM S, T WHERE A < 20 AND A = C AND C > 10 AND B > 20",
        YES,
        entries=18,
    ),
    Example(
        "5.8: an unbounded column in the result",
        "S(A, B) T(C)",
        "SELECT A FROM S, T WHERE A > 10 AND B = C AND B = 10",
        NO,
    ),
    Example(
        "5.9: an inequality join that is counted",
        "S(A, B) T(C)",
        "SELECT A FROM S, T WHERE A = 10 AND B < C AND B > 10 AND C > 10",
        NO,
    ),
    Example(
        "5.11: the same with DISTINCT, one row of S, one of T, one answer",
        "S(A, B) T(C)",
        "SELECT DISTINCT A FROM S, T WHERE A = 10 AND B < C AND B > 10 AND C > 10",
        YES,
        entries=3,
    ),
    Example(
        "5.12: two joins that pull apart",
        "S(A, B, C) T(D, E)",
        "SELECT DISTINCT A FROM S, T WHERE A = 10 AND B > D AND C > E AND B > 10",
        NO,
    ),
    Example(
        "7.1 and 7.2, Q7 again: 10 classes of each stream, where the paper has 13^3 and 13^2 buckets",
        "S(A, B, C) T(D, E)",
        "SELECT A FROM S, T WHERE B < D AND D > 10 AND B < 20 AND A = 10",
        YES,
        entries=20,
    ),
    Example(
        "7.4 in the bucket A = 10: one row for three columns",
        "S(A, B, C, D) T(E, F)",
        "SELECT DISTINCT A FROM S, T WHERE A = 10 AND B > F AND C > F AND D > F",
        YES,
    ),
    Example(
        "7.4 as printed: A is projected without a bound, so it is not bounded after all",
        "S(A, B, C, D) T(E, F)",
        "SELECT DISTINCT A FROM S, T WHERE B > F AND C > F AND D > F",
        NO,
    ),
    Example(
        "8.1: an occurrence that says nothing new",
        "S(A, B)",
        "SELECT DISTINCT S1.A FROM S S1, S S2 WHERE S1.A = 10 AND S1.A = S2.A AND S1.B = S2.B AND S1.B > 10",
        YES,
    ),
    Example(
        "8.1 with duplicates: self-joins change nothing",
        "S(A, B)",
        "SELECT S1.A FROM S S1, S S2 WHERE S1.A = 10 AND S1.A = S2.A AND S1.B = S2.B AND S1.B > 10",
        NO,
    ),
    Example(
        "8.5: two aggregates of one bounded group",
        "S(A, B, C)",
        "SELECT A, SUM(B), MAX(C) FROM S WHERE A = 10 GROUP BY A",
        YES,
    ),
    Example("8.5 (1): an unbounded group", "S(A, B)", "SELECT A, COUNT(*) FROM S GROUP BY A", NO),
    Example("8.5 (2): COUNT(DISTINCT) without bound", "S(A)", "SELECT COUNT(DISTINCT A) FROM S", NO),
    Example("8.5 (2): MEDIAN without bound", "S(A)", "SELECT MEDIAN(A) FROM S", NO),
    Example("8.5 (2): MEDIAN of 0 to 9", "S(A)", "SELECT MEDIAN(A) FROM S WHERE A BETWEEN 0 AND 9", YES),
    Example(
        "8.7: a sum over an unbounded column, pushed below the join",
        "S(A, B) T(C)",
        "SELECT A, C, SUM(B) FROM S, T WHERE A < 20 AND C < 20 AND A > 10 AND C > 10 GROUP BY A, C",
        YES,
        entries=9 + 9 + 81,
    ),
)

# --- the criteria: closure, joins, self-joins, aggregates -------------------------------------------

CRITERIA = (
    Example("1: > 10 and < 12 is 11", "S(A)", "SELECT DISTINCT A FROM S WHERE A > 10 AND A < 12", YES, 1),
    Example(
        "1: 10 < A < B < 13 pins both",
        "S(A, B)",
        "SELECT DISTINCT A, B FROM S WHERE 10 < A AND A < B AND B < 13",
        YES,
        1,
    ),
    Example(
        "1: bounds travel through joins",
        "S(A) T(D)",
        "SELECT A FROM S, T WHERE A = D AND D BETWEEN 1 AND 5",
        YES,
        10,
    ),
    Example("1: A < B + 5 fits too", "S(A) T(B)", "SELECT DISTINCT 1 FROM S, T WHERE A < B + 5", YES),
    Example(
        "1: dense, between constants", "S(X DOUBLE)", "SELECT DISTINCT X FROM S WHERE X BETWEEN 0 AND 1", NO
    ),
    Example("1: dense, pinned", "S(X DOUBLE)", "SELECT DISTINCT X FROM S WHERE X = 0.5", YES, 1),
    Example(
        "1: dense, pinned through an equality",
        "S(X STRING) T(Y STRING)",
        "SELECT X FROM S, T WHERE X = Y AND Y IN ('a', 'b')",
        YES,
        4,
    ),
    Example("1: <= is one join", "S(A) T(B)", "SELECT DISTINCT 1 FROM S, T WHERE S.A <= T.B", YES, 3),
    Example("1: <> with duplicates", "S(A, B) T(D)", "SELECT 1 FROM S, T WHERE S.B <> T.D", NO),
    Example(
        "1: <> of bounded columns", "S(B) T(D TINYINT)", "SELECT 1 FROM S, T WHERE B <> D AND B = 3", YES
    ),
    Example(
        "1: <> that is known to hold", "S(B) T(D)", "SELECT 1 FROM S, T WHERE B <> D AND B < 0 AND D > 0", YES
    ),
    Example(
        "1: <> at different infinities",
        "S(B) T(D)",
        "SELECT 1 FROM S, T WHERE B <> D AND B < 10 AND D > 0",
        YES,
    ),
    Example(
        "1: two <> with DISTINCT",
        "S(A, B, C) T(D, E)",
        "SELECT DISTINCT 1 FROM S, T WHERE S.B <> T.D AND S.C <> T.E",
        YES,
    ),
    Example(
        "1: < and <> with DISTINCT",
        "S(A, B, C) T(D, E)",
        "SELECT DISTINCT 1 FROM S, T WHERE S.B < T.D AND S.C <> T.E",
        YES,
    ),
    Example("1: <> under MAX", "S(A, B) T(D)", "SELECT MAX(A) FROM S, T WHERE B <> D", YES),
    Example(
        "1: <> under COUNT(DISTINCT)",
        "S(A, B) T(D)",
        "SELECT COUNT(DISTINCT A) FROM S, T WHERE B <> D AND A BETWEEN 1 AND 3",
        YES,
    ),
    Example(
        "1: x <= y and x <> y is x < y",
        "S(B) T(D)",
        "SELECT DISTINCT 1 FROM S, T WHERE B <= D AND B <> D",
        YES,
    ),
    Example("1: <> as a filter", "S(A)", "SELECT A FROM S WHERE A <> 5", YES, 0),
    Example("1: IN", "S(A)", "SELECT DISTINCT A FROM S WHERE A IN (1, 5, 900)", YES, 3),
    Example(
        "1: a union whose parts are bounded",
        "S(A, B) T(D, E)",
        "SELECT DISTINCT 1 FROM S, T WHERE A < D OR B < E",
        YES,
    ),
    Example("2: unsatisfiable", "S(A) T(D)", "SELECT DISTINCT A FROM S, T WHERE A < D AND D < A", YES, 0),
    Example("2: one stream with duplicates", "S(A)", "SELECT A FROM S WHERE A > 10", YES, 0),
    Example("2: C1", "S(A) T(D)", "SELECT A FROM S, T WHERE D = 1", NO),
    Example("2: C2 implied", "S(A) T(D)", "SELECT DISTINCT 1 FROM S, T WHERE A <= D AND D <= A", NO),
    Example(
        "2: C3 with duplicates, no upper end", "S(A) T(D)", "SELECT 1 FROM S, T WHERE A < D AND A > 0", NO
    ),
    Example(
        "2: C3 with duplicates, no lower end", "S(A) T(D)", "SELECT 1 FROM S, T WHERE A <= D AND D < 0", NO
    ),
    Example(
        "2: C3 with duplicates, different ends",
        "S(A) T(D)",
        "SELECT 1 FROM S, T WHERE A < D AND A < 5 AND D > 0",
        YES,
    ),
    Example(
        "2: C3 with DISTINCT, one column wanted both large and small",
        "S(A) T(D) U(F)",
        "SELECT DISTINCT 1 FROM S, T, U WHERE A < D AND D < F",
        NO,
    ),
    Example(
        "3: some row has B = C",
        "S(A, B, C)",
        "SELECT DISTINCT 1 FROM S S1, S S2 WHERE S1.B = S1.C AND S1.B = S2.C",
        YES,
    ),
    Example(
        "3: Example 8.1 with one more, unused column",
        "S(A, B, C)",
        "SELECT DISTINCT S1.A FROM S S1, S S2 WHERE S1.A = 10 AND S1.A = S2.A AND S1.B = S2.B AND S1.B > 10",
        YES,
    ),
    Example(
        "4: MAX beside a join on another column, which Theorem 8.6 passes",
        "S(A, B) T(C)",
        "SELECT MAX(S.A) FROM S, T WHERE S.B < T.C",
        NO,
    ),
    Example(
        "4: MAX of the smaller side, which Theorem 8.6 passes",
        "S(A, B) T(C)",
        "SELECT MAX(S.A) FROM S, T WHERE S.A < T.C",
        NO,
    ),
    Example("4: MAX of the larger side", "S(A) T(C)", "SELECT MAX(S.A) FROM S, T WHERE T.C < S.A", YES),
    Example("4: MIN of the smaller side", "S(A) T(C)", "SELECT MIN(S.A) FROM S, T WHERE S.A < T.C", YES),
    Example(
        "4: MIN beside a bounded join, which Theorem 8.6 rejects",
        "S(A, B) T(D)",
        "SELECT MIN(S.A) FROM S, T WHERE S.B < T.D AND T.D > 10 AND S.B < 20",
        YES,
    ),
    Example(
        "4: AVG of a stream that is joined with no other, which Theorem 8.6 rejects",
        "S(C) T(A) U(A)",
        "SELECT AVG(T.A) FROM S, T, U WHERE U.A <= S.C",
        YES,
    ),
    Example(
        "4: SUM in the same place",
        "S(C) T(A) U(A)",
        "SELECT SUM(T.A) FROM S, T, U WHERE U.A <= S.C",
        NO,
    ),
    Example(
        "4: COUNT, SUM and AVG of an unbounded column in bounded groups",
        "S(A, B) T(C)",
        "SELECT A, COUNT(*), SUM(B), AVG(B) FROM S, T WHERE A = C AND A BETWEEN 1 AND 3 GROUP BY A",
        YES,
    ),
)


@pytest.mark.parametrize("example", [*PAPER, *CRITERIA], ids=lambda example: example.title)
def test_example(example: Example) -> None:
    verdict = judged(example.streams, example.query)
    assert verdict.outcome == example.outcome
    if example.entries is not None:
        assert verdict.state.entries == example.entries
    if example.outcome == NO:
        assert len(verdict.witness(4)["universe"]) == 4


def test_3_three_different_values() -> None:
    """In truth bounded; undetermined is honest, unbounded would be wrong."""
    query = "SELECT DISTINCT 1 FROM S S1, S S2, S S3 WHERE S1.A < S2.A AND S2.A < S3.A"
    assert judged("S(A)", query).outcome in ("bounded", "undetermined")
