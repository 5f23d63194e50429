"""The rates of streams, compared with a count of all rows; the state at a declared rate."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from millpond.analysis.decide import decide
from millpond.engines.timed.rates import (
    Rates,
    StreamRate,
    count_by_second,
    decode_counts,
    decode_rates,
    encode_counts,
    encode_rates,
    merge_rates,
)
from millpond.engines.timed.state import ShardState
from millpond.frontend.parse import parse
from tests.support.timed_local import TimedLocal

SECOND = 1_000_000
NAME = bytes(16)


def add(rates: Rates | None, declared: dict[str, int], delay: int, **times: list[int]) -> Rates:
    """A micro-batch with rows at these microseconds, in two tasks; the state goes through its encoding."""
    tables = [count_by_second(s, pa.array(part)) for s, ts in times.items() for part in (ts[::2], ts[1::2])]
    payloads = [encode_counts([table], NAME) for table in tables]
    merged = merge_rates(rates, decode_counts(payloads, NAME), declared, dict.fromkeys(times, delay))
    return decode_rates(encode_rates(merged, NAME), NAME)


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_a_second_may_arrive_in_any_batches_within_the_delay(seed: int) -> None:
    rng = random.Random(seed)
    start, delay, limit = (
        rng.choice([-50, 0, 1_700_000_000]) * SECOND,
        rng.choice([0, 1, 4]),
        rng.randint(1, 4),
    )
    times = sorted(start + rng.randrange(rng.choice([5, 60, 100_000]) * SECOND) for _ in range(60))
    arrivals = sorted(times, key=lambda t: t + rng.uniform(0, delay * SECOND))
    rates, excess = None, 0
    while arrivals:
        size = rng.randint(1, 20)
        rates = add(rates, {"s": limit}, delay * SECOND, s=arrivals[:size])
        excess += rates.streams["s"].excess
        arrivals = arrivals[size:]
    assert rates is not None
    counts = Counter(t // SECOND for t in times)
    found = rates.streams["s"]
    assert (found.rows, found.peak) == (60, max(counts.values()))
    assert (found.first, found.last) == (min(counts), max(counts))
    assert found.average == pytest.approx(60 / (max(counts) - min(counts) + 1))
    assert excess == sum(max(n - limit, 0) for n in counts.values())
    assert rates.counts.num_rows <= delay + 1  # only seconds that may still get rows are kept


def test_streams_are_counted_apart_and_need_not_declare_a_rate() -> None:
    rates = add(None, {"s": 1}, 0, s=[0, 1, 2], t=[5, 6])
    rates = add(rates, {"s": 1}, 0, t=[7])
    assert rates.streams == {"s": StreamRate(3, 0, 0, 3, 0), "t": StreamRate(3, 0, 0, 3, 0)}


def test_a_task_without_rows_counts_nothing() -> None:
    empty = add(None, {}, 0, s=[])
    assert empty.streams == {} and count_by_second("s", pa.array([None], pa.int64())).num_rows == 0


# --- what is kept -------------------------------------------------------------------------------------

RATED = "TBLPROPERTIES ('watermark' = '2 seconds', 'rate' = '3 per second')"
STREAMS = f"""
CREATE STREAMING TABLE S (A INT, I TIMESTAMP) {RATED};
CREATE STREAMING TABLE T (B INT, J TIMESTAMP) {RATED};
"""


@pytest.mark.parametrize(
    "query",
    [
        "SELECT A, I, J FROM S, T WHERE A = B AND J BETWEEN I AND I + INTERVAL 10 SECONDS",
        "SELECT 1 FROM S, T WHERE A < B AND J BETWEEN I - INTERVAL 3 SECONDS AND I + INTERVAL 9 SECONDS",
        "SELECT A FROM S WHERE EXISTS (SELECT 1 FROM T WHERE A < B AND J > I AND J < I + INTERVAL 9 SECONDS)",
    ],
)
def test_the_state_stays_within_the_bound_of_the_rate_over_many_windows(query: str) -> None:
    """Twenty windows at the declared rate, with rows out of order; neither rows nor values pile up."""
    verdict = decide(parse(STREAMS + query)[0])
    assert verdict.timed is not None and verdict.state.entries is not None
    local = TimedLocal(verdict.timed)
    rng = random.Random(1)
    start = datetime(2024, 1, 1)
    kept, values = [], []
    for begin in range(0, 200, 4):
        rows = [
            (stream, {value: rng.randrange(50), time: start + timedelta(seconds=second + rng.random())})
            for stream, value, time in (("S", "A", "I"), ("T", "B", "J"))
            for second in range(begin, begin + 4)
            for _ in range(3)
        ]
        rng.shuffle(rows)
        local.receive(rows)
        states = [ShardState(local.program, store, local.cache) for store in local.stores]
        kept.append(sum(state.count_entries() for state in states))
        values.append(sum(len(store.values) for store in local.stores))
    assert max(kept) <= verdict.state.entries
    assert max(kept[5:]) <= 1.1 * max(kept[:10]) and max(values[5:]) <= max(values[:10]) + len(local.stores)
    assert local.emitted.total() > 300
