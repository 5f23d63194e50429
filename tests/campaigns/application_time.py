"""Random queries with application time: verdicts, witnesses and answers.

    python -m tests.campaigns.application_time --cases 5000

Compares each verdict with the definition, each witness with DuckDB, and the answers of each bounded query
with DuckDB after every batch of random streams.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from millpond.analysis.decide import decide as check_query
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, Verdict
from millpond.frontend.parse import parse
from tests.campaigns.exact_engine import random_batches
from tests.support import time_definition
from tests.support.local import Local
from tests.support.oracle import answers, normalise
from tests.support.time_fooling import confirm_time_witness
from tests.support.time_generate import TimeCase, TimeRow, random_time_case, random_time_rows
from tests.support.timed_local import TimedLocal, micros

ROWS = 30
WITNESS_ROWS = 4


@dataclass(frozen=True)
class Finding:
    """The result of examining one query; ``problems`` is empty if everything agrees."""

    seed: int
    outcome: str
    expected: str
    results: bool
    problems: tuple[str, ...] = field(default=())


def examine(seed: int, self_join: float = 0.0, aggregate: str | None = None) -> Finding:
    rng = random.Random(seed)
    chosen: dict[str, Any] = {"aggregate": 1.0, "aggregates": [(aggregate, False)]} if aggregate else {}
    case = random_time_case(rng, self_join=self_join, **chosen)
    verdict = check_query(parse(case.sql)[0])
    expected = time_definition.decide(case) if not self_join else ""
    problems = []
    if {verdict.outcome, expected} == {BOUNDED, UNBOUNDED}:
        problems.append(f"{verdict.outcome}, but {expected} by definition")
    if verdict.outcome == UNBOUNDED:
        refusal = confirm_time_witness(case.sql, case.catalog, verdict.witness(WITNESS_ROWS))
        problems += [f"witness: {refusal}"] if refusal else []
    results = False
    if verdict.outcome == BOUNDED:
        problem, results = run_executor(rng, case, verdict)
        problems += [problem] if problem else []
    described = tuple(f"seed {seed}: {p}\n{case.sql}" for p in problems)
    return Finding(seed, verdict.outcome, expected, results, described)


def align_batches(
    batches: Sequence[Sequence[tuple[str, TimeRow]]], case: TimeCase
) -> list[list[tuple[str, TimeRow]]]:
    """Batches in time order, with rows moved so that no timestamp is divided between two batches."""
    rows = [row for batch in batches for row in batch]
    out: list[list[tuple[str, TimeRow]]] = []
    wanted, start = 0, 0
    for batch in batches:
        wanted += len(batch)
        end = max(wanted, start)
        while 0 < end < len(rows) and _at(case, rows[end]) == _at(case, rows[end - 1]):
            end += 1
        if end > start:
            out.append(rows[start:end])
        start = end
    return out


def _at(case: TimeCase, row: tuple[str, TimeRow]) -> object:
    return row[1][case.times[row[0]]]


def run_executor(rng: random.Random, case: TimeCase, verdict: Verdict) -> tuple[str | None, bool]:
    """Run the executor: after every batch it must have emitted DuckDB's answer, within its bound."""
    rows = list(random_time_rows(rng, case, ROWS, nulls=rng.choice([0.0, 0.1])))
    batches = align_batches(random_batches(rng, rows), case)
    seen: dict[str, list[TimeRow]] = {name: [] for name in case.catalog}
    seen_after = []
    for batch in batches:
        seen = {name: [*known, *(row for s, row in batch if s == name)] for name, known in seen.items()}
        seen_after.append(seen)
    truth = answers(case.sql, case.catalog, seen_after)
    if verdict.timed is not None:
        local: TimedLocal | Local = TimedLocal(verdict.timed)
    else:
        assert verdict.plan is not None
        local = Local(verdict.plan)
    for i, (batch, expected) in enumerate(zip(batches, truth, strict=True)):
        now = max((micros(row[case.times[name]]) for name, row in batch), default=0)
        if isinstance(local, TimedLocal):
            local.add(batch, now)
        else:
            local.add(batch)
        found = Counter({normalise(row): n for row, n in local.answer().items()})
        if found != expected:
            return f"after batch {i}: {found} emitted, {expected} expected", True
        bound = verdict.state.entries
        if bound is not None and local.entries > bound:
            return f"after batch {i}: {local.entries} entries kept, {bound} promised", True
    return None, bool(truth and truth[-1])


def examine_safely(seed: int, aggregate: str | None = None) -> Finding:
    """Examine a seed; an exception becomes a problem of the finding."""
    try:
        return examine(seed, aggregate=aggregate)
    except Exception:
        return Finding(seed, "crash", "", False, (f"seed {seed}: {traceback.format_exc()}",))


def examine_many(seeds: Iterable[int], processes: int, aggregate: str | None = None) -> Iterable[Finding]:
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(partial(examine_safely, aggregate=aggregate), seeds, chunksize=25)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--aggregate", help="only queries with this aggregate, such as AVG")
    options = parser.parse_args(argv)
    started, failed, results = time.monotonic(), 0, 0
    counts: Counter[tuple[str, str]] = Counter()
    seeds = range(options.seed, options.seed + options.cases)
    for finding in examine_many(seeds, options.processes, options.aggregate):
        counts[finding.expected, finding.outcome] += 1
        results += finding.results
        failed += len(finding.problems)
        for problem in finding.problems:
            print(problem, flush=True)
    print(f"{options.cases} queries in {time.monotonic() - started:.0f} s")
    for (expected, outcome), count in sorted(counts.items()):
        print(f"  {count:7}  definition: {expected:9}  checker: {outcome}")
    print(f"  {results} of the bounded ones had results to compare at the end")
    print(f"{failed} problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
