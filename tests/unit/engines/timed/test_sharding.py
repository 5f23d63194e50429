"""Queries over time that are divided into shards: which ones, by which columns, and their answers."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from millpond.analysis.decide import decide
from millpond.engines.timed.sharding import SHARDS, find_shard_columns
from millpond.frontend.parse import parse
from millpond.plan.needs import TimedPlan
from tests.support.oracle import answers, normalise
from tests.support.timed_local import TimedLocal

CATALOG = {
    "S": [("A", "INT"), ("A2", "INT"), ("I", "TIMESTAMP")],
    "T": [("B", "BIGINT"), ("B2", "INT"), ("J", "TIMESTAMP")],
    "U": [("C", "INT"), ("C2", "STRING"), ("K", "TIMESTAMP")],
}
STREAMS = (
    "".join(
        f"CREATE STREAMING TABLE {name} ({', '.join(' '.join(c) for c in columns)}) "
        "TBLPROPERTIES ('watermark' = '3 seconds');"
        for name, columns in CATALOG.items()
    )
    + "CREATE TABLE R (X INT, Y INT);"
)
WINDOW = "J BETWEEN I AND I + INTERVAL 9 SECONDS"
CHAIN = f"{WINDOW} AND K BETWEEN J AND J + INTERVAL 5 SECONDS"


def plan_of(sql: str) -> TimedPlan:
    verdict = decide(parse(STREAMS + sql)[0])
    assert verdict.timed is not None, verdict.explain()
    return verdict.timed


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        (f"SELECT A, J FROM S, T WHERE A = B AND {WINDOW}", {"S": "A", "T": "B"}),
        (f"SELECT A2 FROM S, T WHERE A2 = B AND A < B2 AND {WINDOW}", {"S": "A2", "T": "B"}),
        (f"SELECT A FROM S, T, U WHERE A = B AND C = A AND {CHAIN}", {"S": "A", "T": "B", "U": "C"}),
        (f"SELECT A FROM S, T, R WHERE A = B AND X = A2 AND {WINDOW}", {"S": "A", "T": "B"}),
        (
            "SELECT a.A2 FROM S a, S b WHERE a.A = b.A AND b.I BETWEEN a.I AND a.I + INTERVAL 4 SECONDS",
            {"S": "A"},
        ),
        (
            f"SELECT A, COUNT(*) FROM S, T WHERE A = B AND A BETWEEN 0 AND 9 AND {WINDOW} GROUP BY A",
            {"S": "A", "T": "B"},
        ),
        (f"SELECT DISTINCT B FROM S, T WHERE A = B AND B BETWEEN 0 AND 9 AND {WINDOW}", {"S": "A", "T": "B"}),
        # two keys: the one in the groups
        (
            f"SELECT B2, COUNT(*) FROM S, T WHERE A = B AND A2 = B2 AND B2 IN (1, 2) AND {WINDOW} "
            "GROUP BY B2",
            {"S": "A2", "T": "B2"},
        ),
        # no join key, or one at a distance, or one that constants fix
        (f"SELECT A FROM S, T WHERE A < B AND {WINDOW}", None),
        (f"SELECT A FROM S, T WHERE A = B + 1 AND {WINDOW}", None),
        (f"SELECT A FROM S, T WHERE A = 1 AND B = 1 AND {WINDOW}", None),
        (f"SELECT A FROM S, T, U WHERE A = B AND B2 = C AND {CHAIN}", None),
        # a stream by two columns
        ("SELECT a.A FROM S a, S b WHERE a.A = b.A2 AND b.I BETWEEN a.I AND a.I + INTERVAL 4 SECONDS", None),
        # results without the key
        (f"SELECT COUNT(*) FROM S, T WHERE A = B AND {WINDOW}", None),
        (f"SELECT DISTINCT B2 FROM S, T WHERE A = B AND B2 = 3 AND {WINDOW}", None),
        # no window
        ("SELECT A FROM S, T WHERE A = B AND I > J AND B BETWEEN 0 AND 9", None),
    ],
)
def test_the_shard_column_of_each_stream(sql: str, columns: dict[str, str] | None) -> None:
    assert find_shard_columns(plan_of(sql)) == columns


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT A, A2, J FROM S, T WHERE A = B AND {WINDOW}",
        f"SELECT A, COUNT(*), MAX(B2) FROM S, T WHERE A = B AND A BETWEEN 0 AND 9 AND {WINDOW} GROUP BY A",
        f"SELECT DISTINCT B, A2 FROM S, T WHERE A = B AND A2 IN (0, 1) AND B BETWEEN 0 AND 9 AND {WINDOW}",
    ],
)
def test_shards_together_give_the_answer(sql: str) -> None:
    rng = random.Random(0)
    local = TimedLocal(plan_of(sql), divide=True)
    assert local.program.shards == SHARDS == len(local.stores)
    seen: dict[str, list[dict[str, Any]]] = {"S": [], "T": []}
    second = 0
    for number in range(8):
        batch = []
        for _ in range(rng.randint(0, 12)):
            name = rng.choice("ST")
            moment = datetime(2024, 1, 1) + timedelta(seconds=max(0, second - rng.randint(0, 4)))
            values = [rng.choice([None, 0, 1, 2, 7]), rng.randint(0, 2), moment]
            batch.append((name, dict(zip((c for c, _ in CATALOG[name]), values, strict=True))))
            second += rng.choice([0, 1, 2])
        for name, row in local.receive(batch, ended=number == 7):
            seen[name].append(row)
    (truth,) = answers(STREAMS + sql, {name: CATALOG[name] for name in seen}, [seen])
    assert Counter({normalise(row): n for row, n in local.answer().items()}) == truth
    assert truth
