"""Random queries with EXISTS, NOT EXISTS and LEFT JOIN against the definition, brute force and DuckDB.

    python -m tests.campaigns.partners --cases 2000

The checker is compared with the definition, and every witness is confirmed on all subsets of its rows.  The
engine gets rows out of order: it must never write a row that is not in the final answer, write rows as soon
as no partner can come, and have written DuckDB's answer at the end of the input.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, Verdict
from millpond.frontend.parse import parse
from tests.campaigns.application_time import Finding
from tests.support import partner_definition
from tests.support.local import Local
from tests.support.oracle import answers, normalise
from tests.support.partner_generate import TIMES, PartnerCase, random_partner_case, random_partner_rows
from tests.support.time_fooling import confirm_time_witness
from tests.support.time_generate import TimeRow
from tests.support.timed_local import TimedLocal, micros

ROWS = 50
WITNESS_ROWS = 4
Answer = Counter[tuple[Any, ...]]


def examine(seed: int, engine: bool = True, waiting: bool = False) -> Finding:
    """Everything that can be checked of one random query."""
    rng = random.Random(seed)
    case = random_partner_case(rng, waiting)
    verdict = decide(parse(case.sql)[0])
    expected = partner_definition.decide(case)
    problems = []
    if {verdict.outcome, expected} == {BOUNDED, UNBOUNDED}:
        problems.append(f"{verdict.outcome}, but {expected} by definition")
    if verdict.outcome == UNBOUNDED:
        refusal = confirm_time_witness(case.sql, case.catalog, verdict.witness(WITNESS_ROWS))
        problems += [f"witness: {refusal}"] if refusal else []
    results = False
    if engine and verdict.outcome == BOUNDED:
        problem, results = run_engine(rng, case, verdict)
        problems += [problem] if problem else []
    described = tuple(f"seed {seed}: {problem}\n{case.sql}" for problem in problems)
    return Finding(seed, verdict.outcome, expected, results, described)


def run_engine(rng: random.Random, case: PartnerCase, verdict: Verdict) -> tuple[str | None, bool]:
    """Run the engine on random rows out of order, and compare what it writes with DuckDB's answers."""
    batches = cut_out_of_order(rng, random_partner_rows(rng, case, ROWS))
    if verdict.timed is None:
        return _run_exact(case, verdict, batches)
    local = TimedLocal(verdict.timed)
    hold, seen = local.program.hold, _Seen(case)
    written: list[Answer] = []
    for batch in batches:
        seen.add(local.receive(batch))
        written.append(_normalise(local.answer()))
        seen.pass_watermark(local.watermark, hold)
    local.receive([], ended=True)
    *sure, truth = answers(case.sql, case.catalog, [*seen.decided, seen.rows])
    found = _normalise(local.answer())
    if found != truth:
        return f"at the end: {found - truth} too many, {truth - found} missing", True
    is_growing = case.projection or case.distinct
    for number, (answer, least) in enumerate(zip(written, sure, strict=True)):
        if case.kind == "LEFT JOIN" and case.distinct:
            least = Counter()  # matches wait for the rows without partner
        if is_growing and (answer - truth or least - answer):
            return f"after batch {number}: {answer - truth} too many, {least - answer} missing", True
        if not is_growing and case.kind != "LEFT JOIN" and answer != least:
            return f"after batch {number}: {answer}, but DuckDB has {least}", True
    return None, bool(truth)


class _Seen:
    """The rows that were not late, and after each batch those for which the answer is known."""

    def __init__(self, case: PartnerCase) -> None:
        self._case = case
        self.rows: dict[str, list[TimeRow]] = {name: [] for name in case.catalog}
        self.decided: list[dict[str, list[TimeRow]]] = []

    def add(self, batch: Iterable[tuple[str, TimeRow]]) -> None:
        for name, row in batch:
            self.rows[name].append(row)

    def pass_watermark(self, watermark: int, hold: int) -> None:
        """Outer rows are known ``hold`` microseconds after the watermark has passed them."""
        limits = {name: watermark - (hold if name in self._case.outer else 0) for name in self.rows}
        known = {n: [r for r in rows if micros(r[TIMES[n]]) < limits[n]] for n, rows in self.rows.items()}
        self.decided.append(known)


def _run_exact(
    case: PartnerCase, verdict: Verdict, batches: Sequence[Sequence[tuple[str, TimeRow]]]
) -> tuple[str | None, bool]:
    assert verdict.plan is not None
    local, seen = Local(verdict.plan), _Seen(case)
    for batch in batches:
        local.add(batch)
        seen.add(batch)
    (truth,) = answers(case.sql, case.catalog, [seen.rows])
    found = _normalise(local.answer())
    return (None if found == truth else f"{found} instead of {truth}"), bool(truth)


def cut_out_of_order(
    rng: random.Random, rows: Sequence[tuple[str, TimeRow]]
) -> list[list[tuple[str, TimeRow]]]:
    """Batches of rows that are out of order inside a batch; a few rows come a batch too late."""
    batches: list[list[tuple[str, TimeRow]]] = []
    waiting: list[tuple[str, TimeRow]] = []
    start = 0
    while start < len(rows):
        end = start + rng.randint(1, 12)
        batch = [*waiting, *rows[start:end]]
        waiting = [row for row in batch if rng.random() < 0.05]
        batch = [row for row in batch if row not in waiting]
        rng.shuffle(batch)
        batches.append(batch)
        start = end
    return [*batches, waiting]


def _normalise(answer: Answer) -> Answer:
    return Counter({normalise(row): n for row, n in answer.items()})


def examine_safely(seed: int, engine: bool, waiting: bool = False) -> Finding:
    """The findings of one seed; an exception is one."""
    try:
        return examine(seed, engine, waiting)
    except Exception:
        return Finding(seed, "crash", "", False, (f"seed {seed}: {traceback.format_exc()}",))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="partners", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--no-engine", action="store_true", help="decide only")
    parser.add_argument("--waiting", action="store_true", help="only EXISTS with partners at any time")
    options = parser.parse_args(argv)
    began = time.monotonic()
    counts: Counter[tuple[str, str]] = Counter()
    problems = runs = 0
    for seed in range(options.seed, options.seed + options.cases):
        finding = examine_safely(seed, not options.no_engine, options.waiting)
        counts[finding.outcome, finding.expected] += 1
        runs += finding.outcome == BOUNDED and not options.no_engine
        for problem in finding.problems:
            problems += 1
            print(problem, flush=True)
    for (outcome, expected), count in sorted(counts.items()):
        print(f"{count:>7,} {outcome}, {expected or 'not decided'} by definition")
    elapsed = time.monotonic() - began
    print(f"{options.cases:,} queries, {runs:,} runs, {problems} problems, {elapsed:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
