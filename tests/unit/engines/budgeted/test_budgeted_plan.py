"""What is kept of a query under a budget: leaves, levels, bands, windows, and what may be divided."""

from __future__ import annotations

from fractions import Fraction

import pytest

from millpond.engines.budgeted.compile import compile_budgeted
from millpond.engines.budgeted.plan import Band, BudgetedPlan, JoinTree, plan_budgeted
from millpond.engines.budgeted.program import JoinKeyKind
from millpond.errors import MillpondError
from millpond.frontend.parse import parse
from millpond.query.model import Ref
from millpond.runtime.sql import Dialect

CATALOG = """
CREATE STREAMING TABLE R (A INT, B INT, X DOUBLE);
CREATE STREAMING TABLE S (A INT, B INT, X DOUBLE);
CREATE STREAMING TABLE T (A BIGINT, C STRING);
CREATE TABLE L (A INT, NAME STRING);
"""


def planned(query: str) -> BudgetedPlan:
    return plan_budgeted(parse(f"{CATALOG} {query};")[0])


def only(query: str) -> JoinTree:
    [select] = planned(query).selects
    return select


def kinds(query: str) -> list[JoinKeyKind]:
    program = compile_budgeted(planned(query), 10, Dialect.DUCKDB)
    return [level.kind for select in program.selects for level in select.levels]


def test_conditions_are_tested_as_soon_as_their_columns_are_there() -> None:
    plan = only("SELECT R.A FROM R, S, T WHERE R.A = S.A AND S.B = T.A AND R.B > 3 AND R.B < T.A")
    assert [leaf.stream.alias for leaf in plan.leaves] == ["R", "S", "T"]
    assert "R.B" in {str(r) for r in plan.needed}
    first, second = plan.levels
    assert first.equal == ((Ref("R", "A"), Ref("S", "A")),) and first.exact
    assert second.equal == ((Ref("S", "B"), Ref("T", "A")),) and not second.exact


def test_streams_that_are_joined_come_before_those_that_are_not() -> None:
    plan = only("SELECT R.A FROM R, S, T WHERE R.A = T.A AND S.X < R.X")
    assert [leaf.stream.alias for leaf in plan.leaves] == ["R", "T", "S"]


def test_a_relation_goes_with_the_stream_that_it_is_joined_to() -> None:
    plan = only("SELECT NAME FROM R, S, L WHERE R.A = S.A AND S.B = L.A")
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
def test_bands(where: str, low: int | None, high: int | None) -> None:
    [level] = only(f"SELECT R.A FROM R, S WHERE {where}").levels
    assert level.band is not None and level.window is None
    assert (level.band.low, level.band.high) == tuple(None if x is None else Fraction(x) for x in (low, high))


def test_a_band_beside_an_equality_is_a_window() -> None:
    [level] = only("SELECT R.A FROM R, S WHERE R.A = S.A AND S.B BETWEEN R.B AND R.B + 100").levels
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
def test_what_a_value_says_of_partners(where: str, kind: JoinKeyKind) -> None:
    assert kinds(f"SELECT R.A FROM R, S WHERE {where}") == [kind]


@pytest.mark.parametrize(
    ("query", "divisible"),
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
def test_what_may_be_divided(query: str, divisible: bool) -> None:
    """Tuples that join, and rows that are one row of a set or of a group, must meet in one shard."""
    assert planned(query).is_shardable is divisible


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT COUNT(DISTINCT A) FROM R", r"COUNT\(DISTINCT A\) needs every value"),
        ("SELECT MEDIAN(R.B) FROM R, S WHERE R.A = S.A", r"MEDIAN\(R.B\) needs every value"),
        ("SELECT DISTINCT COUNT(*) FROM R GROUP BY A", "DISTINCT .* over groups"),
    ],
)
def test_refusals(query: str, message: str) -> None:
    with pytest.raises(MillpondError, match=message):
        planned(query)
