"""The rates of streams, counted over micro-batches and compared with a count of all rows."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

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
