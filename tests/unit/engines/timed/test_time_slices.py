"""Rows in a window of each other are found by slices of time: every pair, and each only once."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from millpond.analysis.decide import decide
from millpond.engines.timed import execute
from millpond.engines.timed.time_slices import TimeSlice
from millpond.frontend.parse import parse
from millpond.runtime.duckdb import DuckDb
from tests.support.timed_local import TimedLocal
from tests.support.timed_scenario import STREAMS, TimedScenario, assert_timed_answers

INEQUALITY = (
    "SELECT A, B FROM S, T WHERE A < B AND J BETWEEN I - INTERVAL 2 SECONDS AND I + INTERVAL 3 SECONDS"
)


def test_every_pair_in_the_window_is_found_once() -> None:
    db, rng = DuckDb(), random.Random(0)
    for _ in range(30):
        low = rng.randint(-9, 9)
        high = low + rng.choice([0, 1, 2, 5, 13])  # other.t - one.t is between these
        slice_ = TimeSlice("a", "b", -low, max(1, high - low))
        times = {name: [rng.randint(-40, 40) for _ in range(25)] for name in "ab"}
        tables = {name: pa.table({"t": pa.array(values, pa.int64())}) for name, values in times.items()}
        window = f"b.t - a.t BETWEEN {low} AND {high}"
        condition = f"{window} AND {slice_.condition({'a': 'a', 'b': 'b'})}"
        sql = f"SELECT a.t AS one, b.t AS other FROM {slice_.number_rows('a')} a, b WHERE {condition}"
        found = [(row["one"], row["other"]) for row in db.query(sql, tables).to_pylist()]
        assert sorted(found) == sorted((a, b) for a in times["a"] for b in times["b"] if low <= b - a <= high)


@pytest.mark.parametrize("slices", [0, 1])
def test_slices_do_not_change_the_answer(slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "SLICES", slices)
    rng = random.Random(1)
    rows = sorted((n // 2, rng.choice("ST"), rng.randint(0, 5)) for n in range(60))
    lines = [(name, value, 9, second) for second, name, value in rows]
    batches = [lines[:20], lines[20:22], lines[22:60]]
    assert_timed_answers(TimedScenario("slices", STREAMS + INEQUALITY, batches))


def test_a_batch_that_spans_many_windows_is_joined_by_slices() -> None:
    verdict = decide(parse(STREAMS + INEQUALITY)[0])
    assert verdict.timed is not None
    local = TimedLocal(verdict.timed)
    (step,) = local.program.needs[0].sets
    assert step.slice_width == 5_000_000
    rows: list[tuple[str, dict[str, Any]]] = []
    for n in range(100):
        moment = datetime(2024, 1, 1) + timedelta(seconds=n)
        rows += [("S", {"A": 1, "A2": 0, "I": moment}), ("T", {"B": 2, "B2": 0, "J": moment})]
    local.receive(rows, ended=True)
    assert sum(local.answer().values()) == 6 * 100 - (1 + 2) - (1 + 2 + 3)
