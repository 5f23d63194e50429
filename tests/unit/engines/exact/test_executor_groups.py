"""The executor without Spark: groups, unions, revisions and retractions."""

from __future__ import annotations

import pytest

from millpond import check
from millpond.analysis.verdict import Verdict
from millpond.engines.exact.chunks import ChunkPolicy
from tests.support.local import Local
from tests.support.scenario import TABLE_I, Line, Run, Scenario, assert_answers

Q7 = "A FROM S, T WHERE B < D AND D > 10 AND B < 20 AND A = 10"
COUNTED = f"{TABLE_I} SELECT A, COUNT(*) FROM S WHERE A IN (1, 2) AND B BETWEEN -9 AND 9 GROUP BY A"

# --- groups ------------------------------------------------------------------------------------------


def every(x: str) -> str:
    """Every aggregate of a column."""
    return f"COUNT(*), COUNT({x}), COUNT(DISTINCT {x}), SUM({x}), AVG({x}), MIN({x}), MAX({x}), MEDIAN({x})"


GROUPS = [
    Scenario(
        "every aggregate of a join, from no rows on",
        f"{TABLE_I} SELECT {every('E')} FROM S, T WHERE A = D AND A BETWEEN 1 AND 3 AND E BETWEEN -9 AND 9",
        [
            [],
            [("S", 1, 0, 0), ("S", 1, 0, 0), ("T", 2, 5)],
            [("T", 1, 4), ("T", 1, -9)],
            [("S", 2, 0, 0), ("T", 1, 4), ("T", 1, None), ("T", 1, 10)],
        ],
        [
            [(0, 0, 0, None, None, None, None, None)],
            [(0, 0, 0, None, None, None, None, None)],
            [(4, 4, 2, -10, -2.5, -9, 4, -2.5)],
            [(7, 7, 3, 3, 3 / 7, -9, 5, 4)],
        ],
    ),
    Scenario(
        "every aggregate of a join, by group",
        f"{TABLE_I} SELECT A, {every('E')} FROM S, T WHERE A = D AND A BETWEEN 1 AND 3"
        " AND (E BETWEEN -9 AND 9 OR E IS NULL) GROUP BY A",
        [
            [("S", 1, 0, 0), ("S", 1, 0, 0), ("T", 2, 5)],
            [("T", 1, 4), ("T", 1, -9), ("S", 3, 0, 0), ("T", 3, None)],
            [("S", 2, 0, 0), ("T", 1, 4), ("T", 1, None), ("T", 1, 10)],
            [("T", 3, 0)],
        ],
        [
            [],
            [(1, 4, 4, 2, -10, -2.5, -9, 4, -2.5), (3, 1, 0, 0, None, None, None, None, None)],
            [
                (1, 8, 6, 2, -2, -1 / 3, -9, 4, 4),
                (2, 1, 1, 1, 5, 5, 5, 5, 5),
                (3, 1, 0, 0, None, None, None, None, None),
            ],
            [
                (1, 8, 6, 2, -2, -1 / 3, -9, 4, 4),
                (2, 1, 1, 1, 5, 5, 5, 5, 5),
                (3, 2, 1, 1, 0, 0, 0, 0, 0),
            ],
        ],
    ),
    Scenario(
        "sums of both sides of a join, of an expression, and in an expression",
        f"{TABLE_I} SELECT A, SUM(B), SUM(E), SUM(B * 2 - C), SUM(E) - MAX(B) * 2 FROM S, T"
        " WHERE A = D AND A IN (1, 2) AND B BETWEEN 0 AND 9 GROUP BY A",
        [
            [("S", 1, 3, 1), ("T", 1, 1000000)],
            [("S", 1, 4, None), ("T", 1, -7), ("T", 2, 1)],
            [("S", 2, 9, 18), ("S", 2, 0, None)],
        ],
    ),
    Scenario(
        "every aggregate of the column that is joined",
        f"{TABLE_I} SELECT {every('A')} FROM S, T WHERE A = D AND A BETWEEN 1 AND 3",
        [[("S", 1, 0, 0), ("T", 1, 0)], [("S", 3, 0, 0), ("T", 3, 0), ("T", 3, 0)]],
        [[(1, 1, 1, 1, 1, 1, 1, 1)], [(3, 3, 2, 7, 7 / 3, 1, 3, 3)]],
    ),
    Scenario(
        "every aggregate of what is grouped by",
        f"{TABLE_I} SELECT A, {every('A')} FROM S, T WHERE A = D AND A BETWEEN 1 AND 3 GROUP BY A",
        [[("S", 1, 0, 0), ("T", 1, 0)], [("S", 3, 0, 0), ("T", 3, 0), ("T", 3, 0)]],
        [[(1, 1, 1, 1, 1, 1, 1, 1, 1)], [(1, 1, 1, 1, 1, 1, 1, 1, 1), (3, 2, 2, 1, 6, 3, 3, 3, 3)]],
    ),
    Scenario(
        "the same column counted and added up",
        f"{TABLE_I} SELECT COUNT(B), SUM(B), AVG(B), COUNT(*) FROM S WHERE A = 1",
        [[("S", 1, None, 0)], [("S", 1, 7, 0), ("S", 2, 9, 0)], [("S", 1, 8, 0)]],
        [[(0, None, None, 1)], [(1, 7, 7, 2)], [(2, 15, 7.5, 3)]],
    ),
    Scenario(
        "MIN and MAX over an inequality join",
        f"{TABLE_I} SELECT MIN(A), MAX(A) FROM S, T WHERE B < D AND D > 10 AND B < 20 AND A BETWEEN -5 AND 5",
        [
            [("S", 5, 30, 0), ("S", -1, 15, 0)],
            [("T", 15, 0), ("T", 3, 0)],
            [("T", 16, 0)],
            [("S", 2, -7, 0), ("S", -5, 19, 0)],
            [("T", 99, 0)],
        ],
    ),
    Scenario(
        "AVG and MEDIAN do not count the streams beside",
        f"{TABLE_I} SELECT AVG(A), MEDIAN(A) FROM S, T WHERE A BETWEEN 0 AND 9 AND E = 1",
        [[("S", 2, 0, 0), ("S", 9, 0, 0)], [("T", 0, 1)], [("S", 9, 0, 0), ("T", 1, 1), ("T", 2, 2)]],
        [[(None, None)], [(5.5, 5.5)], [(20 / 3, 9)]],
    ),
    Scenario(
        "AVG and MEDIAN ask only whether the streams beside match",
        f"{TABLE_I} CREATE STREAMING TABLE U (F INT);"
        " SELECT AVG(A), MEDIAN(A) FROM S, T, U WHERE A BETWEEN 0 AND 9 AND E < F",
        [
            [("S", 2, 0, 0), ("S", 2, 0, 0), ("S", 8, 0, 0), ("T", 0, 1), ("U", 1)],
            [("T", 0, 0)],
            [("T", 0, -3), ("U", 2), ("U", 3)],
        ],
        [[(None, None)], [(4, 2)], [(4, 2)]],
    ),
    Scenario(
        "groups alone",
        f"{TABLE_I} SELECT A, D FROM S, T WHERE A IN (1, 2) AND D IN (3, 4) AND B < E GROUP BY A, D",
        [
            [("S", 1, 5, 0), ("T", 3, 5)],
            [("T", 3, 6), ("S", 1, 0, 0)],
            [("T", 4, 1), ("S", 2, 6, 0)],
        ],
        [[], [(1, 3)], [(1, 3), (1, 4)]],
    ),
    Scenario(
        "expressions over groups and aggregates",
        f"{TABLE_I} SELECT A, A + 1, COUNT(*) * 10 + A FROM S WHERE A IN (1, 2) GROUP BY A",
        [[("S", 1, 0, 0)], [("S", 1, 0, 0), ("S", 2, 0, 0)]],
        [[(1, 2, 11)], [(1, 2, 21), (2, 3, 12)]],
    ),
    Scenario(
        "nothing can match, and still there is an answer",
        f"{TABLE_I} SELECT COUNT(*), SUM(B), MAX(B) FROM S, T WHERE A > 5 AND A < 3",
        [[], [("S", 4, 0, 0), ("T", 4, 0)]],
        [[(0, None, None)]] * 2,
    ),
    Scenario(
        "nothing can match, by group",
        f"{TABLE_I} SELECT A, COUNT(*) FROM S, T WHERE A > 5 AND A < 3 GROUP BY A",
        [[("S", 4, 0, 0), ("T", 4, 0)]],
        [[]],
    ),
    Scenario(
        "HAVING of a single group",
        f"{TABLE_I} SELECT SUM(B) FROM S WHERE A = 1 HAVING SUM(B) > 5",
        [[("S", 1, 5, 0)], [("S", 1, 5, 0)], [("S", 1, -9, 0)], [("S", 1, 100, 0)]],
        [[], [(10,)], [], [(101,)]],
    ),
    Scenario(
        "HAVING of no rows",
        f"{TABLE_I} SELECT COUNT(*) FROM S WHERE A = 1 HAVING COUNT(*) < 2",
        [[], [("S", 1, 0, 0)], [("S", 1, 0, 0)], [("S", 1, 0, 0)]],
        [[(0,)], [(1,)], [], []],
    ),
    Scenario(
        "HAVING on what is grouped by",
        f"{TABLE_I} SELECT A, COUNT(*) FROM S WHERE A BETWEEN 1 AND 9 GROUP BY A"
        " HAVING A > 7 OR COUNT(*) > 1",
        [[("S", 1, 0, 0), ("S", 8, 0, 0)], [("S", 1, 0, 0), ("S", 2, 0, 0)]],
        [[(8, 1)], [(8, 1), (1, 2)]],
    ),
]

# --- unions ------------------------------------------------------------------------------------------

UNIONS = [
    Scenario(
        "UNION ALL adds up",
        f"{TABLE_I} SELECT {Q7} UNION ALL SELECT {Q7} UNION ALL SELECT A FROM S WHERE A < 11",
        [[("S", 10, 15, 0)], [("T", 16, 0)], [("S", 9, 0, 0), ("T", 17, 0)]],
        [{(10,): 1}, {(10,): 3}, {(10,): 5, (9,): 1}],
    ),
    Scenario(
        "UNION keeps one of each, from either side",
        f"{TABLE_I} SELECT {Q7} UNION SELECT E FROM S, T WHERE E IN (10, 11) AND B = 15",
        [[("S", 10, 15, 0)], [("T", 0, 10)], [("T", 0, 11), ("T", 16, 0)]],
        [[], [(10,)], [(10,), (11,)]],
    ),
    Scenario(
        "UNION inside UNION ALL",
        f"{TABLE_I} (SELECT A FROM S, T WHERE A = 1 UNION SELECT D FROM S, T WHERE D = 1)"
        " UNION ALL SELECT A FROM S, T WHERE A = 1",
        [[("S", 1, 0, 0), ("S", 1, 0, 0)], [("T", 1, 0)], [("T", 5, 0)]],
        [{}, {(1,): 3}, {(1,): 5}],
    ),
    Scenario(
        "UNION ALL of aggregates",
        f"{TABLE_I} SELECT COUNT(*), 1 FROM S WHERE A = 1 UNION ALL SELECT SUM(B), 2 FROM S WHERE A = 1",
        [[], [("S", 1, 1, 0)], [("S", 1, 1, 0), ("S", 1, None, 0)]],
        [[(0, 1), (None, 2)], [(1, 1), (1, 2)], [(3, 1), (2, 2)]],
    ),
    Scenario(
        "UNION ALL of aggregates that come to the same row",
        f"{TABLE_I} SELECT COUNT(*) FROM S WHERE A = 1 UNION ALL SELECT COUNT(*) FROM S WHERE A = 2",
        [[], [("S", 1, 0, 0)], [("S", 2, 0, 0)], [("S", 2, 0, 0)]],
        [{(0,): 2}, {(0,): 1, (1,): 1}, {(1,): 2}, {(1,): 1, (2,): 1}],
    ),
    Scenario(
        "UNION ALL of groups that come to the same row",
        f"{TABLE_I} SELECT COUNT(*) FROM S WHERE A IN (1, 2) GROUP BY A"
        " UNION ALL SELECT D FROM T WHERE D = 9",
        [[("S", 1, 0, 0)], [("S", 2, 0, 0), ("T", 9, 0)], [("S", 1, 0, 0)], [("S", 2, 0, 0)]],
        [{(1,): 1}, {(1,): 2, (9,): 1}, {(1,): 1, (2,): 1, (9,): 1}, {(2,): 2, (9,): 1}],
    ),
    Scenario(
        "UNION of aggregates",
        f"{TABLE_I} SELECT COUNT(*) FROM S WHERE A = 1 UNION SELECT COUNT(*) FROM S WHERE A = 2",
        [[], [("S", 1, 0, 0)], [("S", 2, 0, 0)], [("S", 2, 0, 0)]],
        [[(0,)], [(0,), (1,)], [(1,)], [(1,), (2,)]],
    ),
    Scenario(
        "UNION ALL of rows and groups",
        f"{TABLE_I} SELECT {Q7} UNION ALL SELECT COUNT(*) FROM T WHERE D > 10",
        [[("S", 10, 15, 0), ("S", 10, 15, 0)], [("T", 16, 0)], [("T", 99, 0), ("T", 11, 0)]],
        [{(0,): 1}, {(10,): 2, (1,): 1}, {(10,): 4, (3,): 1}],
    ),
    Scenario(
        "UNION ALL of groups with HAVING and of a set",
        f"{TABLE_I} SELECT A, SUM(B) FROM S WHERE A IN (1, 2) GROUP BY A HAVING SUM(B) > 3"
        " UNION ALL (SELECT A, D FROM S, T WHERE A IN (1, 2) AND D IN (4, 5)"
        " UNION SELECT D, A FROM S, T WHERE A IN (1, 2) AND D IN (4, 5))",
        [
            [("S", 1, 4, 0), ("T", 4, 0)],
            [("S", 1, 1, 0), ("S", 2, 1, 0)],
            [("S", 1, -9, 0), ("T", 5, 0)],
        ],
    ),
]


@pytest.mark.campaign
@pytest.mark.parametrize("scenario", [*GROUPS, *UNIONS], ids=lambda s: s.title)
def test_groups_and_unions_are_right_after_every_batch(scenario: Scenario) -> None:
    assert_answers(scenario)


# --- revisions and retractions -------------------------------------------------------------------------


def test_the_answer_on_no_rows_is_emitted_once() -> None:
    run = Run(f"{TABLE_I} SELECT COUNT(*), SUM(B) FROM S, T WHERE A = D AND A = 1")
    [row] = run.add()
    assert (row["o0"], row["o1"], row["_revision"]) == (0, None, 1)
    assert run.add(("S", 1, 5, 0)) == []
    assert run.add() == []
    [row] = run.add(("T", 1, 0))
    assert (row["o0"], row["o1"]) == (1, 5) and row["_revision"] > 1


def test_a_group_is_emitted_when_it_changes_with_a_growing_revision() -> None:
    run = Run(f"{TABLE_I} SELECT A, COUNT(*) FROM S WHERE A IN (1, 2) GROUP BY A")
    assert run.program.aggregate and not run.program.retracts
    seen: dict[int, list[int]] = {}
    for batch in ([1], [1, 2], [], [2], [1, 1]):
        emitted = run.add(*(("S", a, 0, 0) for a in batch))
        assert sorted(row["o0"] for row in emitted) == sorted(set(batch))
        assert not any(row["_retracted"] for row in emitted)
        for row in emitted:
            seen.setdefault(row["o0"], []).append(row["_revision"])
    assert all(revisions == sorted(set(revisions)) for revisions in seen.values())


def test_a_group_that_no_longer_passes_having_is_retracted() -> None:
    run = Run(f"{TABLE_I} SELECT A, SUM(B) FROM S WHERE A IN (1, 2) GROUP BY A HAVING SUM(B) > 5")
    assert run.program.retracts

    def emitted(*lines: Line) -> list[tuple[int, int, bool]]:
        return [(row["o0"], row["o1"], row["_retracted"]) for row in run.add(*lines)]

    assert emitted(("S", 1, 5, 0)) == []
    assert emitted(("S", 1, 1, 0)) == [(1, 6, False)]
    assert emitted(("S", 1, 1, 0), ("S", 2, 3, 0)) == [(1, 7, False)]
    assert emitted(("S", 1, -5, 0)) == [(1, 7, True)]
    assert emitted(("S", 1, -5, 0)) == []
    assert emitted(("S", 1, 9, 0), ("S", 2, 3, 0)) == [(1, 6, False), (2, 6, False)]


@pytest.mark.parametrize(
    "having",
    [
        "COUNT(*) > 1",
        "COUNT(DISTINCT B) >= 2",
        "MAX(B) > 3",
        "MIN(B) <= 0",
        "A = 1",
        "COUNT(*) > 1 AND MAX(B) > 3",
    ],
)
def test_nothing_is_retracted_if_having_is_monotone(having: str) -> None:
    run = Run(f"{COUNTED} HAVING {having}")
    assert not run.program.retracts
    for a, b in [(1, 1), (2, 5), (1, 4), (1, -1), (2, 0), (2, -3), (1, 9)]:
        assert not any(row["_retracted"] for row in run.add(("S", a, b, 0)))
        assert run.answer() == run.truth()


@pytest.mark.parametrize(
    "having", ["COUNT(*) < 3", "SUM(B) > 1", "AVG(B) > 1", "MAX(B) < 3", "MIN(B) > 0", "COUNT(*) <> 2"]
)
def test_having_that_is_not_monotone_retracts(having: str) -> None:
    run = Run(f"{COUNTED} HAVING {having}")
    assert run.program.retracts
    retracted = 0
    for a, b in [(1, 2), (2, 2), (1, 2), (1, -9), (2, 5), (2, -9), (1, 9)]:
        retracted += sum(row["_retracted"] for row in run.add(("S", a, b, 0)))
        assert run.answer() == run.truth()
    assert retracted


def test_rows_and_retractions_add_up_to_the_answer() -> None:
    sql = f"{TABLE_I} SELECT COUNT(*) FROM S WHERE A = 1 UNION ALL SELECT MAX(B) FROM S WHERE A = 1"
    run = Run(sql, types=["BIGINT"])
    assert run.program.retracts and run.program.aggregate

    def emitted(*lines: Line) -> list[tuple[int | None, bool]]:
        rows = [(row["o0"], row["_retracted"]) for row in run.add(*lines)]
        return sorted(rows, key=repr)

    assert emitted() == [(0, False), (None, False)]
    assert emitted(("S", 1, 7, 0)) == [(0, True), (1, False), (7, False), (None, True)]
    assert emitted(("S", 1, 3, 0)) == [(1, True), (2, False)]
    assert emitted() == []


# --- synopses in chunks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "batches", "answer"),
    [
        (
            "SELECT S.A, S.B, AVG(T.E) FROM S, T WHERE S.A = T.D AND S.A BETWEEN 3 AND 13"
            " AND S.B BETWEEN -99 AND 99 AND S.B < T.E GROUP BY S.A, S.B",
            [[("S", {"A": 7, "B": -1, "C": 0})], [("T", {"D": 7, "E": 1}), ("T", {"D": 7, "E": 2})]],
            {(7, -1, 1.5): 1},
        ),
        (
            "SELECT DISTINCT S.A, T.E FROM S, T WHERE S.A BETWEEN 0 AND 99 AND T.E BETWEEN 0 AND 9"
            " AND ((S.A = T.D AND S.A > 10) OR (S.A = T.E AND S.A > 5))",
            [
                [("S", {"A": 20, "B": 0, "C": 0}), ("S", {"A": 8, "B": 0, "C": 0})],
                [("T", {"D": 20, "E": 8}), ("T", {"D": 8, "E": 8})],
            ],
            {(20, 8): 1, (8, 8): 1},
        ),
    ],
    ids=["streams that are only looked for", "parts with ranges of their own"],
)
def test_all_slots_of_an_answer_are_divided_by_the_same_column(
    sql: str, batches: list[list[tuple[str, dict[str, int]]]], answer: dict[tuple[float, ...], int]
) -> None:
    verdict = check(f"{TABLE_I} {sql}")
    assert isinstance(verdict, Verdict) and verdict.plan is not None
    local = Local(verdict.plan, ChunkPolicy(min_entries=0, values_per_chunk=2))
    for batch in batches:
        local.add(batch)
    assert local.answer() == answer
