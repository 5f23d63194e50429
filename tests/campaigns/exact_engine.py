"""Random bounded queries on the exact engine, compared with DuckDB.

    python -m tests.campaigns.exact_engine --cases 2000

After every random batch, the emitted rows (the latest of each group) must be DuckDB's answer on all rows so
far, and the synopses must stay within the proven bound.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED
from millpond.engines.exact.chunks import ChunkPolicy
from millpond.frontend.parse import parse
from tests.support.generate import (
    Case,
    RichCase,
    Row,
    random_case,
    random_keyed_case,
    random_rich_case,
    random_rows,
)
from tests.support.local import Local
from tests.support.oracle import answers, normalise

ROWS = 30
_CALLS = (
    "COUNT(*)",
    "COUNT({})",
    "COUNT(DISTINCT {})",
    "SUM({})",
    "AVG({})",
    "MIN({})",
    "MAX({})",
    "MEDIAN({})",
)


def random_aggregates_case(rng: random.Random) -> RichCase:
    """Several aggregates of one or two columns of a join; they may share slots of the synopsis."""
    streams = {name: tuple((c, "INT") for c in columns) for name, columns in (("S", "AB"), ("T", "DE"))}
    column, other = rng.sample(["S.A", "S.B", "T.D", "T.E"], 2)
    conditions = ["S.A = T.D", "S.A BETWEEN 0 AND 3", f"{column} BETWEEN -1 AND 4"]
    conditions += [f"{other} IN (0, 1, 3)"] if rng.random() < 0.5 else []
    calls = [call.format(column) for call in rng.sample(_CALLS, rng.randint(2, 6))]
    calls += [rng.choice(["SUM({})", "COUNT({})", "AVG({})"]).format(other)] if rng.random() < 0.5 else []
    group = rng.choice([[], [], ["S.A"], ["T.D"]])
    text = f"SELECT {', '.join([*group, *calls])} FROM S, T WHERE {' AND '.join(conditions)}"
    text += f" GROUP BY {group[0]}" if group else ""
    ddl = [f"CREATE STREAMING TABLE {n} ({', '.join(' '.join(c) for c in cs)});" for n, cs in streams.items()]
    return RichCase("\n".join([*ddl, f"{text};"]), streams)


KINDS: dict[str, Callable[[random.Random], Case | RichCase]] = {
    "plain": random_case,
    "rich": random_rich_case,
    "keyed": random_keyed_case,
    "aggregates": random_aggregates_case,
}


@dataclass(frozen=True)
class Outcome:
    """The result of examining one seed: not bounded, no problem, or a problem."""

    seed: int
    bounded: bool
    results: bool = False
    problem: str | None = None


def random_batches(rng: random.Random, rows: Sequence[tuple[str, Row]]) -> list[list[tuple[str, Row]]]:
    """The rows in order, divided at random."""
    batches: list[list[tuple[str, Row]]] = []
    left = list(rows)
    while left:
        size = min(rng.choice([1, 1, 2, 3, 5, 8, 13]), len(left))
        batches.append(left[:size])
        left = left[size:]
    return batches


def rows_after_batches(
    case: Case | RichCase, batches: Sequence[Sequence[tuple[str, Row]]]
) -> list[dict[str, list[Row]]]:
    """All rows seen after each batch, by stream."""
    seen: dict[str, list[Row]] = {name: [] for name in case.catalog}
    out = []
    for batch in batches:
        seen = {name: [*rows, *(row for s, row in batch if s == name)] for name, rows in seen.items()}
        out.append(seen)
    return out


def examine(seed: int, kind: str) -> Outcome:
    rng = random.Random(seed)
    case = KINDS[kind](rng)
    verdict = decide(parse(case.sql)[0])
    if verdict.outcome != BOUNDED:
        return Outcome(seed, False)
    assert verdict.plan is not None and verdict.state.entries is not None
    batches = random_batches(rng, random_rows(rng, case, ROWS, nulls=rng.choice([0.0, 0.1])))
    truth = answers(case.sql, case.catalog, rows_after_batches(case, batches))
    try:
        # Half of the cases divide their synopses into chunks, however small they are.
        policy = ChunkPolicy(min_entries=0, values_per_chunk=rng.choice([1, 2, 3])) if seed % 2 else None
        local = Local(verdict.plan, policy)
        for i, (batch, expected) in enumerate(zip(batches, truth, strict=True)):
            local.add(batch, tasks=rng.choice([1, 1, 2, 3]))
            found = Counter({normalise(row): n for row, n in local.answer().items()})
            if found != expected:
                return Outcome(
                    seed, True, True, f"after batch {i}: {found} emitted, {expected} expected\n{case.sql}"
                )
            if local.entries > verdict.state.entries:
                kept = f"{local.entries} entries kept, {verdict.state.entries} promised"
                return Outcome(seed, True, True, f"after batch {i}: {kept}\n{case.sql}")
    except Exception:
        return Outcome(seed, True, True, f"{traceback.format_exc()}\n{case.sql}")
    return Outcome(seed, True, bool(truth and truth[-1]))


def _examine(task: tuple[int, str]) -> Outcome:
    return examine(*task)


def examine_many(kind: str, cases: int, first: int, processes: int) -> Iterable[Outcome]:
    """Examine seeds until so many queries were bounded."""
    bounded, seed = 0, first
    with ProcessPoolExecutor(processes) as pool:
        while bounded < cases:
            for outcome in pool.map(_examine, [(s, kind) for s in range(seed, seed + 500)], chunksize=25):
                yield outcome
                bounded += outcome.bounded
                if bounded >= cases:
                    break
            seed += 500


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=2_000, help="bounded queries of each kind")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kind", choices=sorted(KINDS), action="append")
    options = parser.parse_args(argv)
    problems = 0
    for kind in options.kind or KINDS:
        started, bounded, results = time.monotonic(), 0, 0
        for outcome in examine_many(kind, options.cases, options.seed, options.processes):
            bounded += outcome.bounded
            results += outcome.results
            if outcome.problem:
                problems += 1
                print(f"{kind} seed {outcome.seed}: {outcome.problem}", flush=True)
        took = time.monotonic() - started
        print(f"{kind}: {bounded} bounded queries, {results} with results, {took:.0f} s")
    print(f"{problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
