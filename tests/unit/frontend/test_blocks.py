"""Blocks: merged where they are joins and filters, tables of their own otherwise."""

from __future__ import annotations

import pytest

from millpond.errors import SqlError
from millpond.frontend.parse import parse
from millpond.query.model import Query, Subquery, Table
from millpond.query.trees import conjuncts

STREAMS = """
CREATE STREAMING TABLE S (A INT, B INT, N STRING, ts TIMESTAMP);
CREATE STREAMING TABLE T (D INT, E INT, ts TIMESTAMP);
CREATE TABLE R (K INT, L STRING);
"""
MERGED = [
    (
        "SELECT x.A FROM (SELECT A, B FROM S WHERE B < 3) x WHERE A > 1",
        "SELECT x.A FROM S x WHERE B < 3 AND A > 1",
    ),
    ("SELECT p FROM (SELECT A FROM S) x(p)", "SELECT A AS p FROM S x"),
    ("WITH x AS (SELECT * FROM S) SELECT A FROM x", "SELECT A FROM S x"),
    (
        "WITH x AS (SELECT * FROM S), y(d) AS (SELECT D FROM T, x WHERE T.E = x.B) SELECT d FROM y",
        "SELECT D AS d FROM T, S x WHERE T.E = x.B",
    ),
    (
        "SELECT COUNT(*) FROM (SELECT window.start AS w FROM S) x GROUP BY w",
        "SELECT COUNT(*) FROM S x GROUP BY window(ts, '1 minute').start",
    ),
    (
        "SELECT x.A, y.D FROM S x LEFT JOIN (SELECT * FROM T WHERE E < 3) y ON x.A = y.D",
        "SELECT x.A, y.D FROM S x LEFT JOIN T y ON x.A = y.D AND y.E < 3",
    ),
    (
        "SELECT DISTINCT A FROM (SELECT DISTINCT A, B FROM S) x WHERE B < 3",
        "SELECT DISTINCT A FROM S x WHERE B < 3",
    ),
    (
        "SELECT v FROM (SELECT A AS v FROM S UNION ALL SELECT D FROM T) x WHERE v < 3",
        "SELECT A AS v FROM S x WHERE A < 3 UNION ALL SELECT D AS v FROM T x WHERE D < 3",
    ),
    (
        "CREATE VIEW v AS SELECT A, B FROM S WHERE B > 1; SELECT a.A FROM v a, v b WHERE a.A = b.B",
        "SELECT a.A FROM S a, S b WHERE a.B > 1 AND b.B > 1 AND a.A = b.B",
    ),
    ("SELECT y.v FROM (SELECT v + 1 AS v FROM (SELECT A + 1 AS v FROM S) x) y", None),
    ("SELECT A FROM (SELECT A, N LIKE 'a%' AS f FROM S) x WHERE f", "SELECT A FROM S x WHERE N LIKE 'a%'"),
    (
        "SELECT A FROM S WHERE EXISTS (SELECT 1 FROM (SELECT D FROM T WHERE E < 3) y WHERE y.D = S.A)",
        "SELECT A FROM S WHERE EXISTS (SELECT 1 FROM T y WHERE y.D = S.A AND E < 3)",
    ),
]


@pytest.mark.parametrize(("nested", "flat"), MERGED)
def test_a_block_of_joins_and_filters_is_merged(nested: str, flat: str | None) -> None:
    nested = nested.replace("window.start AS w", "window(ts, '1 minute').start AS w")
    (query,) = parse(STREAMS + nested)
    assert not _blocks(query)
    if flat is not None:
        (other,) = parse(STREAMS + flat)
        assert _sorted(query) == _sorted(other)


def _sorted(query: Query) -> list[object]:
    """The query, without the order of its conditions."""
    return [
        (t.distinct, s.occurrences, s.items, frozenset(conjuncts(s.where)), s.joins)
        for t in query.terms
        for s in t.selects
    ]


def _blocks(query: Query) -> dict[str, Table]:
    return {name: t for name, t in query.tables.items() if isinstance(t.block, Subquery)}


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("SELECT MAX(c) FROM (SELECT A, COUNT(*) AS c FROM S GROUP BY A) x", None),
        (
            "SELECT MAX(c) FROM (SELECT window.end AS e, COUNT(*) AS c FROM S GROUP BY window(ts, '1 hour'))",
            "e",
        ),
        ("SELECT c FROM (SELECT DISTINCT B AS c FROM S) x", None),
        ("SELECT c FROM (SELECT DISTINCT B AS c, ts AS t FROM S) x", "t"),
        (
            "SELECT MAX(v) FROM (SELECT A AS v, ts AS t FROM S UNION ALL SELECT D, ts FROM T) x",
            "t",
        ),
        ("SELECT MAX(v) FROM (SELECT A AS v FROM S UNION ALL SELECT D FROM T) x", "time of the row"),
        (
            "SELECT MAX(c) FROM (SELECT COUNT(*) AS c FROM S GROUP BY window(ts, '1 hour')) x",
            "time of the row",
        ),
    ],
)
def test_another_block_is_a_table(text: str, time: str | None) -> None:
    (query,) = parse(STREAMS + text)
    (table,) = _blocks(query).values()
    assert table.time == time


def test_the_other_edge_of_a_window_is_derived_from_the_time() -> None:
    text = """SELECT MAX(x.s) FROM (SELECT window.start AS s, window.end AS e, COUNT(*) AS c
              FROM S GROUP BY window(ts, '1 hour')) x WHERE x.c > 3 AND x.e > '2026-01-01'"""
    (query,) = parse(STREAMS + text)
    (table,) = _blocks(query).values()
    assert table.time == "s"
    assert [column.name for column in table.derived] == ["e"]


def test_a_window_over_the_end_of_windows_makes_the_end_the_time() -> None:
    text = """SELECT MAX(c) FROM (SELECT window.start AS s, window.end AS e, COUNT(*) AS c
              FROM S GROUP BY window(ts, '1 hour')) x GROUP BY window(e, '1 day')"""
    (query,) = parse(STREAMS + text)
    (table,) = _blocks(query).values()
    assert table.time == "e"


def test_an_expression_over_several_tables_keeps_its_block() -> None:
    text = "SELECT v, COUNT(*) FROM (SELECT S.A + T.D AS v FROM S, T WHERE S.ts = T.ts) x GROUP BY v"
    (query,) = parse(STREAMS + text)
    assert [*_blocks(query)] == ["x"]
    (query,) = parse(STREAMS + "SELECT v FROM (SELECT S.A + T.D AS v FROM S, T WHERE S.ts = T.ts) x")
    assert not _blocks(query)


def test_views_on_views_are_counted() -> None:
    views = "".join(f"CREATE VIEW v{i + 1} AS SELECT a.A FROM v{i} a, v{i} b;" for i in range(9))
    with pytest.raises(SqlError, match="more than"):
        parse(STREAMS + "CREATE VIEW v0 AS SELECT A FROM S;" + views + "SELECT A FROM v9")


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("SELECT A, ts FROM S ORDER BY ts, A DESC", [("ts", False), ("A", True)]),
        ("SELECT A FROM S ORDER BY ts", []),
        (
            "SELECT COUNT(*) AS c, window.start AS w FROM S GROUP BY window(ts, '1 hour') ORDER BY 2",
            [("w", False)],
        ),
    ],
)
def test_an_order_starts_with_the_time(text: str, keys: list[tuple[str, bool]]) -> None:
    (query,) = parse(STREAMS + text)
    assert [(key.column, key.descending) for key in query.order_by] == keys
    with pytest.raises(SqlError, match="starts with their time"):
        parse(STREAMS + "SELECT A, ts FROM S ORDER BY A, ts")


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("SELECT A, COUNT(*) AS n FROM S GROUP BY A ORDER BY n DESC", [("n", True)]),
        ("SELECT A, COUNT(*) FROM S GROUP BY A ORDER BY COUNT(*), A", [("count(1)", False), ("A", False)]),
        ("SELECT DISTINCT A FROM S ORDER BY A", [("A", False)]),
    ],
)
def test_groups_and_sets_have_any_order(text: str, keys: list[tuple[str, bool]]) -> None:
    (query,) = parse(STREAMS + text)
    assert [(key.column, key.descending) for key in query.order_by] == keys


def test_a_limit_alone_is_a_number_of_rows() -> None:
    (query,) = parse(STREAMS + "SELECT A, COUNT(*) FROM S GROUP BY A LIMIT 5")
    assert query.limit == 5


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (
            "SELECT A FROM S WHERE B > (SELECT MAX(K) FROM R)",
            """SELECT A FROM S, (SELECT MAX(K) AS `value of a scalar subquery` FROM R) AS `scalar subquery 1`
               WHERE B > `value of a scalar subquery`""",
        ),
        (
            "SELECT A FROM S INTERSECT SELECT D FROM T",
            """SELECT DISTINCT `column 1` AS A FROM (SELECT A FROM S) AS `l rows`(`column 1`) WHERE EXISTS (
               SELECT 1 FROM (SELECT D FROM T) AS `r rows`(`column 1`)
               WHERE `r rows`.`column 1` = `l rows`.`column 1`
               OR (`r rows`.`column 1` IS NULL AND `l rows`.`column 1` IS NULL))""",
        ),
    ],
)
def test_other_constructs_are_written_as_blocks(short: str, long: str) -> None:
    assert parse(STREAMS + short) == parse(STREAMS + long)


def test_the_value_of_a_scalar_subquery_is_not_a_column_of_the_query() -> None:
    catalog = "CREATE STREAMING TABLE S (A INT, value INT); CREATE TABLE R (K INT);"
    [query] = parse(f"{catalog} SELECT * FROM S WHERE value > (SELECT MAX(K) FROM R)")
    assert query.columns == ("A", "value")
