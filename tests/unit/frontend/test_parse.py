"""SQL in, resolved query out: titled pairs, then positions, spellings, names and types."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest

from millpond.errors import Position, SqlNameError, SqlTypeError
from millpond.frontend.parse import parse, parse_query
from millpond.query import types as domains
from millpond.query.expressions import (
    Aggregate,
    And,
    Arithmetic,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Literal,
    Negation,
    Not,
    Op,
    Or,
    Ref,
    Truth,
)
from millpond.query.model import Query, Select, Table, Term

TABLES = """
CREATE STREAMING TABLE S (A INT, B INT, C INT, ok BOOLEAN, name STRING, day DATE, x DOUBLE, f FLOAT,
                          price DECIMAL(10, 2), ts TIMESTAMP);
CREATE STREAMING TABLE T (D INT, E INT);
CREATE TABLE R (K INT, LABEL STRING);
"""


def one(query: str) -> Query:
    [parsed] = parse(TABLES + query)
    return parsed


def select(query: str) -> Select:
    [parsed] = one(query).selects
    return parsed


def where(condition: str, tables: str = "S, T") -> Condition:
    return select(f"SELECT B FROM {tables} WHERE {condition}").where


def declared(statement: str) -> Table:
    columns = parse(f"{statement}; SELECT COUNT(*) FROM S")
    return columns[0].tables["S"]


# --- a compact spelling of what was understood -------------------------------------------------------


def value(expression: Expr) -> str:
    if isinstance(expression, Literal):
        return repr(expression.value) if isinstance(expression.value, str) else str(expression.value)
    if isinstance(expression, Arithmetic):
        return f"({value(expression.left)} {expression.operator} {value(expression.right)})"
    if isinstance(expression, Negation):
        return f"-{value(expression.operand)}"
    if isinstance(expression, Aggregate):
        distinct = "DISTINCT " if expression.distinct else ""
        argument = "*" if expression.argument is None else value(expression.argument)
        return f"{expression.function}({distinct}{argument})"
    return str(expression)


def show(condition: Condition) -> str:
    if isinstance(condition, Comparison):
        return f"{value(condition.left)} {condition.operator.value} {value(condition.right)}"
    if isinstance(condition, IsNull):
        return f"{value(condition.operand)} is null"
    if isinstance(condition, Truth):
        return str(condition.value)
    if isinstance(condition, Not):
        return f"not[{show(condition.operand)}]"
    assert isinstance(condition, And | Or)
    kind = "and" if isinstance(condition, And) else "or"
    return f"{kind}[{', '.join(map(show, condition.operands))}]"


CONDITIONS = {
    # title: (SQL, understood as)
    "column with constant": ("B < 3", "S.B < 3"),
    "constant with column": ("3 < B", "S.B > 3"),
    "constant at most column": ("3 <= B", "S.B >= 3"),
    "constant equals column": ("3 = B", "S.B = 3"),
    "two columns": ("B <= E", "S.B <= T.E"),
    "double equals": ("B == E", "S.B = T.E"),
    "unequal": ("B <> 3", "S.B <> 3"),
    "unequal, spelled !=": ("B != 3", "S.B <> 3"),
    "column plus constant": ("B + 1 < E", "(S.B + 1) < T.E"),
    "column minus constant": ("B - 1 < E - 2", "(S.B - 1) < (T.E - 2)"),
    "constant plus column": ("1 + B < E", "(S.B + 1) < T.E"),
    "constants around a column": ("5 < B + 1", "(S.B + 1) > 5"),
    "several shifts add up": ("B + 1 + 2 - 5 < E", "(S.B + -2) < T.E"),
    "shifts in both directions": ("B - 1 + 3 < E", "(S.B + 2) < T.E"),
    "a negative constant": ("B > -3", "S.B > -3"),
    "signs": ("B > - -3", "S.B > 3"),
    "plus sign": ("+B > +3", "S.B > 3"),
    "folded sum": ("B < 10 + 5 * 2", "S.B < 20"),
    "folded in parentheses": ("B < (10 + 5) * 2", "S.B < 30"),
    "folded division": ("x < 1 / 4", "S.x < 0.25"),
    "folded remainder takes the sign of the dividend": ("B = -7 % 3", "S.B = -1"),
    "folded decimals": ("price < 1.5 + 1", "S.price < 2.5"),
    "folded decimal quotient": ("price < 1.0 / 3", "S.price < 0.333333"),
    "folded date": ("day < DATE '2024-02-28' + 2", "S.day < 2024-03-01"),
    "string": ("name = 'it''s'", 'S.name = "it\'s"'),
    "double-quoted string": ('name = "x"', "S.name = 'x'"),
    "escaped string": (r"name = 'a\'b'", 'S.name = "a\'b"'),
    "boolean column": ("ok", "S.ok = True"),
    "not a boolean column": ("NOT ok", "not[S.ok = True]"),
    "boolean with constant": ("ok = FALSE", "S.ok = False"),
    "between": ("B BETWEEN 1 AND 5", "and[S.B >= 1, S.B <= 5]"),
    "not between": ("B NOT BETWEEN 1 AND 5", "not[and[S.B >= 1, S.B <= 5]]"),
    "between columns": ("E BETWEEN B AND C + 1", "and[T.E >= S.B, T.E <= (S.C + 1)]"),
    "constant between columns": ("3 BETWEEN B AND C", "and[S.B <= 3, S.C >= 3]"),
    "in": ("B IN (1, 2, 3)", "or[S.B = 1, S.B = 2, S.B = 3]"),
    "in with one": ("B IN (1)", "S.B = 1"),
    "in with columns": ("B IN (C, 2)", "or[S.B = S.C, S.B = 2]"),
    "not in": ("B NOT IN (1, 2)", "not[or[S.B = 1, S.B = 2]]"),
    "not in with NULL": ("B NOT IN (1, NULL)", "not[or[S.B = 1, None]]"),
    "is null": ("B IS NULL", "S.B is null"),
    "is not null": ("B IS NOT NULL", "not[S.B is null]"),
    "a shifted column is NULL where the column is": ("B + 1 IS NULL", "S.B is null"),
    "and before or": ("B = 1 OR B = 2 AND C = 3", "or[S.B = 1, and[S.B = 2, S.C = 3]]"),
    "parentheses": ("(B = 1 OR B = 2) AND C = 3", "and[or[S.B = 1, S.B = 2], S.C = 3]"),
    "chains are flat": ("(B = 1 AND B = 2) AND C = 3", "and[S.B = 1, S.B = 2, S.C = 3]"),
    "not before and": ("NOT B = 1 AND C = 3", "and[not[S.B = 1], S.C = 3]"),
    "not not": ("NOT NOT B = 1", "S.B = 1"),
    "not in parentheses": ("NOT (NOT (B = 1))", "S.B = 1"),
    "exclamation mark": ("! (B = 1)", "not[S.B = 1]"),
    "true": ("TRUE", "True"),
    "not true": ("NOT TRUE", "False"),
    "unknown": ("NULL", "None"),
    "not unknown": ("NOT NULL", "None"),
    "compared with NULL": ("B = NULL", "None"),
    "computed with NULL": ("B + NULL = 3", "None"),
    "constant comparison": ("1 < 2", "True"),
    "constant comparison, false": ("'a' = 'b'", "False"),
    "constant comparison, unknown": ("1 = NULL", "None"),
    "constant comparison of kinds of numbers": ("1 = 1.0 AND 0.5 = 5e-1", "and[True, True]"),
    "constants tested for NULL": ("3 IS NULL OR NULL IS NULL", "or[False, True]"),
    "date literal": ("day >= DATE '2024-01-02'", "S.day >= 2024-01-02"),
    "date as string": ("day >= '2024-1-2'", "S.day >= 2024-01-02"),
    "string before date": ("'2024-01-02' <= day", "S.day >= 2024-01-02"),
    "date plus days": ("day + 7 > DATE '2024-01-02'", "(S.day + 7) > 2024-01-02"),
    "cast to date": ("day = CAST('2024-01-02' AS DATE)", "S.day = 2024-01-02"),
    "timestamp literal": ("ts > TIMESTAMP '2024-01-02 03:04:05.5'", "S.ts > 2024-01-02 03:04:05.500000"),
    "timestamp as string": ("ts > '2024-01-02T03:04'", "S.ts > 2024-01-02 03:04:00"),
    "timestamp as day": ("ts > '2024-01-02'", "S.ts > 2024-01-02 00:00:00"),
    "cast to timestamp": ("ts = CAST('2024-01-02 03:04:05' AS TIMESTAMP)", "S.ts = 2024-01-02 03:04:05"),
    "case does not matter": ("b < e AND s.NAME = 'x'", "and[S.B < T.E, S.name = 'x']"),
    "back quotes": ("`B` < `T`.`E`", "S.B < T.E"),
    "qualified": ("S.B < T.E", "S.B < T.E"),
    "comments": ("B /* left */ < -- right\n 3", "S.B < 3"),
}


@pytest.mark.parametrize(("sql", "expected"), CONDITIONS.values(), ids=CONDITIONS.keys())
def test_condition(sql: str, expected: str) -> None:
    assert show(where(sql)) == expected


JOINS = {
    "comma": ("S, T WHERE B = E", "S.B = T.E"),
    "join": ("S JOIN T ON B = E", "S.B = T.E"),
    "inner join": ("S INNER JOIN T ON B = E WHERE C = 1", "and[S.B = T.E, S.C = 1]"),
    "cross join": ("S CROSS JOIN T WHERE B = E", "S.B = T.E"),
    "join without ON": ("S JOIN T", "True"),
    "three tables": ("S JOIN T ON B = E JOIN R ON K = S.A AND K = E", "and[S.B = T.E, R.K = S.A, R.K = T.E]"),
    "self-join": ("S x, S AS y WHERE x.B = y.C", "x.B = y.C"),
    "alias as written": ("S Left_, T WHERE LEFT_.B = E", "Left_.B = T.E"),
}


@pytest.mark.parametrize(("sql", "expected"), JOINS.values(), ids=JOINS.keys())
def test_join(sql: str, expected: str) -> None:
    assert show(select(f"SELECT COUNT(*) FROM {sql}").where) == expected


def test_occurrences_keep_alias_and_table() -> None:
    parsed = select("SELECT COUNT(*) FROM s x, S AS y, R")
    assert [(o.alias, o.table.name, o.table.streaming) for o in parsed.occurrences] == [
        ("x", "S", True),
        ("y", "S", True),
        ("R", "R", False),
    ]


# --- spellings and places ----------------------------------------------------------------------------


def comparisons(condition: Condition) -> list[Comparison | IsNull]:
    if isinstance(condition, And | Or):
        return [each for operand in condition.operands for each in comparisons(operand)]
    if isinstance(condition, Not):
        return comparisons(condition.operand)
    return [condition] if isinstance(condition, Comparison | IsNull) else []


def test_predicates_keep_their_spelling_and_place() -> None:
    [query] = parse(
        "CREATE STREAMING TABLE S (A INT, B INT, ok BOOLEAN);\n"
        "SELECT A FROM S\n"
        "  WHERE  (3  <  A) AND B between 1\n"
        "    and 2 AND NOT A IN (4,5) AND ok AND (A + 1) = (B)\n"
        "    AND a IS not NULL -- the end\n"
    )
    found = [(each.text, each.position) for each in comparisons(query.selects[0].where)]
    assert found == [
        ("3  <  A", Position(3, 11)),
        ("B between 1\n    and 2", Position(3, 24)),
        ("B between 1\n    and 2", Position(3, 24)),
        ("A IN (4,5)", Position(4, 19)),
        ("A IN (4,5)", Position(4, 19)),
        ("ok", Position(4, 34)),
        ("(A + 1) = (B)", Position(4, 41)),
        ("a IS not NULL", Position(5, 9)),
    ]


def test_queries_keep_their_spelling_and_place() -> None:
    queries = parse(
        "CREATE STREAMING TABLE S (A INT);\n"
        "  SELECT A FROM S -- first\n;\n"
        "(select max( A ) from S) UNION ALL\n  SELECT A AS b FROM S;"
    )
    assert [(query.text, query.position) for query in queries] == [
        ("SELECT A FROM S", Position(2, 3)),
        ("(select max( A ) from S) UNION ALL\n  SELECT A AS b FROM S", Position(4, 1)),
    ]
    first, second = queries[1].selects
    assert (first.text, first.position) == ("select max( A ) from S", Position(4, 2))
    assert (second.text, second.position) == ("SELECT A AS b FROM S", Position(5, 3))
    assert isinstance(first.items[0].expression, Aggregate)
    assert first.items[0].expression.text == first.items[0].text == "max( A )"
    assert second.items[0].text == "A AS b"


def test_positions_count_carriage_returns_and_wide_characters_as_one() -> None:
    with pytest.raises(SqlNameError) as caught:
        parse("CREATE TABLE S (A INT);\r\nSELECT 'äöü€😀',\tZ FROM S")
    assert caught.value.position == Position(2, 17)


# --- the select list ---------------------------------------------------------------------------------

NAMES = {
    # select item: (expression, name)
    "A": ("S.A", "A"),
    "a": ("S.A", "a"),
    "S.A": ("S.A", "A"),
    "`A`": ("S.A", "A"),
    "A AS total": ("S.A", "total"),
    "A total": ("S.A", "total"),
    "A AS `a b`": ("S.A", "a b"),
    "1": ("1", "1"),
    "-1": ("-1", "-1"),
    "- 1": ("-1", "-1"),
    "'text'": ("'text'", "text"),
    "NULL": ("None", "NULL"),
    "TRUE": ("True", "true"),
    "0.50": ("0.50", "0.50"),
    ".5": ("0.5", "0.5"),
    "1e3": ("1000.0", "1000.0"),
    "1e10": ("10000000000.0", "1.0E10"),
    "1.25e-7": ("1.25e-07", "1.25E-7"),
    "7L": ("7", "7"),
    "DATE '2024-1-2'": ("2024-01-02", "DATE '2024-01-02'"),
    "TIMESTAMP '2024-01-02 03:04:05.50'": ("2024-01-02 03:04:05.500000", "TIMESTAMP '2024-01-02 03:04:05.5'"),
    "A + 1": ("(S.A + 1)", "(A + 1)"),
    "S.A*(B-1)": ("(S.A * (S.B - 1))", "(A * (B - 1))"),
    "A + B * C": ("(S.A + (S.B * S.C))", "(A + (B * C))"),
    "A - B - C": ("((S.A - S.B) - S.C)", "((A - B) - C)"),
    "A / 2 % 3": ("((S.A / 2) % 3)", "((A / 2) % 3)"),
    "-A": ("-S.A", "(- A)"),
    "- -A": ("--S.A", "(- (- A))"),
    "+A": ("S.A", "(+ A)"),
    "2 - -A": ("(2 - -S.A)", "(2 - (- A))"),
}


@pytest.mark.parametrize(("item", "expression", "name"), [(k, *v) for k, v in NAMES.items()])
def test_item(item: str, expression: str, name: str) -> None:
    [found] = select(f"SELECT {item} FROM S").items
    assert (value(found.expression), found.name, found.text) == (expression, name, item)


AGGREGATES = {
    "COUNT(*)": ("COUNT(*)", "count(1)"),
    "count( * )": ("COUNT(*)", "count(1)"),
    "COUNT(1)": ("COUNT(*)", "count(1)"),
    "COUNT(A)": ("COUNT(S.A)", "count(A)"),
    "Count(All A)": ("COUNT(S.A)", "count(A)"),
    "COUNT(DISTINCT S.A)": ("COUNT(DISTINCT S.A)", "count(DISTINCT A)"),
    "SUM(A)": ("SUM(S.A)", "sum(A)"),
    "AVG(x)": ("AVG(S.x)", "avg(x)"),
    "MIN(name)": ("MIN(S.name)", "min(name)"),
    "MAX(s.a)": ("MAX(S.A)", "max(a)"),
    "MAX(DISTINCT A)": ("MAX(S.A)", "max(DISTINCT A)"),
    "MEDIAN(A)": ("MEDIAN(S.A)", "median(A)"),
    "SUM(A * B + 1)": ("SUM(((S.A * S.B) + 1))", "sum(((A * B) + 1))"),
    "SUM(A) / COUNT(*)": ("(SUM(S.A) / COUNT(*))", "(sum(A) / count(1))"),
    "-MAX(A) + 1": ("(-MAX(S.A) + 1)", "((- max(A)) + 1)"),
    "SUM(A) AS total": ("SUM(S.A)", "total"),
    "1": ("1", "1"),
}


@pytest.mark.parametrize(("item", "expression", "name"), [(k, *v) for k, v in AGGREGATES.items()])
def test_aggregate(item: str, expression: str, name: str) -> None:
    found = select(f"SELECT {item}, COUNT(*) AS n FROM S").items[0]
    assert (value(found.expression), found.name) == (expression, name)


OUTPUT = {
    "SELECT A, B FROM S": ["A", "B"],
    "SELECT A, A FROM S": ["A_1", "A_2"],
    "SELECT x.A, y.A, x.B FROM S x, S y": ["A_1", "A_2", "B"],
    "SELECT A, a FROM S": ["A_1", "a_2"],
    "SELECT A, A, B AS A_1 FROM S": ["A_2", "A_3", "A_1"],
    "SELECT * FROM T": ["D", "E"],
    "SELECT t.*, K FROM T t, R": ["D", "E", "K"],
    "SELECT *, d FROM T": ["D_1", "E", "d_2"],
    "SELECT * FROM T x, T y": ["D_1", "E_1", "D_2", "E_2"],
    "SELECT D AS p FROM T UNION SELECT A FROM S": ["p"],
}


@pytest.mark.parametrize(("query", "names"), OUTPUT.items())
def test_output_columns(query: str, names: list[str]) -> None:
    assert list(one(query).columns) == names


def test_star_resolves_each_column() -> None:
    assert [value(item.expression) for item in select("SELECT y.*, x.* FROM T x, R y").items] == [
        "y.K",
        "y.LABEL",
        "x.D",
        "x.E",
    ]


# --- grouping ----------------------------------------------------------------------------------------

GROUPS = {
    "SELECT A FROM S": None,
    "SELECT COUNT(*) FROM S": None,
    "SELECT A, COUNT(*) FROM S GROUP BY A": ["S.A"],
    "SELECT COUNT(*) FROM S GROUP BY A, s.b": ["S.A", "S.B"],
    "SELECT COUNT(*) FROM S GROUP BY (A), A": ["S.A"],
    "SELECT A, B FROM S GROUP BY 2, 1": ["S.B", "S.A"],
    "SELECT A AS k, COUNT(*) FROM S GROUP BY k": ["S.A"],
    "SELECT A AS B, COUNT(*) FROM S GROUP BY B, A": ["S.B", "S.A"],
    "SELECT A + 1, 7 FROM S GROUP BY A": ["S.A"],
    "SELECT * FROM T GROUP BY D, E": ["T.D", "T.E"],
}


@pytest.mark.parametrize(("query", "expected"), GROUPS.items())
def test_group_by(query: str, expected: list[str] | None) -> None:
    found = select(query).group_by
    assert (None if found is None else [str(ref) for ref in found]) == expected


HAVING = {
    "COUNT(*) > 3": "COUNT(*) > 3",
    "3 < COUNT(*)": "COUNT(*) > 3",
    "n > 3": "COUNT(*) > 3",
    "A + 1 = 2": "(S.A + 1) = 2",
    "SUM(B) / COUNT(*) >= A + 1": "(SUM(S.B) / COUNT(*)) >= (S.A + 1)",
    "MAX(day) > '2024-01-02'": "MAX(S.day) > 2024-01-02",
    "AVG(B) < 0.5": "AVG(S.B) < 0.5",
    "MIN(B) BETWEEN 1 AND MAX(C)": "and[MIN(S.B) >= 1, MIN(S.B) <= MAX(S.C)]",
    "MAX(B) IS NOT NULL OR MAX(ok)": "or[not[MAX(S.B) is null], MAX(S.ok) = True]",
    "1 < 2 - 3": "False",
}


@pytest.mark.parametrize(("condition", "expected"), HAVING.items())
def test_having(condition: str, expected: str) -> None:
    assert show(select(f"SELECT A, COUNT(*) AS n FROM S GROUP BY A HAVING {condition}").having) == expected


def test_having_prefers_a_group_column_to_an_alias() -> None:
    assert show(select("SELECT COUNT(*) AS A FROM S GROUP BY A HAVING A > 1").where) == "S.A > 1"
    assert show(select("SELECT COUNT(*) AS B FROM S GROUP BY A HAVING B > 1").having) == "COUNT(*) > 1"


def test_having_on_group_columns_is_a_condition_on_rows() -> None:
    found = select(
        "SELECT A, COUNT(*) FROM S WHERE B > 2 GROUP BY A HAVING (A = 1 OR A > 5) AND COUNT(*) > 3"
    )
    assert show(found.where) == "and[S.B > 2, or[S.A = 1, S.A > 5]]"
    assert show(found.having) == "COUNT(*) > 3"
    outer = select("SELECT S.A, COUNT(*) FROM S LEFT JOIN T ON S.A = T.D GROUP BY S.A HAVING S.A > 1")
    assert show(outer.having) == "S.A > 1"


# --- union -------------------------------------------------------------------------------------------

UNIONS = {
    # terms as (output of each select, distinct)
    "SELECT A FROM S": [("S.A", False)],
    "SELECT DISTINCT A FROM S": [("S.A", True)],
    "SELECT A FROM S UNION ALL SELECT D FROM T": [("S.A", False), ("T.D", False)],
    "SELECT A FROM S UNION SELECT D FROM T": [("S.A T.D", True)],
    "SELECT A FROM S UNION DISTINCT SELECT D FROM T": [("S.A T.D", True)],
    "SELECT A FROM S UNION SELECT D FROM T UNION ALL SELECT E FROM T": [("S.A T.D", True), ("T.E", False)],
    "SELECT A FROM S UNION ALL SELECT D FROM T UNION SELECT E FROM T": [("S.A T.D T.E", True)],
    "SELECT A FROM S UNION ALL (SELECT D FROM T UNION SELECT E FROM T)": [("S.A", False), ("T.D T.E", True)],
    "(SELECT A FROM S UNION ALL SELECT D FROM T) UNION ALL SELECT DISTINCT E FROM T": [
        ("S.A", False),
        ("T.D", False),
        ("T.E", True),
    ],
    "((SELECT A FROM S))": [("S.A", False)],
    "SELECT NULL FROM S UNION SELECT name FROM S": [("None S.name", True)],
}


def outputs(term: Term) -> str:
    return " ".join(value(select.items[0].expression) for select in term.selects)


@pytest.mark.parametrize(("query", "terms"), UNIONS.items())
def test_union(query: str, terms: list[tuple[str, bool]]) -> None:
    assert [(outputs(term), term.distinct) for term in one(query).terms] == terms


# --- types -------------------------------------------------------------------------------------------

LITERALS = {
    "B = 10": (10, "INT"),
    "B = 2147483648": (2147483648, "BIGINT"),
    "B = -2147483648": (-2147483648, "INT"),
    "B = -9223372036854775808": (-9223372036854775808, "BIGINT"),
    "B = 9223372036854775808": (Decimal("9223372036854775808"), "DECIMAL(19,0)"),
    "B = 7L": (7, "BIGINT"),
    "B = 7S": (7, "SMALLINT"),
    "price = 0.5": (Decimal("0.5"), "DECIMAL(1,1)"),
    "price = 10.50": (Decimal("10.50"), "DECIMAL(4,2)"),
    "B = 0.5": (Decimal("0.5"), "DECIMAL(1,1)"),
    "x = 0.5": (0.5, "DOUBLE"),
    "0.5 = x": (0.5, "DOUBLE"),
    "f = 0.1": (0.1, "DOUBLE"),
    "x = 1": (1, "INT"),
    "B = 1e3": (1000.0, "DOUBLE"),
    "name = 'x'": ("x", "STRING"),
    "ok = true": (True, "BOOLEAN"),
    "day = '2024-01-02'": (date(2024, 1, 2), "DATE"),
    "ts = '2024-01-02'": (datetime(2024, 1, 2), "TIMESTAMP"),
}


@pytest.mark.parametrize(("condition", "value_", "type_"), [(k, *v) for k, v in LITERALS.items()])
def test_literal(condition: str, value_: object, type_: str) -> None:
    found = where(condition)
    assert isinstance(found, Comparison) and isinstance(found.right, Literal) and found.right.type
    assert (found.right.value, found.right.type.name) == (value_, type_)
    assert type(found.right.value) is type(value_)


def test_a_shift_of_a_double_column_is_a_double() -> None:
    found = where("x + 0.5 < 1.5")
    assert isinstance(found, Comparison)
    assert found.left == Arithmetic("+", Ref("S", "x"), Literal(0.5, domains.DOUBLE))
    assert found.right == Literal(1.5, domains.DOUBLE)


def test_comparison_is_by_value_not_by_spelling() -> None:
    assert where("B<3") == where("3  >  b") == Comparison(Ref("S", "B"), Op.LT, Literal(3, domains.INT))


# --- catalog -----------------------------------------------------------------------------------------

TYPES = {
    "BOOLEAN": domains.BOOLEAN,
    "TINYINT": domains.TINYINT,
    "smallint": domains.SMALLINT,
    "INT": domains.INT,
    "INTEGER": domains.INT,
    "BIGINT": domains.BIGINT,
    "LONG": domains.BIGINT,
    "DECIMAL": domains.decimal(10, 0),
    "DECIMAL(5)": domains.decimal(5, 0),
    "NUMERIC(12, 3)": domains.decimal(12, 3),
    "FLOAT": domains.FLOAT,
    "REAL": domains.FLOAT,
    "DOUBLE": domains.DOUBLE,
    "STRING": domains.STRING,
    "VARCHAR(20)": domains.STRING,
    "CHAR(3)": domains.STRING,
    "DATE": domains.DATE,
    "TIMESTAMP": domains.TIMESTAMP,
}


@pytest.mark.parametrize(("spelling", "expected"), TYPES.items())
def test_type(spelling: str, expected: domains.SqlType) -> None:
    assert declared(f"CREATE TABLE S (c {spelling})").column("c").type == expected


def test_a_full_declaration() -> None:
    table = declared(
        "CREATE STREAMING TABLE IF NOT EXISTS S (\n"
        "  id BIGINT NOT NULL COMMENT 'the key',\n"
        "  hour INT CHECK (hour BETWEEN 0 AND 23),\n"
        "  `group` STRING NULL,\n"
        "  t1 TIMESTAMP, T2 TIMESTAMP,\n"
        "  CONSTRAINT small CHECK (S.id < hour + 100), CHECK (`group` IN ('a', 'b'))\n"
        ") USING org.example.Source OPTIONS (path 'data/S', 'a b' = '1', x.y 2, deep -3, header TRUE)\n"
        "COMMENT 'a stream' TBLPROPERTIES ('time' = 't2', 'watermark' = '10 seconds', 'idle' = '1 minute')"
    )
    assert [(c.name, c.type.name, c.nullable) for c in table.columns] == [
        ("id", "BIGINT", False),
        ("hour", "INT", True),
        ("group", "STRING", True),
        ("t1", "TIMESTAMP", True),
        ("T2", "TIMESTAMP", True),
    ]
    assert [show(check) for check in table.checks] == [
        "and[S.hour >= 0, S.hour <= 23]",
        "S.id < (S.hour + 100)",
        "or[S.group = 'a', S.group = 'b']",
    ]
    assert [each.text for each in comparisons(table.checks[0])] == ["hour BETWEEN 0 AND 23"] * 2
    assert table.source and table.source.format == "org.example.Source"
    assert table.source.options == {"path": "data/S", "a b": "1", "x.y": "2", "deep": "-3", "header": "true"}
    assert table.properties == {"time": "t2", "watermark": "10 seconds", "idle": "1 minute"}
    assert (table.streaming, table.time) == (True, "T2")


def test_application_time() -> None:
    assert declared("CREATE STREAMING TABLE S (A INT)").time is None
    assert declared("CREATE STREAMING TABLE S (A INT, t TIMESTAMP)").time == "t"
    assert declared("CREATE TABLE S (a TIMESTAMP, b TIMESTAMP)").time is None


def test_a_source_is_optional() -> None:
    assert declared("CREATE TABLE S (A INT)").source is None


def test_tables_may_be_declared_after_the_query() -> None:
    assert parse("SELECT A FROM S; CREATE TABLE S (A INT)")


def test_words_that_are_not_reserved_name_columns() -> None:
    words = (
        "date",
        "timestamp",
        "time",
        "count",
        "min",
        "value",
        "hour",
        "window",
        "filter",
        "interval",
        "key",
    )
    columns = ", ".join(f"{word} INT" for word in words)
    [query] = parse(f"CREATE TABLE S ({columns}); SELECT {', '.join(words)} FROM S WHERE date < timestamp")
    assert query.columns == words


def test_the_contract_example() -> None:
    [query] = parse(
        "CREATE STREAMING TABLE S (A INT, B INT, C INT)\n"
        "  USING json OPTIONS (path 'data/S', maxFilesPerTrigger '1');\n"
        "CREATE STREAMING TABLE T (D INT, E INT)        USING json OPTIONS (path 'data/T');\n"
        "CREATE TABLE R (K INT, LABEL STRING) USING csv OPTIONS (path 'data/R', header 'true'); -- static\n"
        "SELECT DISTINCT A FROM S, T WHERE B < D AND A = 10;\n"
    )
    assert query.columns == ("A",)
    assert show(query.selects[0].where) == "and[S.B < T.D, S.A = 10]"
    assert [each.text for each in comparisons(query.selects[0].where)] == ["B < D", "A = 10"]


def test_parse_query_uses_the_given_names() -> None:
    table = declared("CREATE STREAMING TABLE S (A INT)")
    assert parse_query("SELECT view.A FROM View;", {"view": table}).selects[0].occurrences[0].table is table


def test_errors_have_their_kind() -> None:
    with pytest.raises(SqlNameError):
        where("Z = 1")
    with pytest.raises(SqlTypeError):
        where("B = 'x'")
