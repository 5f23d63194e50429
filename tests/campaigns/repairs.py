"""Random unbounded queries and their repairs, against the checker, brute force and the engines.

    python -m tests.campaigns.repairs --cases 1000
    python -m tests.campaigns.repairs --files '../shared/data/queries/*.sql'

Every repair must make the query bounded, and must not do so without some of its parts: a condition, either
end of a BETWEEN, a property, a CHECK, a column of a list.  A repair with the same answer must have it: the
engine runs the changed query on random rows that fulfil the assumption, and brute force answers the original
one.  A repair with fewer rows must only leave out rows of joins.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from glob import glob
from typing import Any

from millpond.analysis.decide import decide
from millpond.analysis.repair.find import find_repairs
from millpond.analysis.repair.model import Meaning, Repair, RepairKind
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, Verdict
from millpond.errors import MillpondError
from millpond.frontend.parse import parse, read_text
from millpond.query.evaluate import answer, compile_condition
from millpond.query.model import Query, Table
from millpond.query.trees import is_aggregate
from tests.support.generate import random_case, random_rich_case, random_rows
from tests.support.local import Local
from tests.support.oracle import normalise
from tests.support.parts import list_lesser
from tests.support.time_generate import random_time_case, random_time_rows
from tests.support.timed_local import TimedLocal, micros
from tests.support.window_generate import random_window_case, random_window_rows

ROWS = 24
# The repairs with the same answer that are run for one query, and the timestamps of one batch.
RUNS = 2
STEPS = 5
FAMILIES = ("plain", "rich", "timed", "windowed")
Rows = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Finding:
    """What was found of one query: the kind of its first repair, how many with the same answer were run."""

    seed: int
    family: str
    outcome: str
    kind: str = ""
    same: int = 0
    seconds: float = 0.0
    problems: tuple[str, ...] = ()


def examine(seed: int, runs: int = RUNS) -> Finding:
    """Everything that can be checked of one random query; ``runs`` repairs of it are run."""
    rng = random.Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    sql, rows = random_query(rng, family)
    verdict = decide(parse(sql)[0])
    if verdict.outcome != UNBOUNDED:
        return Finding(seed, family, verdict.outcome)
    began = time.process_time()
    repairs = find_repairs(verdict)
    seconds = time.process_time() - began
    changed = [repair for repair in repairs if repair.kind is not RepairKind.BUDGET]
    problems = check_repairs(sql, changed)
    same = [repair for repair in changed if repair.meaning is Meaning.SAME]
    same = rng.sample(same, min(runs, len(same)))
    for repair in (*same, *(repair for repair in changed if repair.meaning is Meaning.FEWER)):
        problem = check_answer(verdict.query, repair, rows)
        problems += [f"{repair.title}: {problem}\n{repair.sql}"] if problem else []
    found = tuple(f"seed {seed}: {problem}\n{sql}" for problem in problems)
    return Finding(seed, family, UNBOUNDED, changed[0].kind if changed else "", len(same), seconds, found)


def random_query(rng: random.Random, family: str) -> tuple[str, Rows]:
    """The text of a random query, and random rows for its streams, in the order of time."""
    if family == "timed":
        timed = random_time_case(rng, max_streams=3)
        return timed.sql, _as_dicts(random_time_rows(rng, timed, ROWS, nulls=rng.choice([0.0, 0.1])))
    if family == "windowed":
        windowed = random_window_case(rng)
        return windowed.sql, _as_dicts(random_window_rows(rng, windowed, ROWS, nulls=rng.choice([0.0, 0.1])))
    case: Any = random_case(rng) if family == "plain" else random_rich_case(rng)
    return case.sql, _as_dicts(random_rows(rng, case, ROWS, nulls=rng.choice([0.0, 0.1])))


def _as_dicts(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Rows:
    return [(name, dict(row)) for name, row in rows]


def check_repairs(sql: str, repairs: Sequence[Repair]) -> list[str]:
    """What is wrong with repairs: each must make the query bounded, and must not with some of its parts."""
    if not repairs:
        return ["there is no repair"]
    problems = []
    for number, repair in enumerate(repairs, start=1):
        told = f"repair {number}, {repair.title}"
        if decide_text(repair.sql) != BOUNDED:
            problems.append(f"{told}: not bounded\n{repair.sql}")
        for text, left_out in list_lesser(sql, repair.edits):
            if decide_text(text) == BOUNDED:
                problems.append(f"{told}: bounded without {left_out}\n{repair.sql}")
                break
    return problems


def decide_text(text: str) -> str:
    """The outcome of the first query of a text, or that it cannot be read."""
    try:
        return decide(parse(text)[0], prove=False).outcome
    except MillpondError:
        return "unreadable"


# --- answers -----------------------------------------------------------------------------------------


def check_answer(query: Query, repair: Repair, rows: Rows) -> str | None:
    """Why the answer of a repaired query is not what its label says; None if it is, or is not known."""
    assert repair.verdict is not None
    kept = [row for row in rows if fulfils_checks(repair.verdict.query, row)]
    data = {name: [r for n, r in kept if n == name] for name in query.declared_tables}
    if repair.meaning is Meaning.SAME:
        expected = _normalised(answer(query, data))
        found = run_engine(repair.verdict, kept)
        if found is not None and found != expected:
            return f"{found - expected} too many, {expected - found} missing"
    if repair.meaning is Meaning.FEWER and not any(map(is_aggregate, query.selects)):
        more = _normalised(answer(repair.verdict.query, data)) - _normalised(answer(query, data))
        if more:
            return f"{more} are not results of the query"
    return None


def fulfils_checks(query: Query, row: tuple[str, Mapping[str, Any]]) -> bool:
    """Whether a row fulfils the CHECKs of its table."""
    name, values = row
    table = query.declared_tables.get(name)
    if table is None:
        return True
    slots = {name: 0}
    return all(compile_condition(check, slots)((values,)) is not False for check in table.checks)


def run_engine(verdict: Verdict, rows: Rows) -> Counter[Any] | None:
    """The answer that the engine has given after all rows; None if it takes Spark to run the query."""
    static = [t.name for t in verdict.query.tables.values() if not t.streaming]
    streamed = [row for row in rows if row[0] not in static]
    if verdict.timed is not None and not any(each.parts for each in verdict.timed.selects):
        return None  # Spark's own join answers each row by itself
    if verdict.timed is not None:
        relations = {name: [row for n, row in rows if n == name] for name in static}
        timed = TimedLocal(verdict.timed, relations, updates=True)
        times = {name: table.time for name, table in verdict.query.tables.items()}
        steps: dict[int, Rows] = {}
        for name, row in streamed:
            steps.setdefault(_time_of(verdict.query.tables.get(name), row, times), []).append((name, row))
        moments = sorted(steps)
        for start in range(0, len(moments), STEPS):
            taken = moments[start : start + STEPS]
            timed.add([row for moment in taken for row in steps[moment]], taken[-1])
        return _normalised(timed.answer())
    if verdict.plan is None or static:
        return None
    local = Local(verdict.plan)
    for start in range(0, len(streamed), 7):
        local.add(streamed[start : start + 7])
    return _normalised(local.answer())


def _time_of(table: Table | None, row: Mapping[str, Any], times: Mapping[str, str | None]) -> int:
    time_column = times.get(table.name) if table is not None else None
    return 0 if time_column is None else micros(row[time_column])


def _normalised(rows: Mapping[tuple[Any, ...], int]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row, count in rows.items():
        found[normalise(row)] += count
    return found


# --- many queries ------------------------------------------------------------------------------------


def examine_safely(seed: int, every: int = 1) -> Finding:
    """The findings of one seed, with runs for one of so many seeds; an exception is a finding."""
    try:
        return examine(seed, RUNS if seed // len(FAMILIES) % every == 0 else 0)
    except Exception:
        return Finding(seed, "", "crash", problems=(f"seed {seed}: {traceback.format_exc()}",))


def examine_file(path: str) -> Finding:
    """The repairs of the first query of a file, if it is unbounded."""
    sql = read_text(path)
    try:
        verdict = decide(parse(sql)[0])
    except MillpondError:
        return Finding(0, "file", "unreadable")
    if verdict.outcome != UNBOUNDED:
        return Finding(0, "file", verdict.outcome)
    began = time.process_time()
    changed = [each for each in find_repairs(verdict) if each.kind is not RepairKind.BUDGET]
    seconds = time.process_time() - began
    problems = tuple(f"{path}: {each}" for each in check_repairs(sql, changed))
    return Finding(0, "file", UNBOUNDED, changed[0].kind if changed else "", 0, seconds, problems)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="repairs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=1_000, help="the number of unbounded queries")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="run the engines for one of so many queries")
    parser.add_argument("--files", help="a pattern of files with queries, instead of random ones")
    options = parser.parse_args(argv)
    counts: Counter[str] = Counter()
    unbounded = problems = same = 0
    seconds: list[float] = []
    with ProcessPoolExecutor(options.processes) as pool:
        seed = options.seed
        while unbounded < options.cases:
            if options.files:
                findings = list(map(examine_file, sorted(glob(options.files))))
            else:
                findings = list(
                    pool.map(partial(examine_safely, every=options.every), range(seed, seed + 40))
                )
                seed += 40
            for finding in findings:
                problems += len(finding.problems)
                for problem in finding.problems:
                    print(problem, flush=True)
                if finding.outcome == UNBOUNDED:
                    unbounded += 1
                    same += finding.same
                    seconds.append(finding.seconds)
                    counts[f"{finding.family}, first repair: {finding.kind or 'none'}"] += 1
            print(f"{unbounded:,} unbounded queries, {problems} problems", file=sys.stderr, flush=True)
            if options.files:
                break
    for text, count in sorted(counts.items()):
        print(f"{count:>7,} {text}")
    mean, most = sum(seconds) / len(seconds), max(seconds)
    print(f"{mean:.2f} s of CPU time for the repairs of a query, at most {most:.2f} s")
    print(f"{unbounded:,} unbounded queries, {same:,} repairs with the same answer run, {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
