"""Random queries with windows of time against the definition, brute force and DuckDB.

    python -m tests.campaigns.windows --cases 10000

The checker is compared with the definition, every witness is confirmed on all subsets of its rows, and the
engine must have emitted DuckDB's answer after every batch.
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
from functools import partial

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, UNDETERMINED, Verdict
from millpond.frontend.parse import parse
from tests.campaigns.application_time import Finding
from tests.campaigns.exact_engine import random_batches
from tests.support import window_definition
from tests.support.definition import UNKNOWN
from tests.support.local import Local
from tests.support.oracle import answers, normalise
from tests.support.time_fooling import confirm_time_witness
from tests.support.time_generate import TimeRow
from tests.support.timed_local import TimedLocal, micros
from tests.support.window_generate import WindowCase, random_window_case, random_window_rows

ROWS = 40
WITNESS_ROWS = 4
Rows = list[tuple[str, TimeRow]]


def examine(
    seed: int,
    times: float = 0.5,
    functions: float = 0.5,
    self_joins: float = 0.0,
    verdict_only: bool = False,
) -> Finding:
    """Everything that can be checked of one random query.

    ``times``: how often it shows timestamps; ``functions``: how often, functions of them; ``self_joins``: how
    often it joins a stream with itself, which the definition does not judge.
    """
    rng = random.Random(seed)
    case = random_window_case(rng, times=times, functions=functions, self_join=self_joins)
    verdict = decide(parse(case.sql)[0])
    joins_itself = len(set(case.occurrences.values())) < len(case.occurrences)
    expected = UNKNOWN if joins_itself else window_definition.decide(case)
    problems = []
    if {verdict.outcome, expected} == {BOUNDED, UNBOUNDED}:
        problems.append(f"{verdict.outcome}, but {expected} by definition")
    if verdict.outcome == UNBOUNDED:
        refusal = confirm_time_witness(case.oracle, case.catalog, verdict.witness(WITNESS_ROWS))
        problems += [f"witness: {refusal}"] if refusal else []
    results = False
    if verdict.outcome == BOUNDED and not verdict_only:
        problem, results = run_engine(rng, case, verdict)
        problems += [problem] if problem else []
    described = tuple(f"seed {seed}: {problem}\n{case.sql}" for problem in problems)
    return Finding(seed, verdict.outcome, expected, results, described)


def run_engine(rng: random.Random, case: WindowCase, verdict: Verdict) -> tuple[str | None, bool]:
    """Run the engine on random rows: what it emitted must be DuckDB's answer after every batch."""
    rows = random_window_rows(rng, case, ROWS, nulls=rng.choice([0.0, 0.1]))
    batches = cut_between_timestamps(random_batches(rng, rows), case)
    seen: dict[str, list[TimeRow]] = {name: [] for name in case.catalog}
    seen_after = []
    for batch in batches:
        seen = {name: [*known, *(row for s, row in batch if s == name)] for name, known in seen.items()}
        seen_after.append(seen)
    truth = answers(case.oracle, case.catalog, seen_after)
    local = TimedLocal(verdict.timed, updates=True) if verdict.timed is not None else None
    plain = Local(verdict.plan) if verdict.plan is not None else None
    for number, (batch, expected) in enumerate(zip(batches, truth, strict=True)):
        if local is not None:
            local.add(batch, max((timestamp(case, row) for row in batch), default=0))
            answer = local.answer()
        else:
            assert plain is not None
            plain.add(batch)
            answer = plain.answer()
        found = Counter({normalise(row): n for row, n in answer.items()})
        if found != expected:
            return f"after batch {number}: {found - expected} too many, {expected - found} missing", True
    return None, bool(truth and truth[-1])


def timestamp(case: WindowCase, row: tuple[str, TimeRow]) -> int:
    """The timestamp of a row in microseconds."""
    return micros(row[1][case.times[row[0]]])


def cut_between_timestamps(batches: Sequence[Sequence[tuple[str, TimeRow]]], case: WindowCase) -> list[Rows]:
    """The batches with their ends moved back, so that rows with equal timestamps share a batch."""
    out: list[Rows] = []
    for batch in batches:
        for row in batch:
            starts = not out or row is batch[0]
            if starts and out and timestamp(case, out[-1][-1]) == timestamp(case, row):
                out[-1].append(row)
            elif starts:
                out.append([row])
            else:
                out[-1].append(row)
    return out


def examine_safely(
    seed: int, times: float, functions: float, self_joins: float, verdict_only: bool
) -> Finding:
    """The findings of one seed; an exception is one."""
    try:
        return examine(seed, times, functions, self_joins, verdict_only)
    except Exception:
        return Finding(seed, "crash", "", False, (f"seed {seed}: {traceback.format_exc()}",))


def examine_many(seeds: Iterable[int], options: argparse.Namespace) -> Iterable[Finding]:
    """The findings of many seeds, in several processes."""
    how = {
        "times": options.times,
        "functions": options.functions,
        "self_joins": options.self_joins,
        "verdict_only": options.verdicts,
    }
    with ProcessPoolExecutor(options.processes) as pool:
        yield from pool.map(partial(examine_safely, **how), seeds, chunksize=25)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="windows", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--times", type=float, default=0.5, help="how many queries show timestamps")
    parser.add_argument("--functions", type=float, default=0.5, help="how many have functions of timestamps")
    parser.add_argument("--self-joins", type=float, default=0.0, help="how many join a stream with itself")
    parser.add_argument("--verdicts", action="store_true", help="check the verdicts, and run no engine")
    options = parser.parse_args(argv)
    began = time.monotonic()
    counts: Counter[tuple[str, str]] = Counter()
    problems = 0
    seeds = range(options.seed, options.seed + options.cases)
    for finding in examine_many(seeds, options):
        counts[finding.outcome, finding.expected] += 1
        if finding.outcome == UNDETERMINED:
            print(f"seed {finding.seed}: undetermined, {finding.expected} by definition", flush=True)
        for problem in finding.problems:
            problems += 1
            print(problem, flush=True)
    for (outcome, expected), count in sorted(counts.items()):
        print(f"{count:>7,} {outcome}, {expected or 'not decided'} by definition")
    print(f"{options.cases:,} queries, {problems} problems, {time.monotonic() - began:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
