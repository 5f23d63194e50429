"""Joins on random budgets over random streams: the true number of missed results lies in its 95 % interval.

    python -m tests.campaigns.missed_intervals --cases 1000 [--kind band]

For each kind of join, prints the share of the runs whose interval contains the true number, which must be
95 ± 2 %, the intervals that were too low and too high, and the median width.  Runs in which nothing had to be
estimated are listed as exact, and not counted; their numbers must be right.  Keys are uniform, skewed (Zipf),
drifting or bursty.  Samples and sketches are smaller than in real runs, so short streams stand for long ones.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted import level_join, shed_keys, tuple_scores
from millpond.engines.budgeted.compile import compile_budgeted
from millpond.engines.budgeted.execute import ShardBatch
from millpond.engines.budgeted.level_join import Arrivals
from millpond.engines.budgeted.plan import plan_budgeted
from millpond.engines.budgeted.program import BudgetedProgram, LeafProgram
from millpond.frontend.parse import parse
from millpond.models.array_types import Ints
from millpond.policies.registry import PolicyChoice
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.sql import Dialect

# A stream, by column.
Columns = dict[str, Any]
# How the engine asks for join keys, with or without the position in a window.
_KEYS = re.compile(
    r"SELECT CAST\((\w+) AS (BIGINT|DOUBLE)\) AS v(?:, CAST\((\w+) AS DOUBLE\) AS place)? FROM rows"
)
COLUMNS = "(k INT, a INT, x INT, n INT, g INT)"


@dataclass(frozen=True)
class Condition:
    """A join condition: columns that are equal, r.x - l.x within limits, columns that differ."""

    equal: tuple[str, ...] = ()
    within: tuple[str, float, float] | None = None
    differ: str | None = None

    def count(self, left: Columns, right: Columns) -> Ints:
        """The number of tuples on the right that match each tuple on the left."""
        found = _count_in_range(left, right, self.equal, self.within)
        if self.differ is not None:
            found = found - _count_in_range(left, right, (*self.equal, self.differ), self.within)
        return found

    def mirror(self) -> Condition:
        """The condition with its sides exchanged."""
        if self.within is None:
            return self
        column, low, high = self.within
        return replace(self, within=(column, -high, -low))


def _count_in_range(
    left: Columns, right: Columns, equal: Sequence[str], within: tuple[str, float, float] | None
) -> Ints:
    column, low, high = within or ("n", -SPREAD / 2, SPREAD / 2)
    keys = [np.zeros(len(side[column])) for side in (left, right)]
    for name in equal:
        keys = [old * 10_000 + side[name] for old, side in zip(keys, (left, right), strict=True)]
    ordered = np.sort(keys[1] * SPREAD + right[column])
    start = keys[0] * SPREAD + left[column]
    limits = np.clip([low, high], -SPREAD / 2, SPREAD / 2)
    first = np.searchsorted(ordered, start + limits[0])
    found: Ints = np.searchsorted(ordered, start + limits[1], "right") - first
    return found


# More than the distance of any two values of a column that is compared.
SPREAD = 1e6
LESS = (1.0, SPREAD)
KINDS = {
    "equality": ("S.k = T.k", Condition(("k",))),
    "two equalities": ("S.k = T.k AND S.g = T.g", Condition(("k", "g"))),
    "equality and inequality": ("S.k = T.k AND S.a < T.a", Condition(("k",), ("a", *LESS))),
    "equality and <>": ("S.k = T.k AND S.g <> T.g", Condition(("k",), differ="g")),
    "window": (
        "S.k = T.k AND T.n BETWEEN S.n - 300 AND S.n + 600",
        Condition(("k",), ("n", -300.0, 600.0)),
    ),
    "band": ("T.x BETWEEN S.x - 3 AND S.x + 3", Condition((), ("x", -3.0, 3.0))),
    "inequality": ("S.x < T.x", Condition((), ("x", *LESS))),
    "<> alone": ("S.x <> T.x", Condition(differ="x")),
    "self-join": ("S.k = T.k AND S.a < T.a", Condition(("k",), ("a", *LESS))),
}
# Mostly policies that need no model: identifying one takes most of the time of a run.
POLICIES = ("auto", *2 * ("prob", "lru", "fifo", "rand"))


@dataclass(frozen=True)
class Outcome:
    """The true number of missed results, and what was said about it."""

    truth: int
    estimate: float
    low: float
    high: float

    @property
    def is_exact(self) -> bool:
        return self.low == self.high

    @property
    def is_covered(self) -> bool:
        return round(self.low) <= self.truth <= round(self.high)


def random_keys(rng: np.random.Generator, shape: str, size: int, values: int) -> Ints:
    """Keys of one stream; ``values`` says about how many different ones there are."""
    if shape == "uniform":
        return rng.integers(0, values, size)
    if shape == "zipf":
        shares = np.arange(1, values + 1) ** -rng.uniform(0.5, 1.3)
        return rng.choice(values, size, p=shares / shares.sum())
    if shape == "drifting":
        return np.rint(rng.normal(0, values / 8, size) + np.linspace(0, values, size)).astype(np.int64)
    keys = rng.integers(0, values, size)
    for _ in range(rng.integers(1, 5)):  # bursts: some keys are frequent for a while
        start, length = rng.integers(0, size), rng.integers(size // 20, size // 4)
        hot = rng.integers(0, values, max(3, values // 20))
        burst = slice(start, start + length)
        chosen = rng.choice(hot, len(keys[burst]))
        keys[burst] = np.where(rng.random(len(chosen)) < 0.5, chosen, keys[burst])
    return keys


def random_stream(rng: np.random.Generator, shape: str, size: int, values: int) -> Columns:
    """A stream whose columns k and x have keys of the given shape."""
    return {
        "k": random_keys(rng, shape, size, values),
        "a": rng.integers(0, 1000, size),
        "x": random_keys(rng, shape, size, values),
        "n": np.arange(size),
        "g": rng.integers(0, 4, size),
    }


class PairCounter(DuckDb):
    """Counts pairs with NumPy where the engine asks DuckDB: a run takes a tenth of the time.

    The results of a join have no columns: only their number matters.
    """

    def __init__(self, program: BudgetedProgram, condition: Condition) -> None:
        super().__init__()
        self._condition = condition
        self._names = {
            name: text.strip('"').split(".")[1] for f in program.leaves for name, text in f.columns
        }

    def query(self, text: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        columns = {name: self._read(table) for name, table in tables.items()}
        condition = self._condition
        if "left_new" in tables:
            found = condition.count(columns["left_new"], columns["right_all"]).sum()
            found += condition.count(columns["left_old"], columns["right_new"]).sum()
            return pa.table({"one": pa.nulls(int(found))})
        if "arrived" in tables:
            sampled_left = "sample l" in text
            matches = (condition if sampled_left else condition.mirror()).count(
                columns["sample"], columns["arrived"]
            )
            return pa.table({"number": tables["sample"].column("number"), "matches": matches})
        keys = _KEYS.fullmatch(text)
        if keys is None:
            return super().query(text, tables)
        rows, (key, kind, place) = tables["rows"], keys.groups()
        found = {"v": _cast(rows, key, pa.int64() if kind == "BIGINT" else pa.float64())}
        if place is not None:
            found["place"] = _cast(rows, place, pa.float64())
        return pa.table(found)

    def _read(self, table: pa.Table) -> Columns:
        return {"n": np.zeros(table.num_rows)} | {
            column: table.column(name).to_numpy()
            for name, column in self._names.items()
            if name in table.column_names
        }


def _cast(rows: pa.Table, column: str, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """A column, or the number 0, as numbers of a type."""
    if column == "0":
        return pa.array(np.zeros(rows.num_rows)).cast(type_)
    return rows.column(column).cast(type_)


@lru_cache
def compile_kind(kind: str) -> tuple[BudgetedProgram, PairCounter]:
    where, condition = KINDS[kind]
    tables = "".join(f"CREATE STREAMING TABLE {name} {COLUMNS}; " for name in "ST")
    streams = "S, S T" if kind == "self-join" else "S, T"
    plan = plan_budgeted(parse(f"{tables} SELECT S.g FROM {streams} WHERE {where}")[0])
    program = compile_budgeted(plan, 1, Dialect.DUCKDB, shards=1)
    return program, PairCounter(program, condition)


def examine(kind: str, seed: int) -> Outcome:
    """Run one join on a random budget over random streams."""
    rng = np.random.default_rng([seed, sorted(KINDS).index(kind)])
    shape = ("uniform", "zipf", "drifting", "bursty")[seed % 4]
    size, values = int(rng.integers(1000, 5000)), int(rng.choice([100, 400, 1500]))
    program, engine = compile_kind(kind)
    program = replace(program, memory=int(rng.integers(20, 200)))
    choice = PolicyChoice(str(rng.choice(POLICIES)))
    left = random_stream(rng, shape, size, values)
    right = left if kind == "self-join" else random_stream(rng, shape, size, values)
    bounds = np.linspace(0, size, int(rng.integers(5, 15))).astype(int)
    tables = [make_rows(leaf, stream) for leaf, stream in zip(program.leaves, (left, right), strict=True)]
    state: dict[str, pa.Table] = {}
    for number, (a, b) in enumerate(pairwise(bounds)):
        arrivals = {}
        for leaf, rows in zip(program.leaves, tables, strict=True):
            part = rows.slice(a, b - a)
            keys = engine.query(f"SELECT {leaf.value} AS v FROM rows", {"rows": part}).column("v").to_numpy()
            arrivals[leaf.name] = Arrivals(part, np.arange(b - a), int(b - a), keys)
        shard = ShardBatch(engine, program, choice, 0, state, number + 1)
        for _ in shard.run(arrivals):
            pass
        state = shard.state()
    truth = int(KINDS[kind][1].count(left, right).sum()) - shard.found
    return Outcome(truth, shard.missed.value, *shard.missed.limits)


def make_rows(leaf: LeafProgram, stream: Columns) -> pa.Table:
    columns = [stream[text.strip('"').split(".")[1]] for _, text in leaf.columns]
    return pa.table([pa.array(column) for column in columns], names=leaf.schema.names).cast(leaf.schema)


def shrink_samples() -> None:
    """Use an eighth of the memory for samples and sketches, so that streams need not be long."""
    level_join.EQUALITY_SAMPLE //= 8
    level_join.OTHER_SAMPLE //= 4
    shed_keys.EXACT_KEYS //= 64
    shed_keys.COUNTERS //= 8
    tuple_scores.COUNTERS //= 16


def report(kind: str, outcomes: Sequence[Outcome]) -> bool:
    """Print the coverage of a kind; whether it is right."""
    wrong = sum(each.is_exact and not each.is_covered for each in outcomes)
    estimated = [each for each in outcomes if not each.is_exact]
    covered = sum(each.is_covered for each in estimated) / max(len(estimated), 1)
    low = sum(each.high < each.truth for each in estimated)
    high = sum(each.low > each.truth for each in estimated)
    width = np.median([(each.high - each.low) / 2 / max(each.truth, 1) for each in estimated] or [0.0])
    bias = np.mean([(each.estimate - each.truth) / max(each.truth, 1) for each in estimated] or [0.0])
    is_right = not wrong and (0.93 <= covered <= 0.97 or not estimated)
    print(
        f"{kind:24} {covered:6.1%} of {len(estimated):,} covered, {low} too low, {high} too high, "
        f"width ± {width:.1%}, bias {bias:+.2%}; {len(outcomes) - len(estimated)} exact, {wrong} wrong"
        f"{'' if is_right else '  WRONG'}",
        flush=True,
    )
    return is_right


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=tuple(KINDS), action="append")
    options = parser.parse_args()
    shrink_samples()
    right = True
    for kind in options.kind or KINDS:
        began = time.process_time()
        seeds = range(options.seed, options.seed + options.cases)
        outcomes = [examine(kind, seed) for seed in seeds]
        right &= report(kind, outcomes)
        print(f"{'':24} {time.process_time() - began:.0f} s of CPU time", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
