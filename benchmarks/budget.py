"""The speed of eviction policies.

    python -m benchmarks.budget

Prints rates by CPU time on one core, after the loops are compiled: joining under HEEB, caching under LRU and
others, FlowExpect with a look-ahead of 5, and the score look-up of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import numpy as np

from millpond.lab.workloads import floor, tower
from millpond.models.array_types import integers
from millpond.models.score_tables import heeb_table
from millpond.policies.flow_expect import FlowExpect
from millpond.policies.kernels.cache_loop import run_cache
from millpond.policies.kernels.join_loop import run_join
from millpond.policies.kernels.kinds import CacheScore, JoinScore
from millpond.policies.rehearse.cache import rehearse_cache, reuse_cache
from millpond.policies.rehearse.join import heeb_join_tables
from millpond.policies.store import JoinStore

STEPS = 200_000
REFERENCES = 1_000_000


def rate(count: int, work: Callable[[], object]) -> float:
    """Items per second of CPU time, the best of three runs."""
    times = []
    for _ in range(3):
        start = process_time()
        work()
        times.append(process_time() - start)
    return count / min(times)


def join_rate(size: int) -> float:
    work = floor()
    r, s = work.streams(1, 0, STEPS)
    tables = heeb_join_tables(work.r, work.s, work.alpha(size)).align(r, s)
    run_join(r[:100], s[:100], size, JoinScore.TABLE, tables)
    return rate(STEPS, lambda: run_join(r, s, size, JoinScore.TABLE, tables))


def trace() -> np.ndarray:
    """A trace that mixes popular keys with a loop."""
    rng = np.random.default_rng(1)
    keys = np.minimum(rng.zipf(1.2, REFERENCES), 50_000)
    keys[::5] = 100_000 + np.arange(len(keys[::5])) % 3000
    return keys.astype(np.int64)


def flow_rate(size: int, ahead: int) -> float:
    work = tower()
    r, s = work.streams(1, 0, 600)

    def play() -> None:
        store = JoinStore(size, FlowExpect(work.r, work.s, ahead, size))
        for t in range(len(r)):
            store.step(t, integers(r[t]), integers(s[t]))

    return rate(len(r), play)


def main() -> None:
    print(f"{'HEEB, joining, size 10':42} {join_rate(10):>14,.0f} steps/s")
    print(f"{'HEEB, joining, size 100':42} {join_rate(100):>14,.0f} steps/s")
    keys = trace()
    for name, kind in (("LRU", CacheScore.LRU), ("FIFO", CacheScore.FIFO), ("perfect LFU", CacheScore.LFU)):
        run_cache(keys[:100], 10, kind)
        for size in (100, 1000):
            found = rate(len(keys), lambda size=size, kind=kind: run_cache(keys, size, kind))  # type: ignore[misc]
            print(f"{f'{name}, caching, size {size}':42} {found:>14,.0f} references/s")
    few = keys[:100_000]
    reuse_cache(few[:100], 10)
    found = rate(len(few), lambda: reuse_cache(few, 100))
    print(f"{'REUSE, caching, size 100':42} {found:>14,.0f} references/s")
    found = rate(len(few), lambda: rehearse_cache(few, 100))
    print(f"{'REHEARSE (3 shadows), caching, size 100':42} {found:>14,.0f} references/s")
    print(f"{'FLOWEXPECT, look-ahead 5, size 10':42} {flow_rate(10, 5):>14,.0f} steps/s")
    table = heeb_table(floor().r, 12.0)
    values = np.arange(100_000) % 40
    looked_up = rate(len(values), lambda: table.look_up(values, 0, 0))
    print(f"{'HEEB, batch look-up of 100,000':42} {looked_up:>14,.0f} tuples/s")


if __name__ == "__main__":
    main()
