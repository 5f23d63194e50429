"""Whatever the text, the parser answers with queries or an error of ours; and sqlglot agrees on structure."""

from __future__ import annotations

import random

import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from millpond.errors import MillpondError
from millpond.frontend.parse import parse
from millpond.query.expressions import And, Comparison, Condition, Not, Or
from millpond.query.model import Query

TABLES = (
    "CREATE STREAMING TABLE S (A INT CHECK (A > 0), B DECIMAL(4,1), s STRING, d DATE, x DOUBLE, "
    "ts TIMESTAMP, ok BOOLEAN) USING json OPTIONS (path 'p') TBLPROPERTIES ('watermark' = '1 minute');\n"
    "CREATE TABLE R (K INT, LABEL STRING);\n"
)
QUERIES = [
    "SELECT DISTINCT A, x.B AS b FROM S x JOIN R ON x.A = K AND LABEL IN ('a', 'b') "
    "WHERE NOT (A + 1 < 3 OR ok)",
    "SELECT A, COUNT(*), MAX(d) FROM S WHERE ts > TIMESTAMP '2024-01-01' GROUP BY A HAVING COUNT(*) > 1",
    "SELECT A FROM S WHERE B BETWEEN 1.5 AND 2 UNION ALL (SELECT K FROM R UNION SELECT 1 FROM R)",
    "SELECT *, -A, A % 2, 'x' FROM S, R r WHERE d + 1 = '2024-01-01' AND x <> 1e3 AND s IS NOT NULL",
]
WORDS = """
SELECT FROM WHERE GROUP BY HAVING UNION ALL DISTINCT JOIN ON AS AND OR NOT IN BETWEEN IS NULL TRUE CASE WHEN
END CAST DATE TIMESTAMP INTERVAL COUNT SUM MAX MEDIAN LIMIT ORDER WITH CREATE STREAMING TABLE USING OPTIONS
TBLPROPERTIES CHECK LEFT CROSS LATERAL VALUES OVER FILTER EXISTS
S R A B K x ts ok d s `A` 'a' '2024-01-01' 1 2.5 1e3 .5 10L 99999999999999999999 ( ) ( ) , . ;
* + - * / % < <= = >= > <> != <=> || :: : ? @ [ ] { } ! ~ & | ^ ' " ` -- /* */ # $
"""
SOUP = [*WORDS.split(), "\\", "\n"]


def assert_survives(text: str) -> list[Query] | None:
    try:
        queries = parse(text)
    except MillpondError as error:
        assert len(str(error).splitlines()) == 1
        if error.position:
            assert 1 <= error.position.line <= text.count("\n") + 1
            assert error.position.column >= 1
        return None
    assert all(query.text in text for query in queries)
    return queries


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    assert_survives(text)
    assert_survives(TABLES + "SELECT " + text)
    assert_survives(TABLES + "SELECT A FROM S WHERE " + text)


@settings(deadline=None, max_examples=600)
@given(
    st.lists(st.sampled_from(SOUP), max_size=25), st.sampled_from(["", "SELECT A FROM S WHERE ", "SELECT "])
)
def test_any_tokens(words: list[str], start: str) -> None:
    assert_survives(TABLES + start + " ".join(words))
    assert_survives("CREATE STREAMING TABLE S " + " ".join(words))


@pytest.mark.parametrize("seed", range(20))
def test_mutated_queries(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(60):
        text = list(TABLES + random_.choice(QUERIES))
        for _ in range(random_.randint(1, 4)):
            at = random_.randrange(len(text))
            choice = random_.randrange(4)
            if choice == 0:
                del text[at : at + random_.randint(1, 5)]
            elif choice == 1:
                text.insert(at, f" {random_.choice(SOUP)} ")
            elif choice == 2:
                other = random_.randrange(len(text))
                text[at], text[other] = text[other], text[at]
            else:
                text[at] = chr(random_.choice([random_.randrange(128), random_.randrange(0x3000)]))
            text = text or [" "]
        assert_survives("".join(text))


@pytest.mark.parametrize("query", QUERIES)
def test_the_queries_that_are_mutated_are_right(query: str) -> None:
    assert assert_survives(TABLES + query)


# --- an independent reading --------------------------------------------------------------------------

ATOMS = st.sampled_from(["A = 1", "A < 2", "K > 3", "x <> 4", "A >= K"])
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(" ".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"NOT {text}"),
    ),
    max_leaves=12,
)
Truths = dict[str, bool]


def ours(condition: Condition, truths: Truths) -> bool:
    if isinstance(condition, Comparison):
        return truths[condition.text]
    if isinstance(condition, Not):
        return not ours(condition.operand, truths)
    assert isinstance(condition, And | Or)
    values = [ours(each, truths) for each in condition.operands]
    return all(values) if isinstance(condition, And) else any(values)


def theirs(node: exp.Expr, truths: Truths) -> bool:
    if isinstance(node, exp.Paren):
        return theirs(node.this, truths)
    if isinstance(node, exp.Not):
        return not theirs(node.this, truths)
    if isinstance(node, exp.And):
        return theirs(node.left, truths) and theirs(node.right, truths)
    if isinstance(node, exp.Or):
        return theirs(node.left, truths) or theirs(node.right, truths)
    return truths[node.sql("spark")]


@settings(deadline=None, max_examples=200)
@given(CONDITIONS, st.integers(0, 31))
def test_precedence_is_that_of_sqlglot(condition: str, bits: int) -> None:
    atoms = ["A = 1", "A < 2", "K > 3", "x <> 4", "A >= K"]
    truths = {atom: bool(bits >> i & 1) for i, atom in enumerate(atoms)}
    sql = f"SELECT A FROM S, R WHERE {condition}"
    [query] = parse(TABLES + sql)
    tree = sqlglot.parse_one(sql, read="spark").args["where"].this
    assert ours(query.selects[0].where, truths) == theirs(tree, truths)
