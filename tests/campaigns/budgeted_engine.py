"""Random queries on random budgets emit only correct rows, within the budget, and all of them if it is large.

    python -m tests.campaigns.budgeted_engine --cases 2000

After every batch, DuckDB's answer must contain each emitted row at least as often.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections import Counter
from dataclasses import dataclass
from typing import Any

from millpond.engines.budgeted.plan import plan_budgeted
from millpond.errors import MillpondError
from millpond.frontend.parse import parse
from millpond.policies.registry import PolicyChoice, Use, policy_names
from millpond.query.model import Query
from millpond.query.trees import is_aggregate
from tests.campaigns.exact_engine import random_batches, rows_after_batches
from tests.support.budgeted_local import LocalBudgetedEngine
from tests.support.generate import random_case, random_keyed_case, random_rich_case, random_rows
from tests.support.oracle import answers, normalise

ROWS = 30
LARGE = 1_000_000
MAKERS = (random_case, random_rich_case, random_keyed_case)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one seed: whether it ran, shed tuples and had results, or a problem."""

    seed: int
    run: bool = True
    shed: bool = False
    results: bool = False
    problem: str | None = None


def examine(seed: int) -> Outcome:
    """Run one random query on a random budget, and compare it with DuckDB."""
    rng = random.Random(seed)
    case = MAKERS[seed % len(MAKERS)](rng)
    query = parse(case.sql)[0]
    try:
        plan_budgeted(query)
    except MillpondError:
        return Outcome(seed, run=False)
    batches = random_batches(rng, random_rows(rng, case, ROWS, nulls=rng.choice([0.0, 0.1])))
    truth = answers(case.sql, case.catalog, rows_after_batches(case, batches))
    memory = rng.choice([1, 2, 3, 5, 8, 13, LARGE])
    policy, shards = rng.choice(policy_names(Use.RUN)), rng.choice([None, 2, 3])
    setting = f"memory {memory}, {policy}, {shards} shards\n{case.sql}"
    try:
        local = LocalBudgetedEngine(query, memory, PolicyChoice(policy), shards)
        for i, (batch, expected) in enumerate(zip(batches, truth, strict=True)):
            local.add(batch, tasks=rng.choice([1, 1, 2, 3]))
            if problem := _find_problem(query, local, memory, expected):
                return Outcome(seed, True, True, True, f"after batch {i}: {problem}\n{setting}")
    except Exception:
        return Outcome(seed, True, True, True, f"{traceback.format_exc()}\n{setting}")
    return Outcome(seed, True, local.measures["shed"] > 0, bool(truth and truth[-1]))


def _find_problem(
    query: Query, local: LocalBudgetedEngine, memory: int, truth: Counter[tuple[Any, ...]]
) -> str | None:
    if local.entries > memory:
        return f"{local.entries} tuples held"
    found = Counter({normalise(row): n for row, n in local.answer().items()})
    if memory == LARGE:
        return None if found == truth else f"{found} emitted, {truth} expected"
    if not is_aggregate(query.selects[0]):
        return None if found <= truth else f"{found - truth} emitted but not in the answer"
    if len(query.selects[0].occurrences) == 1:  # an emitted group is exact at that time
        rows = Counter(normalise(row["values"]) for row in local.last if not row["_retracted"])
        return None if rows <= truth else f"{rows - truth} emitted but not in the answer"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    seen: Counter[str] = Counter()
    problems = 0
    for seed in range(options.seed, options.seed + options.cases):
        outcome = examine(seed)
        seen.update(run=outcome.run, shed=outcome.shed, results=outcome.results)
        if outcome.problem is not None:
            problems += 1
            print(f"seed {seed}: {outcome.problem}\n", flush=True)
    print(f"{options.cases} queries from seed {options.seed}: {dict(seen)}, {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
