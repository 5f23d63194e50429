"""Random queries with EXISTS, NOT EXISTS and outer joins: verdicts, witnesses, engine, brute force."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from millpond.frontend.parse import parse
from millpond.query.evaluate import answer
from tests.campaigns.partners import examine
from tests.support.oracle import answers, normalise
from tests.support.partner_generate import STREAMS, TIMES, random_partner_case, random_partner_rows

CATALOG = {
    name: [*((c, "INT") for c in columns), (TIMES[name], "TIMESTAMP")] for name, columns in STREAMS.items()
}
TABLES = "".join(
    f"CREATE STREAMING TABLE {name} ({', '.join(f'{c} {t}' for c, t in columns)});\n"
    for name, columns in CATALOG.items()
)
OUTER_JOINS = (
    "SELECT A, D FROM S LEFT JOIN T ON A = D AND B > 0",
    "SELECT A, D FROM S RIGHT JOIN T ON A = D WHERE B IS NULL OR B < 3",
    "SELECT A, D FROM S FULL JOIN T ON A = D AND E < B",
    "SELECT A, D, G FROM S LEFT JOIN T ON A = D LEFT JOIN U ON D = G",
    "SELECT A, D, G FROM S LEFT JOIN T ON A = D JOIN U ON A = G",
    "SELECT A, D, G FROM S JOIN T ON A = D FULL JOIN U ON B = G",
    "SELECT A, COUNT(*), COUNT(D), SUM(E) FROM S LEFT JOIN T ON A = D GROUP BY A",
    "SELECT A FROM S LEFT JOIN T ON A = D WHERE NOT EXISTS (SELECT 1 FROM U WHERE G = E)",
    "SELECT A FROM S WHERE A IN (SELECT D FROM T WHERE E > B) AND B IS NOT NULL",
    "SELECT A FROM S LEFT ANTI JOIN T ON A = D",
)


@pytest.mark.parametrize("query", OUTER_JOINS)
def test_brute_force_equals_duckdb(query: str) -> None:
    """Brute force, which confirms witnesses, against DuckDB."""
    rng = random.Random(query)
    rows: dict[str, list[dict[str, Any]]] = {
        name: [{c: rng.choice([None, 0, 1, 2, 3]) for c in columns} | {TIMES[name]: None} for _ in range(6)]
        for name, columns in STREAMS.items()
    }
    found = answer(parse(TABLES + query)[0], rows)
    text = query.replace("LEFT ANTI JOIN T ON A = D", "WHERE NOT EXISTS (SELECT 1 FROM T WHERE A = D)")
    (expected,) = answers(TABLES + text, CATALOG, [rows])
    assert Counter({normalise(row): n for row, n in found.items()}) == expected


def test_verdicts_equal_the_definition() -> None:
    """``python -m tests.campaigns.partners`` checks more of them."""
    outcomes: Counter[str] = Counter()
    for seed in range(2_000, 2_040):
        finding = examine(seed, engine=False)
        assert not finding.problems, finding.problems[0]
        outcomes[finding.outcome] += 1
    assert outcomes["bounded"] > 10 and outcomes["unbounded"] > 5


def test_the_engine_writes_the_answer_of_duckdb() -> None:
    """Rows arrive out of order; some of them are late."""
    for seed in (3_000, 3_019, 3_025, 3_027, 3_041):  # rows with and without partners are in their answers
        finding = examine(seed)
        assert not finding.problems, finding.problems[0]


def test_rows_wait_for_partners_that_may_come_any_time() -> None:
    """EXISTS with duplicates; ``python -m tests.campaigns.partners --waiting`` checks more."""
    for seed in (11, 16, 19, 25, 35):
        finding = examine(seed, waiting=True)
        assert finding.outcome == finding.expected and not finding.problems, finding.problems


def test_a_case_has_rows() -> None:
    rng = random.Random(1)
    case = random_partner_case(rng)
    assert {name for name, _ in random_partner_rows(rng, case, 60)} == set(case.catalog)
