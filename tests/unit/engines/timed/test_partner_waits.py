"""EXISTS with duplicates, where partners may come any time: rows are written when the first one comes."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from millpond.analysis.decide import check, decide
from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.frontend.parse import parse
from tests.support.oracle import answers, normalise
from tests.support.partner_generate import STREAMS, TIMES
from tests.support.time_generate import TimeRow, at_second
from tests.support.timed_local import TimedLocal, micros

CATALOG = {
    name: [*((c, "INT") for c in columns), (TIMES[name], "TIMESTAMP")] for name, columns in STREAMS.items()
}
TABLES = "".join(
    f"CREATE STREAMING TABLE {name} ({', '.join(f'{c} {t}' for c, t in columns)});\n"
    for name, columns in CATALOG.items()
)
QUERIES = (
    # Partners before or after the row
    "SELECT COUNT(*) FROM S WHERE A BETWEEN 0 AND 3 AND A IN (SELECT D FROM T)",
    "SELECT A FROM S WHERE A BETWEEN 0 AND 2 AND EXISTS (SELECT 1 FROM T WHERE D < A AND E > A)",
    "SELECT COUNT(*) FROM S WHERE EXISTS (SELECT 1 FROM T WHERE D > A AND D BETWEEN 0 AND 2)",
    "SELECT COUNT(*) FROM S WHERE EXISTS (SELECT 1 FROM T, V WHERE D = A AND N > E AND A BETWEEN 0 AND 2)",
    """SELECT A, COUNT(*), COUNT(B), SUM(B), AVG(B) FROM S
       WHERE A BETWEEN 0 AND 2 AND EXISTS (SELECT 1 FROM T WHERE D = A) GROUP BY A HAVING COUNT(*) > 1""",
    """SELECT A, MEDIAN(A), COUNT(*), MAX(B), COUNT(DISTINCT A) FROM S
       WHERE A BETWEEN 0 AND 2 AND EXISTS (SELECT 1 FROM T WHERE D >= A) GROUP BY A""",
    # Partners after the row
    "SELECT A FROM S WHERE A BETWEEN 0 AND 2 AND EXISTS (SELECT 1 FROM T WHERE D = A AND J > I)",
    """SELECT COUNT(*) FROM S WHERE A BETWEEN 0 AND 2
       AND EXISTS (SELECT 1 FROM T WHERE D = A AND J > I + INTERVAL 9 SECONDS)""",
    """SELECT COUNT(*), SUM(B) FROM S
       WHERE EXISTS (SELECT 1 FROM T WHERE D >= A AND D BETWEEN 0 AND 2 AND J >= I - INTERVAL 3 SECONDS)""",
    """SELECT A FROM S WHERE A BETWEEN 0 AND 2 AND EXISTS (SELECT 1 FROM T, V WHERE D = A AND N >= D
       AND L BETWEEN J - INTERVAL 2 SECONDS AND J AND I <= L + INTERVAL 1 SECOND)""",
    """SELECT A FROM S WHERE A BETWEEN 0 AND 2 AND EXISTS (SELECT 1 FROM T, V WHERE D = A AND N > A
       AND L < J AND I <= J)""",
    # Several outer streams, other tests of the same row
    """SELECT A, H FROM S, U WHERE A = G AND A BETWEEN 0 AND 2 AND H BETWEEN 0 AND 3
       AND K BETWEEN I AND I + INTERVAL 4 SECONDS
       AND EXISTS (SELECT 1 FROM T WHERE D = A AND J > I - INTERVAL 2 SECONDS)""",
    """SELECT COUNT(*) FROM S, U WHERE B < H AND A = 1 AND B BETWEEN 0 AND 2 AND I <= K
       AND EXISTS (SELECT 1 FROM T WHERE D = B)""",
)


@pytest.mark.parametrize("query", QUERIES)
def test_rows_are_written_when_their_first_partner_comes(query: str) -> None:
    """After every batch the engine has written DuckDB's answer on the rows so far, within its bound."""
    verdict = check(TABLES + query)
    assert isinstance(verdict, Verdict) and verdict.outcome == BOUNDED
    assert verdict.timed is not None
    rng = random.Random(query)
    local = TimedLocal(verdict.timed)
    seen: dict[str, list[TimeRow]] = {name: [] for name in CATALOG}
    written, prefixes, second = [], [], 0
    for _ in range(10):
        batch = []
        for _ in range(rng.randint(1, 16)):
            second += rng.choice([0, 0, 0, 1, 1, 5])
            name = rng.choice([name for name in CATALOG if name in verdict.query.tables])
            values = {c: rng.choice([None, -1, 0, 1, 2, 3, 4]) for c in STREAMS[name]}
            batch.append((name, {**values, TIMES[name]: at_second(second)}))
            seen[name].append(batch[-1][1])
        second += 1
        local.add(batch, micros(at_second(second)))
        written.append(Counter({normalise(row): n for row, n in local.answer().items()}))
        prefixes.append({name: list(rows) for name, rows in seen.items()})
        assert verdict.state.entries is None or local.entries <= verdict.state.entries
    expected = answers(TABLES + query, CATALOG, prefixes)
    assert written == expected
    assert any(expected)


def test_equal_rows_that_wait_are_one_entry() -> None:
    """Values that compare alike with all partners are in one class; old timestamps do not matter."""
    query = "SELECT COUNT(*) FROM S WHERE EXISTS (SELECT 1 FROM T WHERE D > A AND D IN (1, 2) AND J > I)"
    verdict = decide(parse(TABLES + query)[0])
    assert verdict.timed is not None
    local = TimedLocal(verdict.timed)
    rows = [("S", {"A": a, "B": a, "I": at_second(a + 100)}) for a in range(-100, 100)]
    local.add(rows, micros(at_second(300)))
    waiting = [table for name, table in local.state.items() if name.endswith("waiting")]
    assert [table.num_rows for table in waiting] == [3], "A below 0, 0, and 1"
    local.add([("T", {"D": 1, "E": 0, "J": at_second(300)})], micros(at_second(301)))
    assert local.answer() == {(101,): 1}
    local.add([("T", {"D": 2, "E": 0, "J": at_second(301)})], micros(at_second(302)))
    assert local.answer() == {(102,): 1} and local.entries == 1, "only the answer is left"


RELATION = "CREATE TABLE R (X INT, Y INT);\n"
WITH_RELATIONS = (
    "SELECT A, B FROM S, R WHERE A = X AND NOT EXISTS (SELECT 1 FROM T WHERE J <= I AND D = A)",
    "SELECT A, Y FROM S, R WHERE A = X AND EXISTS (SELECT 1 FROM T WHERE J < I AND D = A)",
    "SELECT Y, COUNT(*), COUNT(D) FROM S JOIN R ON A = X LEFT JOIN T ON J <= I AND D = A GROUP BY Y",
)


@pytest.mark.parametrize("query", WITH_RELATIONS)
def test_relations_of_the_outer_query_bound_the_partners(query: str) -> None:
    """Partners come any time before the row, with one of the values of the relation."""
    verdict = check(TABLES + RELATION.replace("Y INT", "Y TINYINT") + query)
    assert isinstance(verdict, Verdict) and verdict.outcome == BOUNDED and verdict.timed is not None
    rng = random.Random(query)
    relation: list[dict[str, Any]] = [{"X": x, "Y": y} for x, y in ((0, 1), (1, 2), (1, 3), (None, 4))]
    local = TimedLocal(verdict.timed, {"R": relation})
    seen: dict[str, list[TimeRow]] = {name: [] for name in CATALOG}
    batch = []
    for second in range(60):
        name = rng.choice("ST")
        row = {**{c: rng.choice([None, 0, 1, 2, 3]) for c in STREAMS[name]}, TIMES[name]: at_second(second)}
        seen[name].append(row)
        batch.append((name, row))
        if second % 10 == 9:
            local.add(batch, micros(at_second(second + 1)))
            batch = []
    catalog = {**CATALOG, "R": [("X", "INT"), ("Y", "INT")]}
    (expected,) = answers(TABLES + RELATION + query, catalog, [{**seen, "R": relation}])
    assert Counter({normalise(row): n for row, n in local.answer().items()}) == expected
    assert expected
