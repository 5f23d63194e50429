"""Random queries of several blocks against brute force in DuckDB.

    python -m tests.campaigns.blocks --cases 500

The query as it is read and merged must have the answer of its text.  Every witness is confirmed on the
text, for all subsets of its rows.  Bounded queries are attacked: no witness may be found.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED, UNBOUNDED
from millpond.analysis.witness.templates import find_template
from millpond.errors import SqlError
from millpond.frontend.parse import parse
from millpond.runtime.query_sql import evaluate_worlds
from tests.support.nested_generate import CATALOG, DECLARED, random_nested_query, random_rows
from tests.support.oracle import answer_one, answers, normalise
from tests.support.time_fooling import confirm_time_witness

ROWS = 14
WORLDS = 6
WITNESS_ROWS = 4


@dataclass(frozen=True)
class BlockFinding:
    """The result of examining one query; ``problems`` is empty if everything agrees."""

    outcome: str
    sql: str
    problems: list[str]


def examine(seed: int) -> BlockFinding:
    """Everything that can be checked of one random query."""
    rng = random.Random(seed)
    text = random_nested_query(rng)
    sql = DECLARED + text
    try:
        (query,) = parse(sql)
    except SqlError as error:
        return BlockFinding("refused", sql, [str(error)] if "not supported" not in str(error) else [])
    problems: list[str] = []
    worlds = [random_rows(rng, rng.randrange(ROWS)) for _ in range(WORLDS)]
    expected = answers(sql, CATALOG, worlds)
    found = evaluate_worlds(query, worlds)
    for world, one, other in zip(worlds, expected, found, strict=True):
        same: Counter[tuple[object, ...]] = Counter()
        for row, count in other.items():
            same[normalise(row)] += count
        if one != same and (plain := answer_one(sql, CATALOG, world)) != same:
            # DuckDB may get the subqueries wrong that compute the answers to several worlds at once.
            problems.append(f"the merged query answers {dict(same)}, not {dict(plain)}")
            break
    verdict = decide(query)
    if verdict.outcome == UNBOUNDED:
        refusal = confirm_time_witness(sql, CATALOG, verdict.witness(WITNESS_ROWS))
        problems += [refusal] if refusal else []
    elif verdict.outcome == BOUNDED:
        template = find_template(parse(sql)[0])
        problems += [f"bounded, but {template} is a witness"] if template is not None else []
    return BlockFinding(verdict.outcome, sql, problems)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", default="", help="print the queries with this outcome")
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    failures = 0
    started = time.time()
    for seed in range(options.seed, options.seed + options.cases):
        try:
            finding = examine(seed)
        except Exception:
            print(f"seed {seed}: {traceback.format_exc()}")
            failures += 1
            continue
        outcomes[finding.outcome] += 1
        if finding.outcome == options.list:
            print(seed, finding.sql.split(";")[-1].strip())
        for problem in finding.problems:
            failures += 1
            print(f"seed {seed}: {problem}\n{finding.sql}")
    print(f"{options.cases} queries, {dict(outcomes)}, {failures} failures, {time.time() - started:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
