"""Random queries that join streams by time buckets, against the definition, brute force and DuckDB.

    python -m tests.campaigns.buckets --cases 2000

As ``tests.campaigns.windows``, for equal and ordered buckets instead of distances in time.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED, UNBOUNDED
from millpond.frontend.parse import parse
from tests.campaigns.application_time import Finding
from tests.campaigns.windows import WITNESS_ROWS, run_engine
from tests.support import window_definition
from tests.support.bucket_generate import random_bucket_case
from tests.support.time_fooling import confirm_time_witness


def examine(seed: int) -> Finding:
    """Everything that can be checked of one random query."""
    rng = random.Random(seed)
    made = random_bucket_case(rng)
    verdict = decide(parse(made.sql)[0])
    expected = window_definition.decide(made.case)
    problems = []
    if {verdict.outcome, expected} == {BOUNDED, UNBOUNDED}:
        problems.append(f"{verdict.outcome}, but {expected} by definition")
    if verdict.outcome == UNBOUNDED:
        refusal = confirm_time_witness(made.case.sql, made.case.catalog, verdict.witness(WITNESS_ROWS))
        problems += [f"witness: {refusal}"] if refusal else []
    results = False
    if verdict.outcome == BOUNDED:
        problem, results = run_engine(rng, made.case, verdict)
        problems += [problem] if problem else []
    described = tuple(f"seed {seed}: {problem}\n{made.sql}" for problem in problems)
    return Finding(seed, verdict.outcome, expected, results, described)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="buckets", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    options = parser.parse_args(argv)
    began = time.monotonic()
    counts: Counter[tuple[str, str, bool]] = Counter()
    problems: list[str] = []
    for seed in range(options.seed, options.seed + options.cases):
        try:
            finding = examine(seed)
        except Exception:
            finding = Finding(seed, "crash", "", False, (f"seed {seed}: {traceback.format_exc()}",))
        counts[finding.outcome, finding.expected, finding.results] += 1
        for problem in finding.problems:
            problems.append(problem)
            print(problem, flush=True)
    for (outcome, expected, results), count in sorted(counts.items()):
        rows = ", with results" if results else ""
        print(f"{count:>7,} {outcome}, {expected or 'not decided'} by definition{rows}")
    print(f"{options.cases:,} queries, {len(problems)} problems, {time.monotonic() - began:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
