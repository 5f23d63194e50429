"""Every branch of the criteria, one query each: verdict, certificate, and synopsis on random rows.

S holds A and B, T holds C, U holds E, and V all of C and E; where nothing else is said the joins of S are
``A`` with ``C`` and ``B`` with ``E``.  A bound on one side leaves a join one region to grow in.
"""

from __future__ import annotations

import pytest

from millpond.analysis.verdict import BOUNDED, UNBOUNDED
from tests.campaigns.verdicts import examine
from tests.support.generate import RichCase

STREAMS = {"S": "AB", "T": "C", "U": "E", "V": "CE", "G": "HIJ"}
SEEDS = range(6)

EXISTENCE = {
    # A row of S that is better for C may be worse for E.
    "both lower, above": ("S, T, U", "A < C AND B < E AND A > 0 AND B > 0", UNBOUNDED),
    "both lower, below": ("S, T, U", "A < C AND B < E AND C < 0 AND E < 0", UNBOUNDED),
    "both lower, one below and one above": ("S, T, U", "A < C AND C < 0 AND B < E AND B > 0", UNBOUNDED),
    "both lower, each partner above both": (
        "S, V",
        "A < C AND B < E AND A < E AND B < C AND A > 0 AND B > 0",
        BOUNDED,
    ),
    "both lower, one partner above both": (
        "S, V",
        "A < C AND B < E AND B < C AND A > 0 AND B > 0",
        UNBOUNDED,
    ),
    "both upper, above": ("S, T, U", "C < A AND E < B AND C > 0 AND E > 0", UNBOUNDED),
    "both upper, below": ("S, T, U", "C < A AND E < B AND A < 0 AND B < 0", UNBOUNDED),
    "both upper, one below and one above": ("S, T, U", "C < A AND A < 0 AND E < B AND E > 0", UNBOUNDED),
    "both upper, each partner below both": (
        "S, V",
        "C < A AND E < B AND C < B AND E < A AND C > 0 AND E > 0",
        BOUNDED,
    ),
    "lower and upper, above": ("S, T, U", "C < A AND B < E AND C > 0 AND B > 0", UNBOUNDED),
    "lower and upper, below": ("S, T, U", "C < A AND B < E AND A < 0 AND E < 0", UNBOUNDED),
    "upper below and lower above": ("S, T, U", "C < A AND A < 0 AND B < E AND B > 0", UNBOUNDED),
    "upper below and lower above, but ordered": (
        "S, T, U",
        "C < A AND C < 0 AND B < E AND E > 1 AND B <= A",
        BOUNDED,
    ),
    "upper above and lower below": ("S, T, U", "C < A AND C > 0 AND B < E AND E < 0", UNBOUNDED),
    "one partner between a small and a large column": (
        "S, T",
        "B < C AND C < A AND A >= 0 AND B <= 1",
        BOUNDED,
    ),
    "the same column on both sides": ("S, T, U", "C < A AND A < E", UNBOUNDED),
    "the same column on both sides, apart": ("S, T, U", "C < A AND A < E AND C < 0 AND E > 3", BOUNDED),
    "slacks that differ by join": ("S, V", "A <= C AND B < C AND A < E AND B <= E", BOUNDED),
    "an offset between demands": ("S, V", "A < C + 2 AND B < C AND A < E AND B < E + 1", BOUNDED),
}


def _case(items: str, tables: str, where: str, tail: str = "") -> RichCase:
    streams = {name: tuple((c, "INT") for c in columns) for name, columns in STREAMS.items()}
    ddl = "".join(
        f"CREATE STREAMING TABLE {name} ({', '.join(f'{c} INT' for c, _ in columns)});\n"
        for name, columns in streams.items()
    )
    return RichCase(f"{ddl}SELECT {items} FROM {tables} WHERE {where} {tail}", streams)


def assert_holds(case: RichCase, outcome: str) -> None:
    for seed in SEEDS:
        finding = examine(case, seed)
        assert (finding.outcome, finding.problems) == (outcome, ()), case.sql


@pytest.mark.parametrize("title", EXISTENCE)
def test_existence(title: str) -> None:
    tables, where, outcome = EXISTENCE[title]
    assert_holds(_case("DISTINCT 1", tables, where), outcome)


@pytest.mark.parametrize(
    ("item", "where", "outcome"),
    [
        ("MAX(A)", "A > C", BOUNDED),
        ("MAX(A)", "A < C", UNBOUNDED),
        ("MIN(A)", "A < C", BOUNDED),
        ("MIN(A)", "A > C", UNBOUNDED),
        ("MAX(-A)", "A < C", BOUNDED),
        ("MAX(-A)", "A > C", UNBOUNDED),
        ("MIN(-A)", "A > C", BOUNDED),
        ("MIN(-A)", "A < C", UNBOUNDED),
        ("MAX(A + 3)", "A > C", BOUNDED),
        ("MIN(A - 3)", "A > C", UNBOUNDED),
        ("MAX(A + B)", "C = C", BOUNDED),
        ("MAX(A + B)", "A < C", UNBOUNDED),
        ("MAX(A)", "B < C", UNBOUNDED),
        ("MAX(A)", "B < C AND C > 0 AND B < 4", BOUNDED),
    ],
)
def test_extremes(item: str, where: str, outcome: str) -> None:
    assert_holds(_case(item, "S, T", where), outcome)


@pytest.mark.campaign
@pytest.mark.parametrize("function", ["AVG", "MEDIAN"])
def test_ratios_count_only_what_is_joined_within_a_group(function: str) -> None:
    where = "H = C AND H BETWEEN 1 AND 2 AND I BETWEEN 0 AND 3 AND C < A AND B < E"
    # Within a group of H, and so of C, the rows of G are alike for S and U.
    assert_holds(_case(f"H, {function}(I)", "G, T, S, U", where, "GROUP BY H"), BOUNDED)
    assert_holds(_case(f"{function}(I)", "G, T, S, U", where), UNBOUNDED)
    assert_holds(_case(f"{function}(I)", "G, S, U", "I BETWEEN 0 AND 3 AND B < E"), BOUNDED)
