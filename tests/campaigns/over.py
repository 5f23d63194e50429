"""Window functions: random queries in random micro-batches against DuckDB on all rows at once.

python -m tests.campaigns.over --cases 500 --seed 1
"""

from __future__ import annotations

import argparse
import random

from millpond import Verdict, check
from millpond.engines.over.compile import find_gap
from tests.support.over_generate import CATALOG, make_query, make_rows
from tests.support.over_local import answer_at_once, cut_at_random, run_in_batches


def run_case(seed: int) -> str:
    """What became of a random case: "equal", or the outcome of a query that is not run."""
    rng = random.Random(seed)
    sql = make_query(rng)
    verdict = check(f"{CATALOG} {sql}")
    assert isinstance(verdict, Verdict)
    if verdict.over is None or find_gap(verdict.over) is not None:
        return verdict.outcome if verdict.over is None else "not run"
    rows = make_rows(rng, rng.choice([5, 20, 60]))
    found, most, late = run_in_batches(verdict, cut_at_random(rng, rows))
    expected = answer_at_once(verdict.query, rows)
    assert late == 0, f"seed {seed}: {late} late rows: {sql}"
    assert found == expected, f"seed {seed}: {sql}\nmissing {expected - found}\nwrong {found - expected}"
    entries = verdict.state.entries
    assert entries is None or most <= entries, f"seed {seed}: {most} entries, not {entries}: {sql}"
    return "equal"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    tally: dict[str, int] = {}
    for seed in range(given.seed, given.seed + given.cases):
        outcome = run_case(seed)
        tally[outcome] = tally.get(outcome, 0) + 1
    print(tally)


if __name__ == "__main__":
    main()
