"""The executor without Spark: after every batch, what was emitted is the query's answer so far.

Random queries are compared with DuckDB, those written out by hand with the answer written beside them.
Groups and unions are in ``test_executor_groups``, types, limits and names in ``test_executor_values``.
"""

from __future__ import annotations

from datetime import date

import pytest

from tests.campaigns.exact_engine import KINDS, examine
from tests.support.scenario import TABLE_I, Run, Scenario, assert_answers

# How many seeds of a kind are looked at, and how many in one test.
SEEDS = {"plain": 30, "rich": 30, "keyed": 20, "aggregates": 20}
SHARE = 10


# --- random queries ----------------------------------------------------------------------------------


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("kind", "first"), [(kind, first) for kind in KINDS for first in range(0, SEEDS[kind], SHARE)]
)
def test_random_queries_agree_with_duckdb(kind: str, first: int) -> None:
    """``python -m tests.campaigns.exact_engine`` checks more of them."""
    outcomes = [examine(seed, kind) for seed in range(first, first + SHARE)]
    assert [outcome.problem for outcome in outcomes if outcome.problem] == []
    assert any(outcome.bounded for outcome in outcomes)


# --- paper 1, Table I ----------------------------------------------------------------------------------

Q3 = "A FROM S, T WHERE A = D AND A > 10 AND D < 20"
Q4 = "A FROM S, T WHERE B < D AND A = 10"
Q6 = "A FROM S, T WHERE B < D AND C < E AND B < E AND C < D AND A = 10"
Q7 = "A FROM S, T WHERE B < D AND D > 10 AND B < 20 AND A = 10"


PAPER = [
    Scenario(
        "Q3: as often as there are pairs",
        f"{TABLE_I} SELECT {Q3}",
        [
            [("S", 15, 0, 0), ("S", 10, 0, 0), ("S", 20, 0, 0), ("T", 20, 0), ("T", 10, 0)],
            [("T", 15, 1), ("T", 15, 2)],
            [("S", 15, 9, 9), ("S", 19, 0, 0), ("T", 19, 0)],
            [("S", None, 0, 0), ("T", None, 0), ("S", 2147483647, 0, 0)],
            [("S", 15, 0, 0), ("T", 15, 0)],
        ],
        [{}, {(15,): 2}, {(15,): 4, (19,): 1}, {(15,): 4, (19,): 1}, {(15,): 9, (19,): 1}],
    ),
    Scenario(
        "Q3 without duplicates",
        f"{TABLE_I} SELECT DISTINCT {Q3}",
        [
            [("S", 15, 0, 0), ("S", 12, 0, 0), ("T", 12, 0), ("T", 12, 1)],
            [("T", 15, 1), ("T", 15, 2)],
            [("S", 15, 9, 9)],
        ],
        [[(12,)], [(12,), (15,)], [(12,), (15,)]],
    ),
    Scenario(
        "Q4 without duplicates: the smallest B meets the largest D",
        f"{TABLE_I} SELECT DISTINCT {Q4}",
        [
            [("S", 10, 7, 0), ("S", 9, 0, 0)],
            [("T", 7, 0), ("T", None, 0)],
            [("S", 10, 8, 0), ("S", 10, None, 0)],
            [("S", 10, 6, 0)],
            [("T", 100, 0)],
        ],
        [[], [], [], [(10,)], [(10,)]],
    ),
    Scenario(
        "Q4 without duplicates at the ends of INT",
        f"{TABLE_I} SELECT DISTINCT {Q4}",
        [
            [("S", 10, 2147483647, 0), ("T", 2147483647, 0), ("T", -2147483648, 0)],
            [("S", 10, 2147483646, 0)],
        ],
        [[], [(10,)]],
    ),
    Scenario(
        "Q6 without duplicates: one row must lie below in all four",
        f"{TABLE_I} SELECT DISTINCT {Q6}",
        [
            [("S", 10, 1, 9), ("S", 10, 9, 1), ("T", 5, 20), ("T", 20, 5)],
            [("T", 9, 10), ("S", 10, 4, 5)],
            [("S", 11, 0, 0)],
            [("T", 6, 6)],
        ],
        [[], [(10,)], [(10,)], [(10,)]],
    ),
    Scenario(
        "Q7: counts by class",
        f"{TABLE_I} SELECT {Q7}",
        [
            [("S", 10, -500, 0), ("S", 10, 15, 0), ("S", 10, 20, 0)],
            [("T", 10, 0), ("T", 11, 0), ("T", 16, 0), ("T", 1000, 0)],
            [("S", 10, 19, 0), ("S", 10, 11, 0), ("S", 3, 0, 0)],
            [("T", 12, 0), ("T", 20, 0), ("T", None, 0)],
        ],
        # B in {-500, 15} and D in {11, 16, 1000}: 3 and 2 pairs; then 19 and 11 add 1 and 2; then 12 and 20
        [{}, {(10,): 5}, {(10,): 8}, {(10,): 14}],
    ),
    Scenario(
        "Q7 without duplicates",
        f"{TABLE_I} SELECT DISTINCT {Q7}",
        [[("S", 10, 19, 0), ("T", 11, 0)], [("S", 10, 11, 0)], [("T", 12, 0)], [("T", 40, 0)]],
        [[], [], [(10,)], [(10,)]],
    ),
]

# --- joins -------------------------------------------------------------------------------------------

JOINS = [
    Scenario(
        "<> asks for a row that differs",
        f"{TABLE_I} SELECT DISTINCT A FROM S, T WHERE B <> D AND A IN (1, 2)",
        [
            [("S", 1, 5, 0), ("S", 2, 5, 0), ("T", 5, 0)],
            [("T", 5, 1), ("S", 1, 5, 9), ("S", 1, None, 0), ("T", None, 0)],
            [("S", 2, 6, 0)],
            [("T", 7, 0)],
        ],
        [[], [], [(2,)], [(1,), (2,)]],
    ),
    Scenario(
        "two <> at once",
        f"{TABLE_I} SELECT DISTINCT 1 FROM S, T WHERE B <> D AND C <> E AND A = 1",
        [
            [("S", 1, 1, 1), ("S", 1, 1, 2), ("S", 1, 2, 1), ("T", 1, 1)],
            [("S", 1, 1, 3), ("S", 1, 3, 1)],
            [("S", 1, 2, 3)],
        ],
        [[], [], [(1,)]],
    ),
    Scenario(
        "<> and < together",
        f"{TABLE_I} SELECT DISTINCT A FROM S, T WHERE B < D AND C <> E AND A = 1",
        [
            [("S", 1, 0, 7), ("S", 1, 3, 8), ("T", 2, 7), ("T", 1, 9)],
            [("S", 1, 4, 9)],
            [("T", 4, 7)],
        ],
    ),
    Scenario(
        "a stream with itself, counted",
        f"{TABLE_I} SELECT x.A FROM S x, S y WHERE x.A = y.A AND x.A BETWEEN 1 AND 3",
        [[("S", 1, 0, 0), ("S", 2, 0, 0)], [("S", 1, 0, 0)], [("S", 4, 0, 0)], [("S", 1, 1, 1)]],
        [{(1,): 1, (2,): 1}, {(1,): 4, (2,): 1}, {(1,): 4, (2,): 1}, {(1,): 9, (2,): 1}],
    ),
    Scenario(
        "a stream with itself, looked into",
        f"{TABLE_I} SELECT DISTINCT x.A FROM S x, S y WHERE x.A = 10 AND y.A = 11 AND x.B < y.C",
        [[("S", 10, 5, 100), ("S", 11, 0, 5)], [("S", 11, 0, None)], [("S", 11, 9, 6)]],
        [[], [], [(10,)]],
    ),
    Scenario(
        "a stream three times",
        f"{TABLE_I} SELECT x.A FROM S x, S y, S z"
        " WHERE x.A = y.A AND y.A = z.A AND x.A IN (1, 2) AND z.B = 0",
        [[("S", 1, 0, 0), ("S", 1, 1, 0)], [("S", 1, 0, 0), ("S", 2, 1, 0)], [("S", 2, 0, 0)]],
        [{(1,): 4}, {(1,): 18}, {(1,): 18, (2,): 4}],
    ),
    Scenario(
        "OR across streams, no match counted twice",
        f"{TABLE_I} SELECT A, D FROM S, T WHERE A IN (1, 2) AND D IN (1, 2) AND (A = 1 OR D = 1 OR B = E)"
        " AND B BETWEEN 0 AND 3 AND E BETWEEN 0 AND 3",
        [
            [("S", 1, 0, 0), ("S", 2, 3, 0), ("T", 1, 3)],
            [("T", 2, 3), ("T", 2, 0), ("T", 2, None)],
            [("S", 2, None, 0), ("S", 1, None, 0), ("S", 2, 0, 0)],
        ],
        [
            {(1, 1): 1, (2, 1): 1},
            {(1, 1): 1, (2, 1): 1, (1, 2): 2, (2, 2): 1},
            {(1, 1): 1, (2, 1): 2, (1, 2): 2, (2, 2): 2},
        ],
    ),
    Scenario(
        "OR across streams with NULL on one side",
        f"{TABLE_I} SELECT A FROM S, T WHERE A = 1 AND (B = 5 OR D = 5)",
        [[("S", 1, None, 0), ("S", 1, 5, 0), ("T", None, 0)], [("T", 5, 0), ("S", None, 5, 0)]],
        [{(1,): 1}, {(1,): 3}],
    ),
    Scenario(
        "a join with nothing in common",
        f"{TABLE_I} SELECT A, E FROM S, T WHERE A IN (1, 2) AND E IN (3, 4)",
        [[("S", 1, 0, 0), ("S", 1, 0, 0)], [("T", 0, 3), ("T", 0, 4)], [("S", 2, 0, 0), ("T", 9, 3)]],
        [{}, {(1, 3): 2, (1, 4): 2}, {(1, 3): 4, (1, 4): 2, (2, 3): 2, (2, 4): 1}],
    ),
    Scenario(
        "a stream that says nothing for long",
        f"{TABLE_I} SELECT {Q7}",
        [[("S", 10, 5, 0)]] * 12 + [[]] * 3 + [[("T", 11, 0)]] + [[]] + [[("S", 10, 5, 0)]],
        [{}] * 15 + [{(10,): 12}] * 2 + [{(10,): 13}],
    ),
    Scenario(
        "nothing can match",
        f"{TABLE_I} SELECT A FROM S, T WHERE A > 5 AND A < 3",
        [[("S", 4, 0, 0), ("T", 4, 0)], []],
        [{}, {}],
    ),
    Scenario(
        "nothing can match, in one half of a UNION",
        f"{TABLE_I} SELECT A FROM S, T WHERE A = D AND A > 5 AND D < 3"
        " UNION SELECT D FROM S, T WHERE A = D AND D IN (1, 2)",
        [[("S", 4, 0, 0), ("T", 4, 0)], [("S", 1, 0, 0), ("T", 1, 0)]],
        [{}, [(1,)]],
    ),
    Scenario(
        "constants in the result",
        f"{TABLE_I} SELECT 'it''s', NULL, 1.5, DATE '2024-02-29', A, TRUE FROM S, T WHERE A = D AND A = 1",
        [[("S", 1, 0, 0), ("T", 1, 0), ("T", 1, 0)], [("S", 2, 0, 0)]],
        [{("it's", None, 1.5, date(2024, 2, 29), 1, True): 2}] * 2,
    ),
    Scenario(
        "only constants in the result",
        f"{TABLE_I} SELECT DISTINCT 'x', -1 FROM S, T WHERE B < D",
        [[("S", 1, 1, 0), ("T", 1, 0)], [("T", 2, 0)], [("T", 3, 0)]],
        [[], [("x", -1)], [("x", -1)]],
    ),
]

# --- NULL --------------------------------------------------------------------------------------------

NULLS_DDL = (
    "CREATE STREAMING TABLE H (hour INT CHECK (hour BETWEEN 0 AND 23), ok BOOLEAN, v INT);"
    "CREATE STREAMING TABLE G (hour INT CHECK (hour BETWEEN 0 AND 23), w INT);"
)
NULLS = [
    Scenario(
        "projected",
        f"{NULLS_DDL} SELECT DISTINCT H.hour, ok FROM H, G WHERE v < w",
        [
            [("H", None, None, 1), ("H", 3, None, 1), ("G", None, 1)],
            [("G", None, 2), ("H", None, True, 1)],
            [("H", None, False, None), ("H", 3, None, 0)],
        ],
        [[], [(None, None), (3, None), (None, True)], [(None, None), (3, None), (None, True)]],
    ),
    Scenario(
        "projected, with duplicates",
        f"{NULLS_DDL} SELECT H.hour, ok FROM H, G WHERE w = 1",
        [[("H", None, None, 1), ("H", None, None, 2), ("G", None, 1)], [("G", 0, 1), ("H", 0, None, 0)]],
        [{(None, None): 2}, {(None, None): 4, (0, None): 2}],
    ),
    Scenario(
        "grouped",
        f"{NULLS_DDL} SELECT hour, COUNT(*), COUNT(v), SUM(v), MIN(v), AVG(v) FROM H GROUP BY hour",
        [
            [("H", None, True, None), ("H", 0, True, None)],
            [("H", None, True, 5), ("H", None, True, None)],
            [("H", 0, True, -5), ("H", None, True, 6)],
        ],
        [
            [(None, 1, 0, None, None, None), (0, 1, 0, None, None, None)],
            [(None, 3, 1, 5, 5, 5.0), (0, 1, 0, None, None, None)],
            [(None, 4, 2, 11, 5, 5.5), (0, 2, 1, -5, -5, -5.0)],
        ],
    ),
    Scenario(
        "grouped by two",
        f"{NULLS_DDL} SELECT hour, ok, COUNT(*) FROM H GROUP BY hour, ok",
        [[("H", None, None, 0), ("H", None, True, 0)], [("H", 1, None, 0), ("H", None, None, 0)]],
        [[(None, None, 1), (None, True, 1)], [(None, None, 2), (None, True, 1), (1, None, 1)]],
    ),
    Scenario(
        "joined",
        f"{NULLS_DDL} SELECT H.hour FROM H, G WHERE H.hour = G.hour",
        [[("H", None, None, 1), ("G", None, 1)], [("H", 0, None, 0), ("G", 0, None)]],
        [{}, {(0,): 1}],
    ),
    Scenario(
        "asked for",
        f"{NULLS_DDL} SELECT DISTINCT ok FROM H, G WHERE H.hour IS NULL AND w IS NOT NULL AND v IS NULL",
        [[("H", None, True, None), ("G", 1, None)], [("G", 1, 0)], [("H", None, None, None)]],
        [[], [(True,)], [(True,), (None,)]],
    ),
]


@pytest.mark.parametrize("scenario", [*PAPER, *JOINS, *NULLS], ids=lambda s: s.title)
def test_the_answer_is_right_after_every_batch(scenario: Scenario) -> None:
    assert_answers(scenario)


def test_only_new_rows_are_emitted() -> None:
    run = Run(f"{TABLE_I} SELECT {Q3}")
    assert [(r["o0"], r["_weight"]) for r in run.add(("S", 15, 0, 0), ("T", 15, 0))] == [(15, 1)]
    assert run.add() == []
    assert run.add(("S", 12, 0, 0)) == []
    assert [(r["o0"], r["_weight"]) for r in run.add(("S", 15, 0, 0), ("T", 15, 0))] == [(15, 3)]
    assert not run.program.retracts and not run.program.aggregate
