"""Random queries whose groups and sets close, on rows out of order, against DuckDB.

    python -m tests.campaigns.closing --cases 2000

Rows arrive in batches, late by more or less than the watermarks of the streams allow.  At the end of the
input, every group must have been written exactly once (with updates: its last revision must be right), as in
DuckDB's answer on all rows that were not late, and nothing that closes is kept.  Half of the inputs are
continued after their end.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from millpond.analysis.decide import analyse, decide
from millpond.analysis.verdict import BOUNDED
from millpond.frontend.parse import parse
from tests.campaigns.exact_engine import random_batches
from tests.support.closing_generate import ClosingCase, random_closing_case
from tests.support.oracle import answer_duckdb, normalise
from tests.support.time_generate import TimeRow, add_watermarks, order_by_arrival
from tests.support.timed_local import TimedLocal
from tests.support.window_generate import random_window_rows

ROWS = 40
Rows = list[tuple[str, TimeRow]]


def find_case(seed: int) -> tuple[random.Random, ClosingCase]:
    """The first random query, from a seed on, that is bounded and that the timed engine runs."""
    rng = random.Random(seed)
    while True:
        case = random_closing_case(rng)
        [query] = parse(case.sql)
        if analyse(query)[1]:
            continue  # without the search for a witness
        verdict = decide(query)
        if verdict.outcome == BOUNDED and verdict.timed is not None:
            return rng, case


def examine(seed: int) -> tuple[str | None, bool]:
    """What is wrong with the answer to the query of a seed, and whether the answer has rows."""
    rng, case = find_case(seed)
    delay = rng.choice([0, 2, 5])
    query = add_watermarks(parse(case.sql)[0], delay)
    plan = decide(query).timed
    assert plan is not None
    updates = rng.random() < 0.3
    rows = random_window_rows(rng, case.base, ROWS, nulls=rng.choice([0.0, 0.1]))
    rows = [row for row in rows if row[0] in query.tables]
    arriving = order_by_arrival(rng, case.base.times, rows, rng.choice([0, delay, 2 * delay, 8]))
    batches = random_batches(rng, arriving)
    ends = {len(batches) - 1}
    if rng.random() < 0.5:
        ends.add(rng.randrange(len(batches)))
    local = TimedLocal(plan, updates=updates)
    in_time: Rows = []
    written: Counter[tuple[Any, ...]] = Counter()
    for number, batch in enumerate(batches):
        in_time += local.receive(batch, ended=number in ends)
        if not updates and written - local.emitted:
            return f"seed {seed}: rows were taken back after batch {number}\n{case.sql}", True
        written = Counter(local.emitted)
    catalog = case.base.catalog
    seen = {name: [row for stream, row in in_time if stream == name] for name in catalog}
    expected = answer_duckdb(case.duckdb, catalog, seen)
    found = Counter({normalise(row): n for row, n in local.answer().items()})
    if found != expected:
        problem = f"{found - expected} too many, {expected - found} missing"
        return f"seed {seed}{' with updates' if updates else ''}: {problem}\n{case.sql}", bool(expected)
    held = [need.result for need in local.program.needs if need.is_held and need.result in local.state]
    if held:
        return f"seed {seed}: {held} are kept after the end of the input\n{case.sql}", bool(expected)
    return None, bool(expected)


def examine_safely(seed: int) -> tuple[str | None, bool]:
    """The finding of one seed; an exception is one."""
    try:
        return examine(seed)
    except Exception:
        return f"seed {seed}: {traceback.format_exc()}", False


def examine_many(seeds: Iterable[int], processes: int) -> Iterable[tuple[str | None, bool]]:
    """The findings of many seeds, in several processes."""
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(examine_safely, seeds, chunksize=10)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="closing", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(argv)
    began = time.monotonic()
    problems = answered = 0
    seeds = range(options.seed, options.seed + options.cases)
    for done, (problem, has_rows) in enumerate(examine_many(seeds, options.processes), start=1):
        answered += has_rows
        if done % 100 == 0:
            print(f"{done:,} queries after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if problem is not None:
            problems += 1
            print(problem, flush=True)
    seconds = time.monotonic() - began
    print(f"{options.cases:,} queries, {answered:,} with results, {problems} problems, {seconds:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
