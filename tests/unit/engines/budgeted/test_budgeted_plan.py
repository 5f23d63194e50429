"""Plans of queries on a budget: leaves, levels, bands, windows and shard columns."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from millpond.engines.budgeted.compile import compile_budgeted, describe_layout
from millpond.engines.budgeted.plan import Band, BudgetedPlan, JoinTree, plan_budgeted
from millpond.engines.budgeted.program import JoinKeyKind
from millpond.errors import MillpondError
from millpond.frontend.parse import parse
from millpond.query.expressions import Ref
from millpond.runtime.sql import Dialect

CATALOG = """
CREATE STREAMING TABLE R (A INT, B INT, X DOUBLE);
CREATE STREAMING TABLE S (A INT, B INT, X DOUBLE);
CREATE STREAMING TABLE T (A BIGINT, C STRING);
CREATE TABLE L (A INT, NAME STRING);
"""


def plan_query(query: str) -> BudgetedPlan:
    return plan_budgeted(parse(f"{CATALOG} {query};")[0])


def plan_tree(query: str) -> JoinTree:
    [select] = plan_query(query).selects
    return select


def kinds(query: str) -> list[JoinKeyKind]:
    program = compile_budgeted(plan_query(query), 10, Dialect.DUCKDB)
    return [level.kind for select in program.selects for level in select.levels]


def test_conditions_are_tested_at_the_lowest_level_with_all_columns() -> None:
    plan = plan_tree("SELECT R.A FROM R, S, T WHERE R.A = S.A AND S.B = T.A AND R.B > 3 AND R.B < T.A")
    assert [leaf.stream.alias for leaf in plan.leaves] == ["R", "S", "T"]
    assert "R.B" in {str(r) for r in plan.needed}
    first, second = plan.levels
    assert first.equal == ((Ref("R", "A"), Ref("S", "A")),) and first.exact
    assert second.equal == ((Ref("S", "B"), Ref("T", "A")),) and not second.exact


def test_streams_joined_by_equalities_come_first() -> None:
    plan = plan_tree("SELECT R.A FROM R, S, T WHERE R.A = T.A AND S.X < R.X")
    assert [leaf.stream.alias for leaf in plan.leaves] == ["R", "T", "S"]


def test_a_relation_belongs_to_the_stream_that_it_is_joined_with() -> None:
    plan = plan_tree("SELECT NAME FROM R, S, L WHERE R.A = S.A AND S.B = L.A")
    assert [[o.alias for o in leaf.relations] for leaf in plan.leaves] == [[], ["L"]]


@pytest.mark.parametrize(
    ("where", "low", "high"),
    [
        ("R.B < S.B", 1, None),
        ("R.B <= S.B", 0, None),
        ("S.B < R.B", None, -1),
        ("S.B BETWEEN R.B - 3 AND R.B + 2", -3, 2),
        ("R.B + 1 > S.B AND R.B - 5 <= S.B", -5, 0),
        ("R.X < S.X", 0, None),
        ("R.B = S.B + 4", -4, -4),
    ],
)
def test_comparisons_with_constant_distances_are_bands(where: str, low: int | None, high: int | None) -> None:
    [level] = plan_tree(f"SELECT R.A FROM R, S WHERE {where}").levels
    assert level.band is not None and level.window is None
    assert (level.band.low, level.band.high) == tuple(None if x is None else Fraction(x) for x in (low, high))


def test_a_band_with_an_equality_is_a_window() -> None:
    [level] = plan_tree("SELECT R.A FROM R, S WHERE R.A = S.A AND S.B BETWEEN R.B AND R.B + 100").levels
    assert level.band is None and level.window is not None
    assert level.window == Band(Ref("R", "B"), Ref("S", "B"), Fraction(0), Fraction(100))


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("R.A = S.A", JoinKeyKind.NUMBER),
        ("R.A = S.A AND R.B = S.B", JoinKeyKind.HASH),
        ("R.X = S.X", JoinKeyKind.HASH),
        ("R.A = S.X", JoinKeyKind.HASH),
        ("R.A < S.X", JoinKeyKind.BAND),
        ("R.A <> S.A", JoinKeyKind.NOTHING),
        ("R.A = S.A OR R.B = S.B", JoinKeyKind.NOTHING),
    ],
)
def test_the_join_condition_determines_the_kind_of_join_key(where: str, kind: JoinKeyKind) -> None:
    assert kinds(f"SELECT R.A FROM R, S WHERE {where}") == [kind]


@pytest.mark.parametrize(
    ("query", "is_shardable"),
    [
        ("SELECT R.B FROM R, S WHERE R.A = S.A", True),
        ("SELECT R.B FROM R, S, T WHERE R.A = S.A AND S.A = T.A", True),
        ("SELECT R.B FROM R, S, T WHERE R.A = S.A AND S.B = T.A", False),
        ("SELECT R.B FROM R, S WHERE R.A < S.A", False),
        ("SELECT DISTINCT R.B FROM R, S WHERE R.A = S.A", False),
        ("SELECT DISTINCT R.A, R.B FROM R, S WHERE R.A = S.A", True),
        ("SELECT S.A, COUNT(*) FROM R, S WHERE R.A = S.A GROUP BY S.A", True),
        ("SELECT COUNT(*) FROM R, S WHERE R.A = S.A", False),
        ("SELECT DISTINCT A FROM R", True),
        ("SELECT A, SUM(B) FROM R GROUP BY A", True),
        ("SELECT A FROM R UNION SELECT A FROM S", False),
    ],
)
def test_which_queries_can_be_sharded(query: str, is_shardable: bool) -> None:
    """Tuples that join, equal rows of DISTINCT, and rows of a group must be in the same shard."""
    assert plan_query(query).is_shardable is is_shardable


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT COUNT(DISTINCT A) FROM R", r"COUNT\(DISTINCT A\) needs every value"),
        ("SELECT MEDIAN(R.B) FROM R, S WHERE R.A = S.A", r"MEDIAN\(R.B\) needs every value"),
        ("SELECT DISTINCT COUNT(*) FROM R GROUP BY A", "DISTINCT or UNION over groups cannot run"),
    ],
)
def test_aggregates_that_need_every_value_are_refused(query: str, message: str) -> None:
    with pytest.raises(MillpondError, match=message):
        plan_query(query)


def test_checkpoints_know_the_parts_of_a_program_by_their_first_names() -> None:
    """Renaming a class of the program must not make checkpoints unreadable."""
    program = compile_budgeted(
        plan_query("SELECT R.A, COUNT(*) FROM R, S WHERE R.A = S.A GROUP BY R.A"), 10, Dialect.DUCKDB
    )
    names = set(re.findall(r"\b([A-Z]\w+Program)\(", describe_layout(program)))
    assert names == {
        "TermProgram",
        "SelectProgram",
        "LeafProgram",
        "LevelProgram",
        "SideProgram",
        "GroupProgram",
    }
    assert "<Kind.NUMBER: 'number'>" in describe_layout(program)
