"""Comparisons that are solved for a column have the truth values that DuckDB computes."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from typing import Any

import pytest

from millpond.frontend.parse import parse
from millpond.query.evaluate import answer
from millpond.query.expressions import Comparison, Literal, Op, Ref
from tests.support.generate import Catalog
from tests.support.oracle import answer_one, normalise

CATALOG: Catalog = {"S": [("A", "INT"), ("B", "INT")]}
DDL = "CREATE STREAMING TABLE S (A INT, B INT); "
VALUES = (None, -7, -4, -3, -2, -1, 0, 1, 2, 3, 5, 6, 8)
ROWS: list[dict[str, Any]] = [{"A": a, "B": b} for a, b in product(VALUES, VALUES)]


def random_term(rng: random.Random) -> str:
    factor = rng.choice(["", "", "2 * ", "-3 * ", "- ", "4 * "])
    inner = rng.choice(
        ["A", "B", "A - B", "B - A", "A - 1", "3 - A", "(A + 2) * 3", "A - A + B", "A * 2 - B * 2"]
    )
    return f"{factor}({inner})"


def random_condition(rng: random.Random) -> str:
    """A condition of a form that is solved, or nearly."""
    left, number = random_term(rng), rng.choice(["0", "1", "5", "-6", "7", "2.5", "-0.4"])
    left = rng.choice([left, left, f"abs({left})", f"{rng.choice('AB')} / {rng.choice(['2', '-3', '10'])}"])
    kind = rng.random()
    if kind < 0.2:
        return f"{left} BETWEEN {number} AND {rng.choice(['3', '9', '12.5'])}"
    if kind < 0.3:
        return f"{left} IN ({number}, 2, 4)"
    op = rng.choice(["<", "<=", "=", ">=", ">", "<>"])
    condition = f"{number} {op} {left}" if kind < 0.5 else f"{left} {op} {number}"
    return f"NOT ({condition})" if kind > 0.9 else condition


@pytest.mark.parametrize("seed", range(60))
def test_solved_conditions_agree_with_duckdb(seed: int) -> None:
    sql = f"SELECT A, B FROM S WHERE {random_condition(random.Random(seed))}"
    [query] = parse(DDL + sql)
    if query.tables["S"].derived:
        return  # not solved: a condition on a derived column
    found = Counter({normalise(row): n for row, n in answer(query, {"S": ROWS}).items()})
    assert found == answer_one(sql, CATALOG, {"S": ROWS}), sql


def test_most_forms_are_solved() -> None:
    texts = [random_condition(random.Random(seed)) for seed in range(60)]
    solved = [not parse(f"{DDL}SELECT A FROM S WHERE {text}")[0].tables["S"].derived for text in texts]
    assert sum(solved) > 30


def test_a_solved_comparison_keeps_its_text() -> None:
    [query] = parse(DDL + "SELECT A FROM S WHERE 10 - A * 3 < 2")
    where = query.selects[0].where
    assert isinstance(where, Comparison) and isinstance(where.right, Literal)
    assert (where.left, where.operator, where.right.value) == (Ref("S", "A"), Op.GE, 3)
    assert where.text == "10 - A * 3 < 2"
