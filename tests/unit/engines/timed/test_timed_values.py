"""The executor for queries in time on values of all types, NULL, the ends of types and large numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from tests.support.scenario import Line
from tests.support.timed_scenario import TimedRun, TimedScenario, assert_timed_answers, at

TYPES: dict[str, Sequence[Any]] = {
    "BIGINT": [-(2**63), -1, 0, 2**53 + 1, 2**53, 2**63 - 2, 2**63 - 1],
    "SMALLINT": [-32768, -1, 0, 3, 32767],
    "TINYINT": [-128, 0, 1, 127],
    "DATE": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
    "DECIMAL(10,2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("0.01"), Decimal("99999999.99")],
    "STRING": ["", "a", "a b", "b", "Z", "é", "\U0001f600"],
    "DOUBLE": [-1e300, -0.5, 0.0, 0.1, 0.30000000000000004, 1e300],
    "BOOLEAN": [False, True],
}


def declared(kind: str) -> str:
    return (
        f"CREATE STREAMING TABLE S (A {kind}, Z INT, I TIMESTAMP);"
        f"CREATE STREAMING TABLE T (B {kind}, Y INT, J TIMESTAMP);"
        f"CREATE TABLE R (X {kind}, W {kind});"
    )


def batches(values: Sequence[Any]) -> list[list[Line]]:
    """Every value, NULL included, comes before every other, in both streams."""
    every = [*values, None]
    first: list[Line] = [("T", v, i % 3, i + 1) for i, v in enumerate(every)]
    second: list[Line] = [("S", v, i % 2, 20 + i) for i, v in enumerate(every)]
    third: list[Line] = [(name, v, 1, 40 + i) for i, v in enumerate(reversed(every)) for name in "TS"]
    half = len(first) // 2
    return [first[:half], [*first[half:], *second], third]


QUERIES = [
    ("compared", "SELECT DISTINCT Y FROM S, T WHERE J < I AND B < A AND Y IN (0, 1, 2)"),
    ("not above", "SELECT DISTINCT Y FROM S, T WHERE J <= I AND A <= B AND Y IN (0, 1, 2)"),
    ("different", "SELECT DISTINCT Y FROM S, T WHERE J < I AND A <> B AND Y IN (0, 1)"),
    ("merged", "SELECT A, B FROM S, T WHERE I = J AND A = B"),
    ("of the last stream", "SELECT A, Y FROM S, T WHERE J < I AND Y = 1"),
    ("MIN and MAX", "SELECT Y, MIN(A), MAX(B) FROM S, T WHERE J < I AND Y IN (0, 1) GROUP BY Y"),
]
FROM_RELATIONS = [
    ("equal", "SELECT DISTINCT A, W FROM S, R WHERE A = X"),
    (
        "equal, joined and in order",
        "SELECT A, Y FROM S, T, R WHERE J < I AND A = B AND B = X AND Y IN (0, 1)",
    ),
    ("between", "SELECT Z, X FROM S, R WHERE A >= X AND A <= W"),
    ("grouped", "SELECT X, COUNT(*), MAX(W) FROM S, R WHERE A = X GROUP BY X"),
]


@pytest.mark.campaign
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("query", [q for _, q in QUERIES], ids=[t for t, _ in QUERIES])
def test_values_of_every_type(kind: str, query: str) -> None:
    assert_timed_answers(TimedScenario(kind, f"{declared(kind)} {query}", batches(TYPES[kind])))


@pytest.mark.campaign
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("query", [q for _, q in FROM_RELATIONS], ids=[t for t, _ in FROM_RELATIONS])
def test_values_of_every_type_in_relations(kind: str, query: str) -> None:
    values = TYPES[kind]
    rows = [(values[0], values[-1]), (values[1], values[1]), (None, values[0]), (values[1], None)]
    rows.append(rows[1])
    assert_timed_answers(
        TimedScenario(kind, f"{declared(kind)} {query}", batches(values), relations={"R": rows})
    )


STREAMS = declared("INT")
LARGE = [
    TimedScenario(
        "sums of the largest BIGINTs",
        f"{declared('BIGINT')} SELECT SUM(B), COUNT(*), MIN(B) FROM S, T WHERE J < I",
        [
            [("T", 2**63 - 1, 0, 1), ("T", 2**63 - 1, 0, 2), ("T", None, 0, 2)],
            [("S", 0, 0, 3), ("S", 1, 0, 4), ("T", -(2**63), 0, 4), ("S", None, 0, 5)],
        ],
    ),
    TimedScenario(
        "sums of DECIMALs",
        f"{declared('DECIMAL(10,2)')} SELECT SUM(B), AVG(B), MAX(A) FROM S, T WHERE J < I",
        [
            [("T", Decimal("0.10"), 0, 1), ("T", Decimal("99999999.99"), 0, 2), ("T", None, 0, 2)],
            [("S", Decimal("0.20"), 0, 3), ("S", Decimal("-7.00"), 0, 4)],
        ],
    ),
    TimedScenario(
        "expressions in the result",
        f"{STREAMS} SELECT A + Z, B * 2, -Y, 'x' FROM S, T WHERE J < I AND B IN (1, 2) AND Y IN (0, 1)",
        [[("T", 1, 0, 1), ("T", 2, 1, 2), ("T", 3, 1, 2)], [("S", 5, 6, 3), ("S", None, 1, 4)]],
    ),
    TimedScenario(
        "NULL in what is kept and in what is shown",
        f"{STREAMS} SELECT Y, COUNT(*), COUNT(B), SUM(B), COUNT(A) FROM S, T "
        "WHERE J < I AND (Y IN (0, 1) OR Y IS NULL) GROUP BY Y",
        [
            [("T", None, None, 1), ("T", 4, None, 1), ("T", 5, 0, 2)],
            [("S", None, None, 3), ("T", None, 1, 3)],
            [("S", 1, 1, 4), ("S", None, 1, 4)],
        ],
    ),
    TimedScenario(
        "NULL drops out of comparisons",
        f"{STREAMS} SELECT DISTINCT Y FROM S, T WHERE J < I AND B < A AND Y IN (0, 1)",
        [[("T", None, 0, 1), ("T", 3, 1, 1)], [("S", None, 0, 2), ("S", 3, 0, 2)], [("S", 4, 0, 3)]],
        [[], [], [(1,)]],
    ),
    TimedScenario(
        "CHECKs say what is bounded",
        "CREATE STREAMING TABLE S (A INT CHECK (A BETWEEN 0 AND 3), Z INT, I TIMESTAMP);"
        "CREATE STREAMING TABLE T (B INT CHECK (B BETWEEN 0 AND 3), Y INT, J TIMESTAMP);"
        "SELECT A, B FROM S, T WHERE J < I AND A = B",
        [[("T", 1, 0, 1), ("T", None, 0, 1)], [("S", 1, 0, 2), ("S", None, 0, 2)], [("S", 3, 0, 3)]],
        [{}, {(1, 1): 1}, {(1, 1): 1}],
    ),
    TimedScenario(
        "timestamps before 1970",
        f"{STREAMS} SELECT A FROM S, T WHERE J < I AND B = 1",
        [[("T", 1, 0, at(-(10**10))), ("S", 7, 0, at(-(10**10)))], [("S", 8, 0, at(1 - 10**10))]],
        [{}, {(8,): 1}],
    ),
    TimedScenario(
        "names that must be quoted",
        "CREATE STREAMING TABLE S (`a b` INT, `order` TIMESTAMP);"
        "CREATE STREAMING TABLE T (`group` INT, `J'` TIMESTAMP);"
        "SELECT `a b` FROM S, T WHERE `J'` < `order` AND `group` = 1",
        [[("T", 1, 1), ("S", 5, 1)], [("S", 6, 2)]],
        [{}, {(6,): 1}],
    ),
]


@pytest.mark.parametrize("case", LARGE, ids=lambda s: s.title)
def test_the_answer_is_right_after_every_batch(case: TimedScenario) -> None:
    assert_timed_answers(case)


def test_distances_at_the_ends_of_bigint() -> None:
    run = TimedRun(
        f"{declared('BIGINT')} SELECT DISTINCT Y FROM S, T WHERE A + 1 <= B AND J < I AND Y IN (0, 1)"
    )
    run.add(("T", 2**63 - 1, 0, 1), ("T", -(2**63), 1, 1))
    run.add(("S", 2**63 - 1, 0, 2))
    assert run.answer() == {}
    run.add(("S", 2**63 - 2, 0, 3))
    assert run.answer() == {(0,): 1}
    run.add(("S", -(2**63), 0, 4))
    assert run.answer() == {(0,): 1}


@pytest.mark.campaign
def test_streams_without_application_time() -> None:
    """Their rows precede all rows that are released later."""
    sql = (
        "CREATE STREAMING TABLE P (G INT, N STRING); CREATE STREAMING TABLE S (A INT, I TIMESTAMP);"
        "CREATE STREAMING TABLE T (B INT, J TIMESTAMP);"
        "SELECT B, N FROM S, T, P WHERE J < I AND B = G AND G IN (1, 2) AND N IN ('x', 'y')"
    )
    story: list[list[Line]] = [
        [("P", 1, "x"), ("T", 1, 1)],
        [("S", 5, 2), ("P", 2, "y")],
        [("P", 1, "y"), ("P", 1, None)],
        [("T", 2, 3), ("S", 0, 4), ("P", 2, "x")],
        [("P", 2, "y"), ("P", None, "x")],
    ]
    assert_timed_answers(TimedScenario("", sql, story))


def test_counts_may_exceed_64_bits() -> None:
    """2,000 rows of each of six streams, one after the other: 2,000^6 matches, about 6.4e19."""
    names = "STUVWX"
    ddl = "".join(f"CREATE STREAMING TABLE {n} (A INT, I TIMESTAMP);" for n in names)
    order = " AND ".join(f"{a}.I < {b}.I" for a, b in pairwise(names))
    run = TimedRun(f"{ddl} SELECT COUNT(*), SUM(S.A) FROM {', '.join(names)} WHERE {order}")
    for time, name in enumerate(names):
        run.add(*[(name, 3, time)] * 2_000)
    assert run.answer() == {(2_000**6, 3 * 2_000**6): 1}
    assert 2_000**6 > 2**64


def test_many_duplicates_of_one_row() -> None:
    sql = f"{STREAMS} SELECT A FROM S, T WHERE J < I AND B = 1"
    run = TimedRun(sql)
    run.add(*[("T", 1, 0, 1)] * 3_000)
    run.add(*[("S", 9, 0, 2)] * 3_000)
    assert run.answer() == {(9,): 9_000_000}
    assert run.partial_matches == 1


@pytest.mark.parametrize(
    ("kind", "select", "condition", "row", "partner"),
    [
        ("DOUBLE", "DISTINCT 1", "A < B AND B >= 0", -5.0, 0.0),
        ("DOUBLE", "DISTINCT 1", "A > B AND B <= 0", 5.0, 0.0),
        ("STRING", "DISTINCT 1", "A < B AND B >= 'm'", "c", "m"),
        ("STRING", "DISTINCT 1", "A > B AND B <= 'm'", "x", "m"),
        ("DOUBLE", "COUNT(*)", "A < B AND A <= 0 AND B >= 0", -5.0, 0.0),
        ("DOUBLE", "COUNT(*)", "A > B AND A >= 0 AND B <= 0", 5.0, 0.0),
    ],
)
def test_a_partner_at_the_end_of_its_range_satisfies_a_strict_comparison(
    kind: str, select: str, condition: str, row: Any, partner: Any
) -> None:
    """Values beyond the end of the partners' range form one class, which does not exclude the end itself."""
    streams = (
        f"CREATE STREAMING TABLE S (A {kind}, I TIMESTAMP); CREATE STREAMING TABLE T (B {kind}, J TIMESTAMP);"
    )
    run = TimedRun(f"{streams} SELECT {select} FROM S, T WHERE I < J AND {condition}")
    run.add(("S", row, 1))
    run.add(("T", partner, 2))
    assert list(run.answer()) == [(1,)]
