"""Verdicts on queries in time: the criteria, paper 2's own theorems where they differ, and certificates."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from millpond import Verdict, check
from millpond.errors import NotUnboundedError, SqlError
from tests.support.time_fooling import confirm_time_witness

STREAMS = (
    "CREATE STREAMING TABLE S (A INT, A2 INT, I TIMESTAMP); CREATE STREAMING TABLE T (B INT, B2 INT, J "
    "TIMESTAMP); CREATE STREAMING TABLE U (C INT, C2 INT, K TIMESTAMP); CREATE STREAMING TABLE V (E INT, "
    "E2 INT, L TIMESTAMP); CREATE STREAMING TABLE P (G INT, N STRING, F DOUBLE, H TIMESTAMP);"
    "CREATE STREAMING TABLE Q (G INT, N STRING, F DOUBLE, M TIMESTAMP); CREATE STREAMING TABLE W (D INT);"
    "CREATE TABLE R (X INT, Y INT, N STRING, N2 STRING, F DOUBLE, F2 DOUBLE);\n"
)
YES, NO, OPEN = "bounded", "unbounded", "undetermined"
NOON, EVENING = "TIMESTAMP '2024-03-01 12:00:00'", "TIMESTAMP '2024-03-01 18:00:00'"
CHAIN = "FROM S, T, U WHERE I > J AND J > K"
EXAMPLE = f"S.A, T.B {CHAIN} AND A > B AND B > 0 AND B < 5"
UNSOUND = "SELECT DISTINCT 1 FROM S, T, U, V WHERE T.J > U.K AND S.A > T.B AND V.E > U.C"
TOO_STRICT = "SELECT DISTINCT 1 FROM S, T, U WHERE K < J AND U.C < T.B AND T.B < S.A"


@dataclass(frozen=True)
class Example:
    title: str
    query: str
    outcome: str
    published: str = ""  # what the paper's own theorem says, where it differs
    entries: int | None = None


def judged(query: str) -> Verdict:
    verdict = check(STREAMS + query)
    assert isinstance(verdict, Verdict)
    return verdict


PAPER = [
    Example("the paper's example", f"SELECT {EXAMPLE}", YES, entries=5),
    Example("the paper's example with DISTINCT", f"SELECT DISTINCT {EXAMPLE}", NO),
    Example("the paper's example, B alone with DISTINCT", f"SELECT DISTINCT {EXAMPLE[5:]}", YES),
    Example(
        "the paper's example without an order of S and T",
        "SELECT S.A, T.B FROM S, T, U WHERE J > K AND A > B AND B > 0 AND B < 5",
        NO,
    ),
    Example(
        "passes Theorem 2, and is not bounded", UNSOUND, NO, "Theorem 2 of Schiff and Özçep would accept"
    ),
    Example(
        "fails Theorem 2, and is bounded", TOO_STRICT, YES, "Theorem 2 of Schiff and Özçep does not cover"
    ),
    Example("fails Theorem 2, with <= in time", TOO_STRICT.replace("K < J", "K <= J"), YES),
    Example("fails Theorem 2 without the order in time", TOO_STRICT.replace("K < J AND ", ""), NO),
    Example("passes Theorem 2 without the order in time", UNSOUND.replace("T.J > U.K AND ", ""), YES),
]

SHAPES = [
    Example(
        "depth 3",
        "SELECT S.A2 FROM S, T, U, V WHERE I > J AND J > K AND K > L AND E = A AND E IN (1, 2)",
        YES,
        "its C2 allows joins of neighbours only, and E = A is not one",
    ),
    Example(
        "two successors",
        "SELECT 1 FROM S, T, U WHERE K < I AND K < J",
        YES,
        "its C1 requires a tree, and both S and T come right after U",
        entries=3,
    ),
    Example("two successors, one of them in the result", "SELECT S.A FROM S, T, U WHERE K < I AND K < J", NO),
    Example(
        "a join with the grandparent",
        f"SELECT S.A2 {CHAIN} AND A = C AND C = 3",
        YES,
        "its C2 allows joins of neighbours only, and A = C is not one",
        entries=2,
    ),
    Example(
        "a projection at depth 2",
        f"SELECT C {CHAIN} AND C BETWEEN 1 AND 2",
        YES,
        "its C3 refuses U.C in the result",
        entries=4,
    ),
    Example("a projection at depth 2 without bound", f"SELECT C {CHAIN}", NO),
    Example("the last stream's columns need no bound", f"SELECT A, A2 {CHAIN}", YES, entries=2),
    Example("the last but one's do", f"SELECT B {CHAIN}", NO),
    Example("an equality along the chain", f"SELECT 1 {CHAIN} AND A = B", NO),
    Example("an equality along the chain, bounded", f"SELECT 1 {CHAIN} AND A = B AND A IN (1, 2)", YES),
    Example("a counted inequality along the chain", f"SELECT 1 {CHAIN} AND A > B", NO),
    Example("an inequality along the chain with DISTINCT", f"SELECT DISTINCT 1 {CHAIN} AND A > B", YES),
    Example("a counted <> along the chain", f"SELECT 1 {CHAIN} AND A <> B", NO),
    Example("<> along the chain with DISTINCT", f"SELECT DISTINCT 1 {CHAIN} AND A <> B", YES),
    Example("T1: two columns of one stream", f"SELECT DISTINCT 1 {CHAIN} AND B < A AND B2 < A2", NO),
    Example("T1: two columns, of one partner", f"SELECT DISTINCT 1 {CHAIN} AND B < A AND B2 < A", YES),
    Example("T1 does not look back", f"SELECT DISTINCT 1 {CHAIN} AND C < B AND C < A AND B2 > C", YES),
    Example("T2: the same partner", f"SELECT DISTINCT 1 {CHAIN} AND C < A AND B < A", YES),
    Example("T2: opposite directions", f"SELECT DISTINCT 1 {CHAIN} AND C < A AND B > A2", NO),
    Example("T2: different partners", UNSOUND, NO, "would accept"),
    Example("T2: different partners, one bounded", f"{UNSOUND} AND U.C BETWEEN 1 AND 3", YES),
]

TIMES = [
    Example("<= between timestamps", "SELECT S.A FROM S, T WHERE J <= I", YES, entries=1),
    Example("<> between timestamps is no order", "SELECT S.A FROM S, T WHERE J <> I", NO),
    Example("<= and <> is an order", "SELECT S.A FROM S, T WHERE J <= I AND J <> I", YES),
    Example("<> between timestamps needs no room of its own", "SELECT 1 FROM S, T WHERE J <> I", YES),
    Example("merged streams are one", "SELECT S.A, T.B FROM S, T WHERE I = J AND A = B", YES, entries=0),
    Example("merged streams with DISTINCT", "SELECT DISTINCT 1 FROM S, T WHERE I = J AND A = B", YES),
    Example(
        "merged streams, an unbounded column with DISTINCT",
        "SELECT DISTINCT S.A FROM S, T WHERE I = J AND A = B",
        NO,
    ),
    Example("merged streams before a third", "SELECT C FROM S, T, U WHERE I = J AND A = B AND J < K", YES),
    Example(
        "merged streams and a third without order",
        "SELECT C FROM S, T, U WHERE I = J AND A = B AND C = 1",
        YES,
    ),
    Example("almost merged", "SELECT DISTINCT 1 FROM S, T WHERE I <= J AND A = B", NO),
    Example("a stream that ends", f"SELECT S.A, T.B FROM S, T WHERE A = B AND I < {NOON}", YES),
    Example("streams that both end", f"SELECT A FROM S, T WHERE A < B AND I < {NOON} AND J <= {NOON}", YES),
    Example(
        "a stream that ends bounds nothing else",
        f"SELECT T.B FROM S, T, U WHERE I < {NOON} AND A = C AND A2 = 1",
        NO,
    ),
    Example("a stream that begins late", f"SELECT A FROM S, T WHERE A = B AND J > {NOON}", NO),
    Example(
        "streams that begin late", f"SELECT A FROM S, T WHERE A = B AND J > {NOON} AND I >= {EVENING}", NO
    ),
    Example("an excluded moment", f"SELECT DISTINCT A FROM S, T WHERE I > J AND I <> {NOON}", NO),
    Example(
        "an excluded moment where certificates begin",
        "SELECT DISTINCT A FROM S, T WHERE I > J AND I <> TIMESTAMP '2000-01-01 00:00:05'",
        NO,
    ),
    Example(
        "constants that order two streams",
        f"SELECT S.A FROM S, T WHERE J < {NOON} AND I > {EVENING} AND A = B",
        YES,
    ),
    Example("a contradiction", "SELECT A FROM S, T WHERE I < J AND J < I AND A = B", YES, entries=0),
    Example("constants in the result", "SELECT 'x', S.A, 1.5, NULL FROM S, T WHERE J < I", YES, entries=1),
    Example("only constants in the result", "SELECT DISTINCT 'x' FROM S, T WHERE J < I AND A < B", YES),
    Example(
        "UNION ALL",
        "SELECT S.A FROM S, T WHERE J < I UNION ALL SELECT T.B FROM S, T WHERE I < J",
        YES,
        entries=2,
    ),
    Example(
        "UNION of unbounded columns",
        "SELECT S.A FROM S, T WHERE J < I UNION SELECT T.B FROM S, T WHERE I < J",
        NO,
    ),
    Example(
        "UNION with a select without time",
        "SELECT D FROM W WHERE D = 1 UNION SELECT 2 FROM S, T WHERE J < I",
        YES,
    ),
    Example("OR of two orders", "SELECT DISTINCT 1 FROM S, T WHERE (I < J OR J < I) AND A < B", YES),
    Example("a stream with itself", "SELECT x.A FROM S x, S y WHERE x.I > y.I", YES, entries=1),
    Example("a stream with itself, the earlier row shown", "SELECT y.A FROM S x, S y WHERE x.I > y.I", NO),
    Example("a stream without a time", "SELECT A FROM S, T, W WHERE J < I AND D = 1", NO),
    Example(
        "a stream without a time, bounded", "SELECT B FROM S, T, W WHERE J < I AND D = 1 AND B IN (1, 2)", YES
    ),
]

AGGREGATES = [
    Example("COUNT", f"SELECT COUNT(*) {CHAIN}", YES),
    Example("COUNT beside an unbounded equality", f"SELECT COUNT(*) {CHAIN} AND A = B", NO),
    Example("SUM and AVG of unbounded columns", f"SELECT SUM(C), AVG(B), SUM(A2) {CHAIN}", YES),
    Example("MEDIAN of an unbounded column", f"SELECT MEDIAN(C) {CHAIN}", NO),
    Example("MEDIAN of a bounded column", f"SELECT MEDIAN(C) {CHAIN} AND C BETWEEN 0 AND 9", YES),
    Example("COUNT(DISTINCT) of the last stream's column", f"SELECT COUNT(DISTINCT A) {CHAIN}", NO),
    Example("groups of the last stream stay", "SELECT A, COUNT(*) FROM S, T WHERE J < I GROUP BY A", NO),
    Example("MAX of what comes last", "SELECT MAX(S.A) FROM S, T WHERE J < I AND A2 > B", YES),
    Example("MAX of what comes first", "SELECT MAX(S.A) FROM S, T WHERE J > I AND A2 > B", NO),
    Example("MIN of what comes first, alone", "SELECT MIN(S.A) FROM S, T WHERE J > I", YES),
    Example(
        "AVG beside a join that only has to match", "SELECT AVG(B) FROM S, T, U WHERE A < C AND I < K", YES
    ),
    Example(
        "MEDIAN beside a join that is looked for, by its groups",
        "SELECT C2, MEDIAN(B) FROM S, T, U WHERE A < C AND I < K AND C2 IN (1, 2) AND B IN (1, 2) "
        "GROUP BY C2",
        YES,
    ),
    Example(
        "AVG beside a join that must not fail",
        "SELECT AVG(B) FROM S, T, U WHERE A < C AND A2 < C2 AND I < K",
        NO,
    ),
    Example("COUNT beside a join", "SELECT COUNT(B) FROM S, T, U WHERE A < C AND I < K", NO),
]

RELATIONS = [
    Example("an INT equal to a relation's", "SELECT DISTINCT S.A FROM S, R WHERE A = X", YES),
    Example("a STRING equal to a relation's", "SELECT DISTINCT P.N FROM P, R WHERE P.N = R.N", YES),
    Example("a DOUBLE equal to a relation's", "SELECT DISTINCT P.F FROM P, R WHERE P.F = R.F", YES),
    Example("an INT between a relation's", "SELECT DISTINCT S.A FROM S, R WHERE A BETWEEN X AND Y", YES),
    Example("an INT below a relation's", "SELECT DISTINCT S.A FROM S, R WHERE A < X", NO),
    Example(
        "an INT between a relation's and a constant",
        "SELECT DISTINCT S.A FROM S, R WHERE A < X AND A > 0",
        YES,
    ),
    Example(
        "a DOUBLE between a relation's", "SELECT DISTINCT P.F FROM P, R WHERE P.F BETWEEN R.F AND R.F2", NO
    ),
    Example(
        "a DOUBLE between a relation's INTs", "SELECT DISTINCT P.F FROM P, R WHERE P.F > X AND P.F < Y", NO
    ),
    Example(
        "a STRING between a relation's", "SELECT DISTINCT P.N FROM P, R WHERE P.N BETWEEN R.N AND R.N2", NO
    ),
    Example("another column", "SELECT DISTINCT S.A FROM S, R WHERE A2 = X", NO),
    Example(
        "another column, beside INTs between DOUBLEs",
        "SELECT DISTINCT P.G FROM P, R WHERE R.F < X AND X < P.F AND P.F <= 2",
        NO,
    ),
    Example("the relation's own columns", "SELECT DISTINCT R.Y, R.N FROM S, R WHERE A = X", YES),
    Example("nothing in common", "SELECT X FROM S, R", YES),
    Example("rows are answered at once", "SELECT S.A2, R.Y FROM S, R WHERE A = X", YES),
    Example(
        "a join of streams, equal to a relation's",
        "SELECT P.G FROM P, Q, R WHERE P.N = Q.N AND Q.N = R.N AND P.G = X",
        YES,
    ),
    Example("a join of streams, elsewhere", "SELECT 1 FROM P, Q, R WHERE P.N = Q.N AND P.G = X", NO),
    Example(
        "a counted join of DOUBLEs between a relation's",
        "SELECT 1 FROM P, Q, R WHERE P.F < Q.F AND P.F >= R.F AND Q.F <= R.F2",
        NO,
    ),
    Example(
        "a counted <> of DOUBLEs that a relation bounds on one side each",
        "SELECT 1 FROM P, Q, R WHERE P.F <> Q.F AND P.F >= R.F AND Q.F <= R.F2",
        NO,
    ),
    Example(
        "an equality of DOUBLEs between a relation's",
        "SELECT DISTINCT 1 FROM P, Q, R WHERE P.F = Q.F AND P.F > X AND P.F < Y",
        NO,
    ),
    Example(
        "MAX of a DOUBLE that a relation and a stream bound",
        "SELECT MAX(P.F) FROM P, Q, R WHERE P.F > R.F AND P.F < R.F2 AND P.F < Q.F",
        NO,
    ),
    Example(
        "a DOUBLE below a relation's and a constant, counted",
        "SELECT 1 FROM P, R WHERE P.F < R.F AND P.F > 0 AND P.F < 1",
        YES,
    ),
    Example("a relation between two streams", "SELECT 1 FROM S, T, R WHERE A <= X AND X <= B", YES),
]

CERTIFICATES = [
    Example(
        "streams that never come together among those still to come",
        "SELECT COUNT(DISTINCT B) FROM S, T, V WHERE J < I AND J < L AND I <> L",
        NO,
    ),
    Example(
        "merged streams that never come together with a third",
        "SELECT DISTINCT B FROM S, T, U WHERE I = K AND K <> J",
        NO,
    ),
    Example(
        "a counted <> of merged streams, which come last",
        "SELECT 1 FROM S, T, U WHERE B < A AND B2 <> C AND J > K AND J = I",
        NO,
    ),
    Example(
        "a counted <> of merged streams, which come first",
        "SELECT 1 FROM S, T, U WHERE C <> A AND C < B AND J = K AND I >= J",
        NO,
    ),
    Example(
        "a counted <> with a column that another comes with",
        "SELECT 1 FROM S, T, U, V WHERE A = E AND C <> E AND C2 > C AND J < I AND L > K AND I = L",
        NO,
    ),
    Example(
        "an equality beside many orders",
        "SELECT DISTINCT 1 FROM S, T, U, V WHERE B >= C AND A = C2 AND E < B2 AND E2 <= B AND L < I "
        "AND L = K AND J > L",
        NO,
    ),
    Example(
        "two joins among many",
        "SELECT DISTINCT 1 FROM S, T, U, V WHERE C < E AND C2 < A AND E2 < C2 AND B <= A2 AND B2 <= C "
        "AND A2 <= E AND I > J AND L <> I",
        NO,
    ),
    Example("MEDIAN of the last stream's column", "SELECT MEDIAN(B) FROM S, T WHERE I < J AND B < A", NO),
    Example(
        "MEDIAN of a column between those of earlier streams",
        "SELECT MEDIAN(B) FROM S, T, U WHERE I < J AND K <= J AND A < B AND B < C",
        NO,
    ),
    Example(
        "MEDIAN beside a column that an earlier stream is below",
        "SELECT MEDIAN(B) FROM S, T WHERE I < J AND B < A AND A < B2",
        NO,
    ),
    Example(
        "MEDIAN of a column that equals an earlier one",
        "SELECT MEDIAN(B) FROM S, T, U WHERE I < J AND K < J AND A = B",
        NO,
    ),
    Example("MEDIAN of merged streams", "SELECT MEDIAN(B) FROM S, T, U WHERE I = J AND K <= J", NO),
    Example(
        "MEDIAN of a column above a merged stream's",
        "SELECT MEDIAN(B) FROM S, T, U WHERE I = J AND K < J AND A < B AND C <> B",
        NO,
    ),
    Example(
        "MEDIAN of a column that equals an earlier one, with a stream between",
        "SELECT MEDIAN(B) FROM S, T, U WHERE I <= K AND K <= J AND A = B",
        NO,
    ),
    Example(
        "MEDIAN of a bounded column, counted with what comes in between",
        "SELECT MEDIAN(B) FROM S, T, U WHERE B BETWEEN 0 AND 3 AND C <= A AND J < K",
        NO,
    ),
    Example(
        "MEDIAN of a bounded column, weighed by two coming streams",
        "SELECT MEDIAN(B) FROM S, T, U, V WHERE B BETWEEN 0 AND 3 AND C <= E AND L < K AND K <= I AND J < I",
        NO,
    ),
    Example(
        "MEDIAN of a bounded column above one that is counted by <>",
        "SELECT MEDIAN(B) FROM S, T, U WHERE B BETWEEN 2 AND 3 AND C <> A AND C < B AND K < I AND I < J",
        NO,
    ),
    Example(
        "MEDIAN of a bounded column between others",
        "SELECT MEDIAN(A) FROM S, T, U WHERE A BETWEEN 0 AND 3 AND B >= A AND B2 > A2 AND C <= A AND I = K",
        NO,
    ),
    Example(
        "MEDIAN of a bounded column, with T1: two columns of one stream",
        "SELECT MEDIAN(C) FROM S, T, U WHERE C BETWEEN -1 AND 1 AND B < C AND A < B AND A2 < B AND A2 <= B2 "
        "AND K < J AND J < I",
        NO,
    ),
    Example(
        "AVG of a bounded column, weighed against rows of its range",
        "SELECT C, AVG(B) FROM S, T, U WHERE B BETWEEN -1 AND 0 AND C BETWEEN -1 AND 0 AND A < C2 AND A <= C "
        "AND A <= B AND I <> K GROUP BY C",
        NO,
    ),
    Example(
        "AVG beside a bounded column, weighed against rows of its range",
        "SELECT A, AVG(B) FROM S, T, U WHERE A BETWEEN 1 AND 3 AND B BETWEEN 1 AND 3 AND B2 BETWEEN 1 AND 3 "
        "AND A2 >= C AND B2 >= A2 AND C <= A AND I <> K GROUP BY A",
        NO,
    ),
    Example(
        "MAX of a constant, with T2: opposite directions",
        "SELECT MAX(B2) FROM S, T, V WHERE B2 = 1 AND A <= B AND E < A AND L > J AND L < I",
        NO,
    ),
    Example(
        "a <> of bounded columns between others",
        "SELECT B2 FROM S, T, U WHERE B BETWEEN 0 AND 2 AND C BETWEEN 0 AND 2 AND A BETWEEN 0 AND 2 "
        "AND A2 BETWEEN 0 AND 2 AND A2 <= C AND C <= A AND B <> C AND J < K AND K <= I",
        NO,
    ),
]

# The streams that AVG and MEDIAN count, and those that only have to match.
BESIDE = [
    Example(
        "AVG joined through a constant",
        "SELECT C2, AVG(C) FROM S, T, U WHERE C2 = -1 AND A <> C2 AND B > A AND I <= J GROUP BY C2",
        YES,
    ),
    Example(
        "AVG joined through ranges that do not meet",
        "SELECT AVG(C) FROM S, T, U WHERE C2 < A AND C2 <= 0 AND A > 0 AND B > A AND I <= J",
        YES,
    ),
    Example(
        "AVG joined through its group",
        "SELECT B, AVG(E) FROM S, T, U, V WHERE B BETWEEN 1 AND 2 AND C <= B AND C < E AND K = L "
        "AND B2 < A AND B <= B2 AND I <= J GROUP BY B",
        YES,
    ),
    Example(
        "AVG joined through its group and more",
        "SELECT B, AVG(E) FROM S, T, U, V WHERE B BETWEEN 1 AND 2 AND C <= B AND C < E AND K = L "
        "AND B2 < A AND B <= B2 AND A2 > C2 AND I <= J GROUP BY B",
        NO,
    ),
    Example(
        "AVG joined through its group, which can be anything",
        "SELECT B, AVG(E) FROM S, T, U, V WHERE C <= B AND C < E AND K = L AND B2 < A AND I <= J GROUP BY B",
        NO,
    ),
    Example(
        "AVG weighed by moments that must differ",
        "SELECT AVG(C) FROM S, T, U, V WHERE B > A AND C BETWEEN -1 AND 1 AND E > B AND J >= L AND I <> K",
        NO,
    ),
    Example(
        "AVG weighed by <>, against a row for one value only",
        "SELECT AVG(A) FROM S, T, U WHERE C <= A AND C <> B AND A BETWEEN 0 AND 3 AND A2 >= A AND K < J",
        NO,
    ),
    Example(
        "AVG weighed by <>, against a row that came before",
        "SELECT AVG(A) FROM S, T, U, V WHERE C <> E AND E <> 0 AND I > L AND L <= J AND L <= K",
        NO,
    ),
    Example(
        "AVG of a stream that ends",
        f"SELECT AVG(A) FROM S, U, V WHERE E >= C AND A BETWEEN -1 AND 1 AND A < E AND I < L AND I <= {NOON}",
        NO,
    ),
    Example(
        "AVG of a column below one of a stream that ends",
        f"SELECT AVG(C) FROM S, T, U WHERE B > C AND C2 <= B AND B > A AND A > C2 AND I < K AND J < {NOON}",
        NO,
    ),
    Example(
        "AVG of a column below its group",
        "SELECT B, AVG(B2) FROM S, T, U, P WHERE B2 <= B AND B < A AND B BETWEEN -1 AND 2 AND B2 >= -1 "
        "AND P.G < C AND H = J AND I >= J AND J <= K GROUP BY B",
        NO,
    ),
    Example(
        "AVG of a column that must not be 1",
        "SELECT A, AVG(C) FROM S, T, U WHERE B < C2 AND C <> A AND A = 1 AND I < J AND K >= J GROUP BY A",
        NO,
    ),
]

# A median of few values moves in steps, and when it does must be looked at.
IN_STEPS = [
    Example(
        "its own stream is counted", "SELECT MEDIAN(B) FROM S, T WHERE B IN (1, 2) AND B2 < A AND J < I", NO
    ),
    Example(
        "without time",
        "SELECT MEDIAN(B) FROM S, T WHERE B BETWEEN 0 AND 1 AND B = A AND A2 > B2 AND A > A2",
        NO,
    ),
    Example(
        "two streams come at one moment",
        "SELECT MEDIAN(C) FROM S, T, U WHERE C BETWEEN -1 AND 1 AND C < A AND C2 >= B AND K < J AND I = J",
        NO,
    ),
    Example(
        "a last stream repeats everything",
        "SELECT MEDIAN(A) FROM S, T, U WHERE A BETWEEN -1 AND 1 AND A <> B AND B < A2 AND A >= B AND A >= A2 "
        "AND I <= J AND J <= K",
        NO,
    ),
    Example(
        "an earlier stream's column",
        "SELECT MEDIAN(B) FROM S, T, U WHERE B BETWEEN 1 AND 2 AND A < B AND A <= C AND J < K AND K < I",
        NO,
    ),
    Example(
        "a column that goes with all optional rows",
        "SELECT MEDIAN(B) FROM S, T, U WHERE A <= B AND B BETWEEN 2 AND 3 AND C <= A AND I <= K",
        NO,
    ),
    Example(
        "the last stream's column",
        "SELECT MEDIAN(B) FROM S, T, U, V WHERE B BETWEEN 0 AND 3 AND C < A AND A < B AND L < J AND I < J "
        "AND I < K AND K < J",
        NO,
    ),
    Example(
        "counted by <>, the column of the first stream",
        "SELECT MEDIAN(C) FROM S, T, U, V WHERE E <> A AND C BETWEEN -1 AND 1 AND J >= K AND L > K "
        "AND I >= K",
        NO,
    ),
    Example(
        "counted by <>, against a row for one value only",
        "SELECT MEDIAN(A) FROM S, T, U WHERE C <= A AND C <> B AND A BETWEEN 0 AND 3 AND A2 >= A AND K < J",
        NO,
    ),
    Example(
        "the column of a stream that ends",
        f"SELECT MEDIAN(A) FROM S, U, V WHERE E >= C AND A BETWEEN -1 AND 1 AND A < E AND I < L "
        f"AND I <= {NOON}",
        NO,
    ),
    Example(
        "the column of a stream that ends, told apart by another of its columns",
        "SELECT MEDIAN(B) FROM S, T, U WHERE A < C AND B BETWEEN -1 AND 3 AND B2 > A AND I >= J AND I <= K "
        f"AND J < {NOON}",
        NO,
    ),
]

EVERY = [*PAPER, *SHAPES, *TIMES, *AGGREGATES, *RELATIONS, *CERTIFICATES, *BESIDE, *IN_STEPS]


@pytest.mark.parametrize("example", EVERY, ids=lambda e: e.title)
def test_example(example: Example) -> None:
    verdict = judged(example.query)
    assert verdict.outcome == example.outcome, verdict.explain()
    if example.entries is not None:
        assert verdict.state.entries == example.entries
    if example.published:
        assert verdict.published is not None and example.published in verdict.published
    else:
        assert verdict.published is None
    if verdict.outcome == NO:
        assert verdict.reasons and verdict.state.entries is None and verdict.timed is None
    else:
        assert not verdict.reasons


@pytest.mark.campaign
@pytest.mark.parametrize("example", [e for e in EVERY if e.outcome == NO], ids=lambda e: e.title)
def test_certificates_follow_the_clock(example: Example) -> None:
    verdict = judged(example.query)
    catalog = {name: [(c.name, c.type.name) for c in t.columns] for name, t in verdict.query.tables.items()}
    used = {o.table.name for select in verdict.query.selects for o in select.occurrences}
    for n in (1, 3) if example in IN_STEPS else (1, 3, 6):
        witness = verdict.witness(n)
        assert len(witness["universe"]) == len(witness["probes"]) == n
        if used <= {"S", "T", "U", "V"} or n <= 3:
            refusal = confirm_time_witness(STREAMS + example.query, catalog, witness)
            assert refusal is None, f"{n}: {refusal}"


@pytest.mark.campaign
@pytest.mark.parametrize("example", IN_STEPS, ids=lambda e: e.title)
def test_a_median_that_moves_in_steps_is_looked_at_on_the_way(example: Example) -> None:
    assert judged(example.query).witness(3)["compare"] == "emitted"


def test_a_median_that_one_row_moves_is_looked_at_once() -> None:
    assert judged(f"SELECT MEDIAN(C) {CHAIN}").witness(3)["compare"] == "answer"


SIX_COLUMNS = "".join(
    f"CREATE STREAMING TABLE {name} (A INT, B INT, C INT, D INT, E INT, F INT, I TIMESTAMP); "
    for name in "STU"
)


@pytest.mark.parametrize("joined", ["S.A < T.{}", "T.{} < S.A"])
def test_one_column_below_or_above_many(joined: str) -> None:
    """Six columns can be ordered in more ways than are looked at, but none of them brings a conflict."""
    joins = " AND ".join(joined.format(c) for c in "ABCDEF")
    verdict = check(f"{SIX_COLUMNS} SELECT DISTINCT 1 FROM S, T WHERE {joins} AND S.I < T.I")
    assert isinstance(verdict, Verdict) and verdict.outcome == YES


@pytest.mark.parametrize("time", ["S.I < T.I", "S.I <= T.I", "S.I = T.I AND S.I < U.I"])
def test_two_of_many_joins_conflict(time: str) -> None:
    """Six columns can be ordered in more ways than are looked at; two of their joins show enough."""
    joins = " AND ".join(f"S.{c} < {'U' if 'U' in time else 'T'}.{c}" for c in "ABCDEF")
    verdict = check(f"{SIX_COLUMNS} SELECT DISTINCT 1 FROM S, T, U WHERE {joins} AND {time}")
    assert isinstance(verdict, Verdict) and verdict.outcome == NO


def test_too_many_orders_in_words() -> None:
    joins = " AND ".join(f"S.A < T.{c}" for c in "ABCDEF")
    verdict = check(f"{SIX_COLUMNS} SELECT DISTINCT 1 FROM S, T WHERE {joins} AND S.I > T.I")
    assert isinstance(verdict, Verdict) and verdict.outcome == OPEN
    assert verdict.explain().splitlines() == [
        "undetermined: neither a bound nor a proof of growth was found",
        "  its columns can be ordered in too many ways to check them all.",
    ]


# --- in words ----------------------------------------------------------------------------------------


def test_the_counterexamples_in_words() -> None:
    assert judged(UNSOUND).explain().splitlines() == [
        "unbounded: memory must grow with the streams, whatever the program",
        "  S.A > T.B AND V.E > U.C: a coming row needs both a row of U and a later row",
        "    of T, but the best row of U may be later than the best row of T: no pair",
        "    is the best for all coming rows, so none can be dropped.",
        "  Theorem 2 of Schiff and Özçep would accept it: it ignores the streams that",
        "  come before a stream.",
    ]
    assert judged(TOO_STRICT).explain().splitlines()[0] == (
        "bounded: finite; its size depends on the data (see state_entries in the metrics)"
    )


def test_the_papers_example_in_words() -> None:
    assert judged(f"SELECT {EXAMPLE}").explain().splitlines() == [
        "bounded: at most 5 entries, 144 bytes",
        "  U          1 entry  number of rows",
        "  T and U  4 entries  number of matches for each B (1 to 4)",
    ]


def test_a_last_stream_with_distinct_in_words() -> None:
    [reason] = judged(f"SELECT DISTINCT {EXAMPLE}").reasons
    assert reason.code == "unbounded-projection" and reason.columns == ("S.A",)
    assert "recognise duplicates" in reason.message


@pytest.mark.parametrize("join", ["A < B", "A > B", "A <> B", "B <> A"])
def test_what_waits_is_what_comes_first(join: str) -> None:
    [reason] = judged(f"SELECT 1 FROM S, T WHERE I > J AND {join}").reasons
    assert "the number of rows of T that a coming row of S matches" in reason.message
    [reason] = judged(f"SELECT 1 FROM S, T WHERE I <= J AND {join}").reasons
    assert "the number of rows of S that a coming row of T matches" in reason.message


def test_json() -> None:
    told = judged(TOO_STRICT).to_json()
    assert told["outcome"] == YES and told["reasons"] == []
    assert told["state"]["entries"] is None and told["state"]["bytes"] is None
    kept = {s["stream"]: s["keeps"] for s in told["state"]["streams"]}
    assert kept["U"] == ["match with the smallest C"]
    assert None in kept
    assert "Theorem 2" in told["published"]
    told = judged(f"SELECT {EXAMPLE}").to_json()
    assert told["published"] is None
    assert told["state"]["entries"] == sum(s["entries"] for s in told["state"]["streams"]) == 5
    [both] = [s for s in told["state"]["streams"] if s["stream"] == "T and U"]
    assert both["columns"] == [{"column": "B", "classes": 4, "description": "1 to 4"}]
    unbounded = judged(UNSOUND).to_json()
    assert unbounded["state"] == {"entries": None, "bytes": None, "streams": []}
    assert [r["code"] for r in unbounded["reasons"]] == ["conflicting-times"]
    assert unbounded["reasons"][0]["predicate"] == "S.A > T.B AND V.E > U.C"


def test_a_bounded_query_has_no_certificate() -> None:
    with pytest.raises(NotUnboundedError):
        judged(TOO_STRICT).witness(3)


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "column", "message"),
    [
        ("SELECT I FROM S, T WHERE I < J", 8, "the timestamp S.I in the result of a join of streams"),
        ("SELECT A, T.J FROM S, T WHERE I < J", 11, "the timestamp T.J in the result"),
        ("SELECT MAX(I) FROM S, T WHERE I < J", 8, "the timestamp S.I in the result"),
        ("SELECT A FROM S, T WHERE I < 5", 26, "I (TIMESTAMP) cannot be compared with 5 (INT)"),
        ("SELECT A FROM S, T WHERE I < B", 26, "I (TIMESTAMP) cannot be compared with B (INT)"),
        ("SELECT A FROM S, T WHERE I + 1 < J", 26, "I"),
    ],
    ids=["projected", "projected beside others", "aggregated", "number", "column of numbers", "moved"],
)
def test_what_is_refused(query: str, column: int, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        judged(query)
    assert message in caught.value.message
    assert caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (2, column)


def test_a_timestamp_of_one_stream_may_be_shown() -> None:
    assert judged(f"SELECT I, A FROM S WHERE I > {NOON}").outcome == YES
