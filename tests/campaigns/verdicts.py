"""Random queries without application time: verdicts, witnesses and synopses.

    python -m tests.campaigns.verdicts --cases 20000

Compares each verdict with the definition, each witness with DuckDB, and the answers from the synopses of
each bounded query with DuckDB after every row.  Prints a table of the verdicts.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from millpond.analysis.decide import decide as check_query
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, Verdict
from millpond.frontend.parse import parse
from tests.support import definition
from tests.support.generate import Case, RichCase, Row, random_case, random_rich_case, random_rows
from tests.support.naive import Naive
from tests.support.oracle import answers, confirm_witness, normalise

ROWS = 24
WITNESS_ROWS = 6


@dataclass(frozen=True)
class Finding:
    """The result of examining one query; ``problems`` is empty if everything agrees."""

    seed: int
    outcome: str
    expected: str
    self_join: bool
    results: bool
    problems: tuple[str, ...] = field(default=())


def examine_plain(seed: int) -> Finding:
    """Examine a conjunctive query over integers: definition, witness and synopsis."""
    rng = random.Random(seed)
    case = random_case(rng)
    verdict = check_query(parse(case.sql)[0])
    expected = definition.decide(case)
    problems = []
    if {verdict.outcome, expected} == {BOUNDED, UNBOUNDED}:
        problems.append(f"{verdict.outcome}, but {expected} by definition")
    return _examine(seed, rng, case, verdict, expected, problems)


def examine_rich(seed: int) -> Finding:
    """Examine any query of the language: witness and synopsis."""
    rng = random.Random(seed)
    return examine(random_rich_case(rng), seed, rng)


def examine(
    case: RichCase, seed: int, rng: random.Random | None = None, witness_rows: int = WITNESS_ROWS
) -> Finding:
    """Examine a given query: witness and synopsis, on random rows."""
    verdict = check_query(parse(case.sql)[0])
    return _examine(seed, rng or random.Random(seed), case, verdict, "", [], witness_rows)


def _examine(
    seed: int,
    rng: random.Random,
    case: Case | RichCase,
    verdict: Verdict,
    expected: str,
    problems: list[str],
    witness_rows: int = WITNESS_ROWS,
) -> Finding:
    results = False
    if verdict.outcome == UNBOUNDED:
        refusal = confirm_witness(case.sql, case.catalog, verdict.witness(witness_rows))
        if refusal:
            problems.append(f"witness: {refusal}")
    if verdict.outcome == BOUNDED:
        problem, results = run_synopsis(rng, case, verdict)
        problems += [problem] if problem else []
    tables = [o.table.name for o in verdict.query.selects[0].occurrences]
    described = tuple(f"seed {seed}: {p}\n{case.sql}" for p in problems)
    return Finding(seed, verdict.outcome, expected, len(set(tables)) < len(tables), results, described)


def run_synopsis(rng: random.Random, case: Case | RichCase, verdict: Verdict) -> tuple[str | None, bool]:
    """Feed random rows; after each the synopsis must give the answer on all rows, within its bound."""
    assert verdict.plan is not None and verdict.state.entries is not None
    naive = Naive(verdict.plan)
    seen: dict[str, list[Row]] = {name: [] for name in case.catalog}
    seen_after, kept = [], []
    for stream, row in random_rows(rng, case, ROWS, nulls=rng.choice([0.0, 0.1])):
        seen = {name: [*rows, row] if name == stream else rows for name, rows in seen.items()}
        seen_after.append(seen)
        naive.add(stream, row)
        kept.append(Counter({normalise(r): n for r, n in naive.answer().items()}))
        if naive.entries() > verdict.state.entries:
            return f"{naive.entries()} entries held, {verdict.state.entries} promised", False
    truth = answers(case.sql, case.catalog, seen_after)
    for i, (mine, theirs) in enumerate(zip(kept, truth, strict=True)):
        if mine != theirs:
            return f"after row {i + 1}: {mine} from the synopsis, {theirs} expected", False
    return None, bool(truth and truth[-1])


def examine_many(kind: str, seeds: Iterable[int], processes: int) -> Iterable[Finding]:
    examine_seed = {"plain": examine_plain, "rich": examine_rich}[kind]
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(partial(_examine_safely, examine_seed), seeds, chunksize=50)


def _examine_safely(examine_seed: Callable[[int], Finding], seed: int) -> Finding:
    """Examine a seed; an exception becomes a problem of the finding."""
    try:
        return examine_seed(seed)
    except Exception as error:
        return Finding(seed, "crash", "", False, False, (f"seed {seed}: {type(error).__name__}: {error}",))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(argv)
    failed = 0
    for kind in ("plain", "rich"):
        started = time.monotonic()
        counts: Counter[tuple[str, str, str]] = Counter()
        results = 0
        for finding in examine_many(
            kind, range(options.seed, options.seed + options.cases), options.processes
        ):
            counts["self-join" if finding.self_join else "", finding.expected, finding.outcome] += 1
            results += finding.results
            failed += len(finding.problems)
            for problem in finding.problems:
                print(problem)
        print(f"{kind}: {options.cases} queries in {time.monotonic() - started:.0f} s")
        for (join, expected, outcome), count in sorted(counts.items()):
            definition_text = f"definition: {expected:9}  " if expected else ""
            print(f"  {count:7}  {definition_text}checker: {outcome:12} {join}")
        print(f"  {results} of the bounded ones had results to compare at the end")
    print(f"{failed} problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
