"""Which relations are looked up by which keys, and which queries cannot use lookups."""

from __future__ import annotations

import pytest

from millpond.engines.lookup.plan import SelectLookups, plan_selects
from millpond.errors import MillpondError
from millpond.frontend.parse import parse

CATALOG = """
    CREATE STREAMING TABLE S (A INT, B BIGINT, C STRING, D DATE, X DOUBLE, T DECIMAL(9, 2));
    CREATE TABLE R (K INT, L STRING, X DOUBLE, D DATE) USING lookup OPTIONS (url 'x');
    CREATE TABLE T (K INT, K2 BIGINT, L STRING) USING lookup OPTIONS (url 'x');
    CREATE TABLE W (P INT) USING json OPTIONS (path 'x');
"""


def plan(query: str) -> SelectLookups:
    [parsed] = parse(CATALOG + query)
    [lookups] = plan_selects(parsed)
    return lookups


@pytest.mark.parametrize(
    ("query", "steps"),
    [
        ("SELECT A FROM S, R WHERE A = K", ["R by K"]),
        ("SELECT S.A FROM S, R WHERE S.C = R.K", ["R by K"]),
        ("SELECT A FROM S, R WHERE S.B = K AND R.L = C AND A = K", ["R by K, L"]),
        ("SELECT A FROM S, R WHERE A + 1 = K AND S.T = K", ["R by K"]),
        ("SELECT A FROM S, R, T WHERE R.K = T.K AND A = T.K2", ["T by K2", "R by K"]),
        ("SELECT A FROM S, W, R WHERE A = P AND P = K", ["R by K"]),
        ("SELECT A FROM S, R x, R y WHERE A = x.K AND x.L = y.L", ["x by K", "y by L"]),
    ],
)
def test_relations_are_looked_up_by_the_columns_that_equal_available_values(
    query: str, steps: list[str]
) -> None:
    lookups = plan(query)
    assert [f"{s.occurrence.alias} by {', '.join(s.columns)}" for s in lookups.steps] == steps


def test_conditions_without_lookup_columns_are_tested_first() -> None:
    lookups = plan("SELECT A, R.L FROM S, R WHERE A = K AND A > 3 AND (R.D < S.D OR C = 'x') AND C <> 'y'")
    assert [c.text for c in lookups.before] == ["A > 3", "C <> 'y'"]  # type: ignore[union-attr]
    assert len(lookups.after) == 2
    assert {str(ref) for ref in lookups.needed} == {"S.A", "R.L", "R.K", "R.D", "S.D", "S.C"}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT A FROM S, R WHERE S.X = R.X",
            "R cannot be looked up by S.X = R.X: .* cannot be compared exactly",
        ),
        ("SELECT S.A FROM S, R WHERE S.A = CAST(R.L AS INT)", "cannot be looked up"),
        ("SELECT S.A, upper(R.L) FROM S, R WHERE S.A = R.K", "is computed from a relation that is looked up"),
        ("SELECT S.A FROM S, R WHERE S.A = R.K AND R.L > 3", "is computed from a relation that is looked up"),
        ("SELECT A FROM S, R, T WHERE A = K2 AND R.K = K2", "R cannot be looked up by R.K = K2"),
        ("SELECT A FROM S, R WHERE K = 5", "no equality joins it with the stream"),
        ("SELECT A FROM S, R WHERE A = K OR A = 3", "no equality joins it with the stream"),
        ("SELECT R.K FROM R", "the query has no stream"),
    ],
)
def test_queries_without_a_usable_key_are_refused(query: str, message: str) -> None:
    with pytest.raises(MillpondError, match=message):
        plan(query)
