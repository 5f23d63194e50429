"""Queries of several blocks, as they are read and merged, have the answer of their text in DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from millpond.frontend.parse import parse
from millpond.runtime.query_sql import evaluate_worlds
from tests.support.nested_generate import CATALOG, DECLARED, random_nested_query, random_rows
from tests.support.oracle import answers, normalise

TEXTS = [
    "SELECT A, B FROM S ORDER BY B DESC, ts, A LIMIT 3",
    "SELECT A AS x, ts FROM S WHERE B > 0 ORDER BY x, 2 LIMIT 2",
    "SELECT K, COUNT(*) AS n FROM S GROUP BY K ORDER BY COUNT(*) DESC, K LIMIT 2",
    "SELECT DISTINCT A FROM S ORDER BY A DESC LIMIT 2",
    "SELECT A FROM S UNION ALL SELECT D FROM T ORDER BY 1 LIMIT 4",
    "SELECT A, K FROM S INTERSECT SELECT D, L FROM T",
    "SELECT A, K FROM S EXCEPT SELECT D, L FROM T",
    "SELECT A, B FROM S WHERE B >= (SELECT MAX(E) FROM T)",
    "SELECT A, (SELECT MIN(E) FROM T) AS m FROM S",
    "SELECT A + 1 AS a, u FROM (SELECT A, B * 2 AS u FROM S WHERE A > 0) AS x WHERE u > 1",
    "SELECT k, SUM(n) FROM (SELECT K AS k, A, COUNT(B) AS n FROM S GROUP BY K, A) AS x GROUP BY k",
    "SELECT SUM(n) FROM (SELECT A, COUNT(*) AS n FROM S WHERE A > 2 GROUP BY A) AS x",
    "SELECT x.k, y.k FROM (SELECT K k FROM S WHERE B > 1) x LEFT JOIN (SELECT L AS k FROM T) y ON x.k = y.k",
    "WITH x(p) AS (SELECT A FROM S), y AS (SELECT p, COUNT(*) n FROM x GROUP BY p) SELECT p, n FROM y",
]


@pytest.mark.parametrize("text", TEXTS)
def test_answer_of_a_nested_query(text: str) -> None:
    _compare(text, random.Random(1))


def test_answers_of_random_nested_queries() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        _compare(random_nested_query(rng), rng)


def _compare(text: str, rng: random.Random) -> None:
    worlds = [random_rows(rng, rng.randrange(14)) for _ in range(8)]
    (query,) = parse(DECLARED + text)
    expected = answers(DECLARED + text, CATALOG, worlds)
    for one, other in zip(expected, evaluate_worlds(query, worlds), strict=True):
        found: Counter[tuple[Any, ...]] = Counter()
        for row, count in other.items():
            found[normalise(row)] += count
        assert found == one, text
