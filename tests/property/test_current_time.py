"""Conditions on the current time against the same query with a random moment as a constant."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from millpond import Verdict, check
from millpond.analysis.repair.find import find_repairs
from millpond.analysis.repair.model import RepairKind
from millpond.frontend.parse import parse
from millpond.query.current_time import CLOCK
from millpond.runtime.query_sql import evaluate_worlds

CATALOG = """
CREATE STREAMING TABLE readings (sensor STRING, level INT, at TIMESTAMP);
CREATE STREAMING TABLE alarms (sensor STRING, raised TIMESTAMP);
CREATE TABLE sensors (sensor STRING, floor INT);
"""
START = datetime(2024, 3, 1, 22)
QUERIES = [
    "SELECT sensor, level FROM readings WHERE at > NOW - INTERVAL 1 HOUR",
    "SELECT sensor, level FROM readings WHERE at BETWEEN NOW - INTERVAL 3 HOURS AND NOW - INTERVAL 1 HOUR",
    "SELECT sensor, COUNT(*), MAX(at) FROM readings WHERE at >= NOW - INTERVAL 1 HOUR GROUP BY sensor",
    "SELECT DISTINCT sensor FROM readings WHERE at + INTERVAL 2 HOURS > NOW",
    "SELECT sensor, SUM(level) FROM readings WHERE CAST(at AS DATE) = TODAY GROUP BY 1 HAVING SUM(level) > 5",
    "SELECT sensor, SUM(level) FROM readings WHERE datediff(TODAY, to_date(at)) < 1 GROUP BY sensor",
    "SELECT sensor, AVG(level) FROM readings WHERE date_trunc('day', at) = date_trunc('day', NOW) GROUP BY 1",
    "SELECT r.sensor, r.level FROM readings r JOIN alarms a ON r.sensor = a.sensor AND r.at > NOW - INTERVAL"
    " 1 HOUR WHERE a.raised > NOW - INTERVAL 2 HOURS",
    "SELECT s.floor, COUNT(*) FROM readings r, sensors s WHERE r.sensor = s.sensor AND NOW < r.at + INTERVAL"
    " 1 HOUR GROUP BY s.floor",
    "WITH counts AS (SELECT sensor, COUNT(*) AS n FROM readings WHERE at > NOW - INTERVAL 1 HOUR GROUP BY 1)"
    " SELECT n, COUNT(*) FROM counts GROUP BY n",
    "WITH counts AS (SELECT sensor, COUNT(*) AS n FROM readings WHERE at > NOW - INTERVAL 1 HOUR GROUP BY 1)"
    " SELECT sensor FROM counts WHERE n > 1",
    "WITH a AS (SELECT sensor, level FROM readings WHERE at > NOW - INTERVAL 1 HOUR),"
    " b AS (SELECT sensor FROM alarms WHERE raised > NOW - INTERVAL 1 HOUR)"
    " SELECT a.sensor, MAX(a.level), COUNT(*) FROM a JOIN b ON a.sensor = b.sensor GROUP BY a.sensor",
    "SELECT sensor, level, DENSE_RANK() OVER (PARTITION BY sensor ORDER BY level) AS place FROM readings"
    " WHERE at > NOW - INTERVAL 1 HOUR",
]
Rows = dict[str, list[dict[str, Any]]]


def make_rows(rng: random.Random, now: datetime) -> Rows:
    def pick_time() -> datetime:
        return now - timedelta(minutes=rng.choice([0, 30, 60, 61, 90, 120, 180, 200, 1400, 1500]))

    sensors = ["a", "b", "c", None]
    readings = [
        {"sensor": rng.choice(sensors), "level": rng.randint(0, 4), "at": pick_time()} for _ in range(12)
    ]
    alarms = [{"sensor": rng.choice(sensors), "raised": pick_time()} for _ in range(5)]
    return {
        "readings": readings,
        "alarms": alarms,
        "sensors": [{"sensor": s, "floor": f} for s, f in (("a", 1), ("b", 1), ("c", 2))],
    }


def answer(text: str, rows: Rows) -> Counter[tuple[Any, ...]]:
    (query,) = parse(CATALOG + text)
    return evaluate_worlds(query, [rows])[0]


@pytest.mark.parametrize("text", QUERIES)
def test_the_answer_is_that_of_the_rows_of_the_windows_at_the_current_moment(text: str) -> None:
    verdict = check(CATALOG + text.replace("NOW", "now()").replace("TODAY", "current_date()"))
    assert isinstance(verdict, Verdict) and verdict.outcome == "bounded"
    kept = {window["stream"]: timedelta(seconds=window["seconds"]) for window in verdict.state.windows}
    assert kept and CLOCK.name not in kept
    found = 0
    for seed in range(20):
        rng = random.Random(seed)
        now = START + timedelta(minutes=rng.randint(0, 300))
        rows = make_rows(rng, now)
        moment = {CLOCK.name: [{"now": now}]}
        constant = text.replace("NOW", f"TIMESTAMP '{now}'").replace("TODAY", f"DATE '{now.date()}'")
        expected = answer(constant, rows)
        assert evaluate_worlds(verdict.query, [{**rows, **moment}])[0] == expected
        recent = {
            name: [row for row in each if name not in kept or row[times] >= now - kept[name]]
            for name, each, times in (
                ("readings", rows["readings"], "at"),
                ("alarms", rows["alarms"], "raised"),
                ("sensors", rows["sensors"], ""),
            )
        }
        assert answer(constant, recent) == expected
        found += bool(expected)
    assert found >= 5


def test_repairs_are_no_budget_and_keep_nothing_of_the_current_time() -> None:
    joined = "SELECT r.level FROM readings r JOIN alarms a ON r.sensor = a.sensor"
    verdict = check(f"{CATALOG} {joined} WHERE r.at > now() - INTERVAL 1 HOUR")
    assert isinstance(verdict, Verdict) and verdict.outcome == "undetermined"
    repairs = find_repairs(verdict)
    assert repairs
    for repair in repairs:
        assert repair.kind is not RepairKind.BUDGET and repair.verdict is not None
        assert CLOCK.name not in {kept.stream for kept in repair.verdict.state.streams}
        assert CLOCK.name not in {window["stream"] for window in repair.verdict.state.windows}
