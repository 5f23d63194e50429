"""Subqueries that are read as joins have the rows that DuckDB finds for the text itself."""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millpond.frontend.parse import parse
from millpond.runtime.query_sql import evaluate_worlds
from millpond.runtime.row_queries import RowTable, local_type, query_rows

TABLES = """
    CREATE STREAMING TABLE orders (id INT, item STRING, amount INT, at TIMESTAMP);
    CREATE STREAMING TABLE payments (item STRING, amount INT, at TIMESTAMP);
    CREATE TABLE prices (item STRING, price INT, grade INT, since TIMESTAMP);
    CREATE TABLE offers (item STRING, price INT);
"""
START = datetime(2026, 3, 1)

FILE = Path(__file__).parents[2] / "fixtures" / "subquery_answers.sql"
TEXTS = [each.strip() for each in re.sub("--.*", "", FILE.read_text()).split(";") if each.strip()]


def _make_rows(rng: random.Random, names: list[str], size: int) -> list[dict[str, Any]]:
    hours = [START + timedelta(hours=hour) for hour in range(8)]
    values: dict[str, list[Any]] = {"item": ["a", "b", "c", None], "since": [None, *hours], "at": hours}
    numbers: list[Any] = [None, *range(6)]
    return [
        {name: i if name == "id" else rng.choice(values.get(name, numbers)) for name in names}
        for i in range(size)
    ]


@pytest.mark.parametrize("text", TEXTS)
def test_a_subquery_that_is_read_as_a_join_has_the_same_rows(text: str) -> None:
    (query,) = parse(TABLES + text)
    (declared,) = parse(TABLES + "SELECT * FROM orders, payments, prices, offers")
    rng = random.Random(text)
    for size in (0, 1, 3, 8, 8, 8):
        rows = {
            name: _make_rows(rng, [c.name for c in table.columns], rng.randint(0, size))
            for name, table in declared.tables.items()
        }
        tables = {
            name: RowTable(tuple((c.name, local_type(c.type)) for c in table.columns), rows[name])
            for name, table in declared.tables.items()
        }
        _, expected = query_rows(text, tables)
        (found,) = evaluate_worlds(query, [rows])
        assert _plain(found) == _plain(Counter(map(tuple, expected))), rows


def _plain(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    plain: Counter[tuple[Any, ...]] = Counter()
    for row, count in rows.items():
        plain[tuple(float(each) if isinstance(each, int) else each for each in row)] += count
    return plain
