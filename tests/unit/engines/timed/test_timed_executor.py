"""The executor for queries in time, without Spark: after every batch, what was emitted is DuckDB's answer.

Values of all types, NULL and large numbers are in ``test_timed_values``.
"""

from __future__ import annotations

import pytest

from tests.support.scenario import Line
from tests.support.timed_scenario import STREAMS, TimedRun, TimedScenario, assert_timed_answers, at

CHAIN = "FROM S, T, U WHERE I > J AND J > K"
EXAMPLE = f"S.A, T.B {CHAIN} AND A > B AND B > 0 AND B < 5"
NOON = "TIMESTAMP '2024-01-01 00:00:05'"


def scenario(title: str, query: str, *batches: list[Line], **more: object) -> TimedScenario:
    return TimedScenario(title, f"{STREAMS} {query}", batches, **more)  # type: ignore[arg-type]


# Rows of four streams at thirteen timestamps, several at some of them.
STORY: list[list[Line]] = [
    [("U", 1, 4, 1), ("S", 5, 0, 1), ("T", 3, 1, 1), ("T", 1, 2, 2), ("T", 2, 2, 2), ("V", 1, 1, 2)],
    [("U", 2, 0, 3), ("S", 3, 1, 3), ("S", 1, 2, 3), ("T", 2, 0, 3), ("U", 3, 3, 3), ("V", 2, 2, 4)],
    [("U", 2, 5, 5), ("S", 2, 1, 5), ("T", 2, 1, 5), ("U", 1, 1, 5), ("V", 2, 0, 5), ("S", 2, 1, 5)],
    [("T", 1, 1, 7), ("T", 3, 3, 8), ("S", 4, 4, 8), ("S", 2, 2, 9), ("V", 1, 0, 9), ("U", 0, 0, 10)],
    [("S", 3, 3, 11), ("V", 3, 3, 12), ("T", 1, 2, 12), ("S", 1, 1, 13)],
]


PAPER = [
    scenario(
        "the run of Figure 2",
        f"SELECT {EXAMPLE}",
        [("S", 42, 0, 0), ("T", 7, 0, 0)],
        [("U", 1, 0, 1)],
        [("T", 2, 0, 2)],
        [("U", 3, 0, 3)],
        [("T", 1, 0, 4)],
        [("S", 42, 0, 5), ("T", 3, 0, 5)],
        expected=[{}, {}, {}, {}, {}, {(42, 2): 1, (42, 1): 2}],
    ),
    scenario("the example query on a story", f"SELECT {EXAMPLE}", *STORY),
    scenario("the example query, B alone", f"SELECT DISTINCT {EXAMPLE[5:]}", *STORY),
    scenario(
        "the counterexample that is bounded",
        "SELECT DISTINCT 1 FROM S, T, U WHERE K < J AND U.C < T.B AND T.B < S.A",
        [("S", 6, 0, 1), ("T", 5, 0, 1)],
        [("U", 5, 0, 2), ("U", 4, 0, 3)],
        [("T", 4, 0, 4), ("T", 6, 0, 5)],
        [("T", 5, 0, 6)],
        expected=[{}, {}, {}, [(1,)]],
    ),
]

SHAPES = [
    scenario(
        "depth 3",
        "SELECT S.A2, C2 FROM S, T, U, V WHERE I > J AND J > K AND K >= L AND E = A AND "
        "E IN (1, 2, 3) AND C2 IN (0, 1, 5)",
        *STORY,
    ),
    scenario("two successors", "SELECT C FROM S, T, U WHERE K < I AND K < J AND C IN (1, 2)", *STORY),
    scenario(
        "two successors that are joined",
        "SELECT DISTINCT C FROM S, T, U WHERE K < I AND K < J AND C IN (1, 2) AND A < B",
        *STORY,
    ),
    scenario("a join with the grandparent", f"SELECT S.A2 {CHAIN} AND A = C AND C IN (1, 2, 3)", *STORY),
    scenario("a projection at depth 2", f"SELECT C, A {CHAIN} AND C BETWEEN 1 AND 2", *STORY),
    scenario("not after", "SELECT A, B FROM S, T WHERE J <= I AND B IN (1, 2)", *STORY),
    scenario(
        "unequal timestamps",
        "SELECT A, B FROM S, T WHERE J <> I AND B IN (1, 2) AND A IN (1, 2, 3)",
        *STORY,
    ),
    scenario(
        "unequal timestamps, presence",
        "SELECT DISTINCT A FROM S, T WHERE J <> I AND A IN (1, 2, 5)",
        *STORY,
    ),
    scenario("merged streams", "SELECT A, B, B2 FROM S, T WHERE I = J AND A >= B", *STORY),
    scenario(
        "merged streams after a third",
        "SELECT A, C FROM S, T, U WHERE I = J AND A = B AND K < J AND C IN (1, 2)",
        *STORY,
    ),
    scenario(
        "merged streams before a third",
        "SELECT DISTINCT C FROM S, T, U WHERE I = J AND A2 = B2 AND K >= J AND A < C AND C < 4 AND C > 0",
        *STORY,
    ),
    scenario(
        "a chain of unbounded columns with DISTINCT", f"SELECT DISTINCT 1 {CHAIN} AND A > B AND B > C", *STORY
    ),
    scenario(
        "a front of two",
        "SELECT DISTINCT 1 FROM S, T, U WHERE J > K AND C < B AND B2 < A AND C < A",
        *STORY,
    ),
    scenario(
        "requirements from both sides", f"SELECT DISTINCT 1 {CHAIN} AND C < A AND B < A AND A < 5", *STORY
    ),
    scenario(
        "an offset", "SELECT DISTINCT B FROM S, T WHERE S.A + 1 <= T.B AND J <= I AND B IN (1, 2, 3)", *STORY
    ),
    scenario(
        "an offset towards what is still to come",
        "SELECT DISTINCT 1 FROM S, T WHERE T.B + 2 < S.A AND J < I",
        *STORY,
    ),
    scenario(
        "a band", "SELECT B FROM S, T WHERE A <= B + 1 AND A >= B - 1 AND J < I AND B IN (1, 2, 3)", *STORY
    ),
    scenario("differing values", f"SELECT DISTINCT 1 {CHAIN} AND A <> B AND A2 <> C2", *STORY),
    scenario(
        "differing values beside a requirement", f"SELECT DISTINCT 1 {CHAIN} AND A < B AND A2 <> B2", *STORY
    ),
    scenario(
        "differing values that are counted", f"SELECT A {CHAIN} AND A <> B AND B IN (1, 2) AND C = 2", *STORY
    ),
    scenario(
        "a stream with itself", "SELECT x.A, y.A FROM S x, S y WHERE x.I > y.I AND y.A IN (1, 2, 3)", *STORY
    ),
    scenario(
        "a stream with itself, looked into",
        "SELECT DISTINCT y.A2 FROM S x, S y WHERE x.I > y.I AND x.A > y.A AND y.A2 IN (0, 1, 2)",
        *STORY,
    ),
    scenario(
        "a stream three times", "SELECT COUNT(*) FROM S x, S y, S z WHERE x.I < y.I AND y.I <= z.I", *STORY
    ),
    scenario(
        "OR of two orders",
        "SELECT A, B FROM S, T WHERE (I < J OR J < I) AND A IN (1, 2) AND B IN (1, 2)",
        *STORY,
    ),
    scenario(
        "nothing can match, in one half of a UNION ALL",
        "SELECT A FROM S, T WHERE I < J AND J < I UNION ALL SELECT A FROM S, T WHERE J < I AND B = 2",
        *STORY,
    ),
]

FINITE = [
    scenario("a stream that ends", f"SELECT S.A, T.B FROM S, T WHERE A = B AND I < {NOON}", *STORY),
    scenario(
        "a stream that ends, the other before it",
        f"SELECT T.B2 FROM S, T WHERE A = B AND B IN (1, 2) AND J < I AND I <= {NOON}",
        *STORY,
    ),
    scenario("a single timestamp", f"SELECT A, B FROM S, T WHERE I = {NOON} AND B < A", *STORY),
    scenario(
        "streams that both end", f"SELECT A, B FROM S, T WHERE A > B AND I < {NOON} AND J <= {NOON}", *STORY
    ),
    scenario(
        "one ends before the other begins",
        f"SELECT A, B FROM S, T WHERE A >= B AND J < {NOON} AND I > TIMESTAMP '2024-01-01 00:00:08'",
        *STORY,
    ),
    scenario("an end in the middle of a chain", f"SELECT C {CHAIN} AND J < {NOON} AND C IN (1, 2)", *STORY),
    scenario("an excluded timestamp", f"SELECT A FROM S, T WHERE J < I AND B = 2 AND J <> {NOON}", *STORY),
    scenario("a late beginning", f"SELECT A FROM S, T WHERE J < I AND B = 2 AND J >= {NOON}", *STORY),
]

GROUPED = [
    scenario("COUNT", f"SELECT COUNT(*) {CHAIN}", *STORY),
    scenario("SUM and AVG of every stream", f"SELECT SUM(A), AVG(B), SUM(C2), COUNT(A2) {CHAIN}", *STORY),
    scenario("groups", f"SELECT B, COUNT(*), SUM(C), AVG(A) {CHAIN} AND B IN (1, 2) GROUP BY B", *STORY),
    scenario("MIN and MAX of the last", "SELECT MIN(A), MAX(A2) FROM S, T WHERE J < I AND A > B", *STORY),
    scenario("MIN of the first", f"SELECT MIN(C) {CHAIN}", *STORY),
    scenario("MAX in groups", f"SELECT B, MAX(A), MIN(A2) {CHAIN} AND B IN (1, 2) GROUP BY B", *STORY),
    scenario("MAX of a sum", "SELECT MAX(A + A2) FROM S, T WHERE J < I", *STORY),
    scenario("MEDIAN", f"SELECT MEDIAN(C) {CHAIN} AND C BETWEEN 0 AND 5", *STORY),
    scenario("AVG of a stream that ends", f"SELECT AVG(B) FROM S, T WHERE B >= A AND J < {NOON}", *STORY),
    scenario(
        "MEDIAN of a stream that ends", f"SELECT MEDIAN(B) FROM S, T WHERE B >= A AND J < {NOON}", *STORY
    ),
    scenario("AVG beside a join", "SELECT AVG(B2) FROM S, T, U WHERE A < C AND I < K", *STORY),
    scenario(
        "AVG in groups of a join beside it",
        "SELECT C2, AVG(B) FROM S, T, U WHERE A < C AND I <= K AND C2 IN (0, 1, 3, 5) GROUP BY C2",
        *STORY,
    ),
    scenario(
        "MEDIAN and AVG in groups on both sides, beside a MAX",
        "SELECT B2, C2, MEDIAN(B), AVG(B), MAX(B) FROM S, T, U WHERE A < C AND I <= K AND C2 IN (0, 1, 3, 5) "
        "AND B2 IN (1, 2) AND B IN (1, 2, 3) GROUP BY B2, C2",
        *STORY,
    ),
    scenario(
        "AVG beside a join by values alone, and one in time",
        "SELECT AVG(B) FROM S, T, U, V WHERE A < C AND I < L",
        *STORY,
    ),
    scenario(
        "AVG joined through a constant",
        "SELECT C2, AVG(C) FROM S, T, U WHERE C2 = 1 AND A <> C2 AND B > A AND I <= J GROUP BY C2",
        *STORY,
    ),
    scenario(
        "AVG joined through ranges that do not meet",
        "SELECT AVG(C), MEDIAN(C2) FROM S, T, U WHERE C2 < A AND C2 BETWEEN 0 AND 1 AND A >= 2 AND B > A "
        "AND I <= J",
        *STORY,
    ),
    scenario(
        "AVG joined through its group",
        "SELECT B, AVG(E), COUNT(DISTINCT B) FROM S, T, U, V WHERE B BETWEEN 1 AND 3 AND C <= B AND C < E2 "
        "AND K = L AND B2 < A AND I <= J GROUP BY B",
        *STORY,
    ),
    scenario(
        "AVG joined through one of some groups",
        "SELECT B, AVG(E) FROM S, T, U, V WHERE B IN (1, 3) AND C <= B AND C < E2 AND K = L AND B2 < A "
        "AND I <= J GROUP BY B",
        *STORY,
    ),
    scenario(
        "AVG and MEDIAN joined through two groups",
        "SELECT B, A2, AVG(C), MEDIAN(C2) FROM S, T, U WHERE B BETWEEN 1 AND 3 AND A2 BETWEEN 0 AND 2 "
        "AND C <= B AND C2 <> A2 AND C2 BETWEEN 0 AND 3 AND B2 < A AND I <= J GROUP BY B, A2",
        *STORY,
    ),
    scenario(
        "AVG of a join in time beside another",
        "SELECT AVG(B) FROM S, T, U, V WHERE A < C AND I <= K AND L < J AND E IN (1, 2) AND E = B",
        *STORY,
    ),
    scenario(
        "COUNT(DISTINCT)",
        f"SELECT COUNT(DISTINCT B), COUNT(DISTINCT C) {CHAIN} AND B IN (1, 2) AND C IN (1, 2, 3)",
        *STORY,
    ),
    scenario(
        "all at once",
        f"SELECT B, COUNT(*), COUNT(C2), SUM(C), AVG(C), MIN(C), MAX(C), MEDIAN(C), COUNT(DISTINCT C) "
        f"{CHAIN} AND B IN (1, 2) AND C BETWEEN 0 AND 5 GROUP BY B",
        *STORY,
    ),
    scenario("HAVING", f"SELECT B, COUNT(*) {CHAIN} AND B IN (1, 2) GROUP BY B HAVING COUNT(*) > 2", *STORY),
    scenario(
        "HAVING another aggregate",
        f"SELECT B, SUM(C) {CHAIN} AND B IN (1, 2, 3) GROUP BY B HAVING MIN(C) < 2 AND SUM(A) > 9",
        *STORY,
    ),
    scenario(
        "groups without aggregates",
        f"SELECT B, C {CHAIN} AND B IN (1, 2) AND C IN (1, 2) GROUP BY B, C",
        *STORY,
    ),
    scenario("an aggregate over a merged stream", "SELECT SUM(A), MAX(B) FROM S, T WHERE I = J", *STORY),
    scenario(
        "an aggregate over a stream that ends",
        f"SELECT T.B, COUNT(*), MAX(S.A) FROM S, T WHERE B IN (1, 2) AND I <= {NOON} GROUP BY T.B",
        *STORY,
    ),
    scenario(
        "AVG beside a stream that only must be there",
        "SELECT AVG(A), MEDIAN(B2) FROM S, T, V WHERE L < I AND B2 IN (0, 1, 2)",
        *STORY,
    ),
]

UNIONS = [
    scenario(
        "UNION ALL in time",
        "SELECT A FROM S, T WHERE J < I AND B = 2 UNION ALL SELECT B FROM S, T WHERE I < J AND A = 2",
        *STORY,
    ),
    scenario(
        "UNION in time",
        "SELECT A FROM S, T WHERE J < I AND B = 2 AND A IN (1, 2) UNION "
        "SELECT B FROM S, T WHERE I < J AND A = 2 AND B IN (2, 3)",
        *STORY,
    ),
    scenario(
        "UNION ALL with rows as they come",
        "SELECT A FROM S WHERE A2 > 1 UNION ALL SELECT A FROM S, T WHERE J < I AND B = 2",
        *STORY,
    ),
    scenario(
        "UNION with rows as they come",
        "SELECT A FROM S WHERE A IN (1, 2, 5) UNION SELECT B FROM S, T WHERE J < I AND B IN (1, 2, 3)",
        *STORY,
    ),
    scenario(
        "UNION with a join without time",
        "SELECT C FROM U, V WHERE C = E AND C IN (1, 2) UNION ALL "
        "SELECT B FROM S, T WHERE J < I AND B IN (1, 2, 3)",
        *STORY,
    ),
    scenario(
        "UNION ALL with an aggregate",
        "SELECT COUNT(*) FROM S, T WHERE J < I UNION ALL SELECT B FROM T, U WHERE K < J AND B = 1",
        *STORY,
    ),
]


@pytest.mark.parametrize("case", [*PAPER, *SHAPES, *FINITE, *UNIONS], ids=lambda s: s.title)
def test_the_answer_is_right_after_every_batch(case: TimedScenario) -> None:
    assert_timed_answers(case)


@pytest.mark.campaign
@pytest.mark.parametrize("case", GROUPED, ids=lambda s: s.title)
def test_aggregates_are_right_after_every_batch(case: TimedScenario) -> None:
    assert_timed_answers(case)


# --- relations ---------------------------------------------------------------------------------------

PAIRS = [(1, 10), (2, 20), (2, 20), (2, 21), (None, 9), (3, None)]
JOINED = [
    ("a join", "SELECT A2, Y FROM S, R WHERE A = X"),
    ("without duplicates", "SELECT DISTINCT A, Y FROM S, R WHERE A = X"),
    ("between two columns", "SELECT A, A2 FROM S, R WHERE A >= X AND A <= Y"),
    ("the relation alone in the result", "SELECT X, Y FROM S, R WHERE A < X"),
    ("nothing in common", "SELECT A, X FROM S, R"),
    ("two streams", "SELECT A, B2, Y FROM S, T, R WHERE A = X AND B = A AND B2 IN (0, 1, 2)"),
    ("two streams in order", "SELECT S.A2, Y FROM S, T, R WHERE J < I AND B = X AND A >= B"),
    ("the relation twice", "SELECT q.Y, r.Y FROM S, R q, R r WHERE A = q.X AND A + 1 = r.X"),
    ("in groups", "SELECT Y, COUNT(*), SUM(A2), MIN(A2) FROM S, R WHERE A = X GROUP BY Y"),
    ("differing from all", "SELECT DISTINCT A FROM S, R WHERE A <> X AND A IN (1, 2, 5)"),
    ("aggregates of the relation", "SELECT SUM(Y), COUNT(Y), MAX(X) FROM S, R WHERE A = X"),
    ("AVG of the relation", "SELECT AVG(X), MEDIAN(Y) FROM S, R WHERE A <= X"),
    ("AVG beside the relation", "SELECT AVG(B) FROM S, T, U, R WHERE A < C AND I < K"),
    ("AVG of the relation, beside a join", "SELECT AVG(Y) FROM S, T, U, R WHERE A < C AND I < K"),
]


@pytest.mark.campaign
@pytest.mark.parametrize("query", [q for _, q in JOINED], ids=[t for t, _ in JOINED])
@pytest.mark.parametrize("rows", [PAIRS, []], ids=["many", "none"])
def test_relations_are_joined(query: str, rows: list[tuple[int | None, int | None]]) -> None:
    story = [*(STORY if rows else STORY[:1]), [("S", None, 1, 30), ("T", None, None, 30), ("S", 2, None, 31)]]
    assert_timed_answers(TimedScenario("", f"{STREAMS} {query}", story, relations={"R": rows}))


# --- what is kept ------------------------------------------------------------------------------------


def test_nothing_is_kept_of_the_last_stream() -> None:
    run = TimedRun(f"{STREAMS} SELECT A FROM S, T WHERE J < I AND B = 2")
    run.add(*((("S", i, 0, i)) for i in range(50)))
    assert run.partial_matches == 0
    run.add(("T", 2, 0, 60), ("T", 2, 0, 61), ("T", 3, 0, 61))
    assert run.partial_matches == 1
    run.add(*((("S", i, 0, 62 + i)) for i in range(50)))
    assert run.partial_matches == 1 and run.answer().total() == 100


def test_partial_matches_expire_when_the_stream_they_wait_for_has_ended() -> None:
    run = TimedRun(f"{STREAMS} SELECT S.A, T.B FROM S, T WHERE A = B AND I < {NOON}")
    run.add(("T", 1, 0, 1), ("T", 2, 0, 2), ("S", 1, 0, 3))
    assert run.partial_matches == 3
    run.add(("T", 3, 0, 4), ("S", 3, 0, 4))
    assert run.partial_matches == 5, "S may go on"
    run.add(("T", 1, 0, 5))
    assert run.partial_matches == 2, "only rows of S are still asked for"
    run.add(*(("T", i, 0, 7 + i) for i in range(20)))
    assert run.partial_matches == 2
    assert run.answer() == {(1, 1): 3, (3, 3): 2}


def test_no_partial_match_is_kept_for_a_stream_that_has_ended() -> None:
    run = TimedRun(f"{STREAMS} SELECT B2 FROM S, T WHERE J < I AND I < {NOON} AND B2 IN (1, 2)")
    run.add(("T", 1, 1, 1), ("T", 1, 2, 2))
    assert run.partial_matches == 2
    run.add(("T", 1, 1, 9))
    assert run.partial_matches == 0


def test_fronts_stay_small() -> None:
    run = TimedRun(f"{STREAMS} SELECT DISTINCT 1 FROM S, T, U WHERE K < J AND C < B AND B < A")
    for i in range(1, 20):
        run.add(("U", 100 - i, 0, 3 * i), ("T", 90 - i % 7, 0, 3 * i + 1), ("S", 10 - i, 0, 3 * i + 2))
        assert run.executor.entries <= 12
    assert run.answer() == {}


def test_rows_with_equal_timestamps_are_not_before_each_other() -> None:
    """In a batch of their own, and in one with later timestamps."""
    run = TimedRun(f"{STREAMS} SELECT x.A, y.A FROM S x, S y WHERE x.I < y.I AND x.A IN (1, 2)")
    run.add(("S", 1, 0, 1), ("S", 2, 0, 1), ("S", 1, 0, 2))
    assert run.answer() == {(1, 1): 1, (2, 1): 1}


def test_timestamps_differ_by_microseconds() -> None:
    run = TimedRun(f"{STREAMS} SELECT A FROM S, T WHERE J < I AND B = 1")
    early = at(1).replace(microsecond=1)
    run.add(("T", 1, 0, early), ("S", 1, 0, early), ("S", 2, 0, early.replace(microsecond=2)))
    assert run.answer() == {(2,): 1}
