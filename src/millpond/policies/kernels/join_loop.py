"""Joining two streams under a budget, tuple by tuple, as machine code.

At each step the two new tuples join what is kept (not each other); then the lowest scores are discarded until
the rest fits.  Of equal scores the oldest goes first; of the same step R's if the step is even, else S's.
:mod:`millpond.policies.store` says the same in plain Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from millpond.models.arrays import Floats, Ints
from millpond.models.scores import ScoreTable
from millpond.policies.kernels.compiled import compiled

# What a score is made of.
TABLE, RANDOM, PROB, LIFE, FIFO, LRU, LFU, PLAN = range(8)
# The step at which a tuple that no window limits leaves it.
NEVER = 1 << 60


@dataclass(frozen=True, eq=False)
class Placed:
    """Score tables of one side of a join, ready for a loop: several choices of the same shape."""

    scores: Floats  # choice, row, column
    factors: Floats  # choice, (below, above)
    shape: Ints  # low, scale, step below, step above
    row: Ints  # of the partner's past at each step
    origin: Ints

    @classmethod
    def of(cls, tables: tuple[ScoreTable, ...], partner: Ints, start: int = 0) -> Placed:
        """The tables against the values of the partner stream from the step ``start`` on."""
        first = tables[0]
        low = min(table.low for table in tables)
        high = max(table.low + table.scores.shape[1] for table in tables)
        steps = np.arange(start, start + len(partner), dtype=np.int64)
        row, origin = first.model.place(steps, partner)
        return cls(
            _stacked(tables, low, high),
            np.array([[table.below.factor, table.above.factor] for table in tables]),
            np.array([low, first.model.scale, first.below.step, first.above.step], np.int64),
            row,
            origin,
        )


@lru_cache(maxsize=2)  # the same tables are often placed against one stream after another
def _stacked(tables: tuple[ScoreTable, ...], low: int, high: int) -> Floats:
    return np.stack([_widened(table, low, high) for table in tables])


def _widened(table: ScoreTable, low: int, high: int) -> Floats:
    """The table over the columns from low to high, continued as its edges say."""
    width = table.scores.shape[1]
    columns = np.arange(low, high) - table.low
    over = np.maximum(0, -(-(columns - width + 1) // table.above.step))
    under = np.where(columns < 0, -(columns // table.below.step), 0)
    inner = columns - over * table.above.step + under * table.below.step
    factor = float(table.above.factor) ** over * float(table.below.factor) ** under
    widened: Floats = table.scores[:, inner] * factor
    return widened


def no_table() -> Placed:
    """What stands in for tables where the score needs none."""
    zero = np.zeros(1, np.int64)
    return Placed(np.zeros((1, 1, 1)), np.zeros((1, 2)), np.array([0, 1, 1, 1], np.int64), zero, zero)


@dataclass(frozen=True, eq=False)
class JoinTrace:
    """What happened at each step: results found, tuples of R kept after it, and the table then chosen."""

    results: Ints
    kept_of_r: Ints
    choices: Ints

    def total(self, warm_up: int) -> int:
        """The results found from step ``warm_up`` on."""
        return int(self.results[warm_up:].sum())


class JoinRun:
    """A join in the midst of its streams: it can go on by other scores than before.

    ``leaves`` holds for each tuple the first step at which its window no longer covers it, under PLAN the
    first step at which it need no longer be there.  With ``lifetimes`` there is one table for each of these
    average lifetimes, and the one nearest to the observed average rules.
    """

    def __init__(
        self,
        r: Ints,
        s: Ints,
        size: int,
        leaves: tuple[Ints, Ints] | None = None,
        lifetimes: Floats | None = None,
        memory: float = 1000.0,
        seed: int = 0,
    ) -> None:
        steps = len(r)
        never = np.full(steps, NEVER, np.int64)
        distinct, codes = np.unique(np.concatenate([r, s]), return_inverse=True)
        self._streams = (
            np.ascontiguousarray(r, np.int64),
            np.ascontiguousarray(s, np.int64),
            codes[:steps].astype(np.int64),
            codes[steps:].astype(np.int64),
        )
        self._size = size
        self._ends = leaves if leaves is not None else (never, never)
        self._lifetimes = np.zeros(1) if lifetimes is None else np.log(lifetimes)
        self._memory = memory
        self._seed = seed
        self._next = 0
        self._results, self._kept_of_r, self._choices = np.zeros((3, steps), np.int64)
        # Each kept tuple: its number (2t for R's, 2t + 1 for S's), value, code, last use, uses, end.
        self._kept = np.empty((6, size + 2), np.int64)
        # Of each code: how often R and S had it, and how many tuples of either are kept.
        self._seen = np.zeros((2, len(distinct)))
        self._held = np.zeros((2, len(distinct)), np.int64)
        self._counts = np.zeros(3, np.int64)  # tuples kept, of them R's, and the table chosen
        self._observed = np.exp(self._lifetimes[:1])

    def play(self, stop: int, kind: int, tables: tuple[Placed, Placed] | None = None) -> None:
        """Go on up to step ``stop``; the tables are placed against the steps that are played now."""
        of_r, of_s = tables if tables is not None else (no_table(), no_table())
        if kind == TABLE and tables is None:
            raise ValueError("scores by table need tables")
        _loop(
            self._next, stop, *self._streams, self._size, kind,
            of_r.scores, of_r.factors, of_r.shape, of_r.row, of_r.origin,
            of_s.scores, of_s.factors, of_s.shape, of_s.row, of_s.origin,
            *self._ends, self._lifetimes, self._memory, self._seed,
            self._results, self._kept_of_r, self._choices,
            self._kept, self._seen, self._held, self._counts, self._observed,
        )  # fmt: skip
        self._next = stop

    @property
    def trace(self) -> JoinTrace:
        """What happened so far."""
        return JoinTrace(self._results, self._kept_of_r, self._choices)


def run_join(
    r: Ints,
    s: Ints,
    size: int,
    kind: int,
    tables: tuple[Placed, Placed] | None = None,
    leaves: tuple[Ints, Ints] | None = None,
    plan: tuple[Ints, Ints] | None = None,
    lifetimes: Floats | None = None,
    memory: float = 1000.0,
    seed: int = 0,
) -> JoinTrace:
    """Join the streams, keeping ``size`` tuples by scores of the given kind; see :class:`JoinRun`.

    ``plan`` holds for each tuple the first step at which it need no longer be there.
    """
    ends = plan if kind == PLAN and plan is not None else leaves
    run = JoinRun(r, s, size, ends, lifetimes, memory, seed)
    run.play(len(r), kind, tables)
    return run.trace


@compiled
def _look_up(scores: Floats, factors: Floats, shape: Ints, origin: int, value: int) -> float:
    column = shape[1] * value - origin - shape[0]
    width = len(scores)
    if 0 <= column < width:
        return float(scores[column])
    if column >= width:
        if factors[1] == 0.0:
            return 0.0
        over = -(-(column - width + 1) // shape[3])
        return float(scores[column - over * shape[3]] * factors[1] ** over)
    if factors[0] == 0.0:
        return 0.0
    under = -(column // shape[2])
    return float(scores[column + under * shape[2]] * factors[0] ** under)


@compiled
def _age(number: int) -> int:
    """A tuple's place in the order in which equal scores go: by step, the sides taking turns."""
    return number ^ ((number >> 1) & 1)


@compiled
def _lowest_two(score: Floats, number: Ints, held: int) -> tuple[int, int]:
    """The places of the tuple to go first and of the next one."""
    first, second = 0, -1
    for i in range(1, held):
        if second >= 0 and (
            score[i] > score[second] or (score[i] == score[second] and _age(number[i]) > _age(number[second]))
        ):
            continue
        if score[i] < score[first] or (score[i] == score[first] and _age(number[i]) < _age(number[first])):
            first, second = i, first
        else:
            second = i
    return first, second


@compiled
def _loop(
    start: int, stop: int, r: Ints, s: Ints, r_code: Ints, s_code: Ints, size: int, kind: int,
    r_scores: Floats, r_factors: Floats, r_shape: Ints, r_row: Ints, r_origin: Ints,
    s_scores: Floats, s_factors: Floats, s_shape: Ints, s_row: Ints, s_origin: Ints,
    r_end: Ints, s_end: Ints, lifetimes: Floats, memory: float, seed: int,
    results: Ints, kept_of_r: Ints, choices: Ints,
    kept: Ints, all_seen: Floats, all_held: Ints, counts: Ints, average: Floats,
) -> None:  # fmt: skip
    number, value, code, used, uses, end = kept[0], kept[1], kept[2], kept[3], kept[4], kept[5]
    score = np.empty(size + 2)
    r_seen, s_seen = all_seen[0], all_seen[1]
    r_held, s_held = all_held[0], all_held[1]
    touched = kind in (LRU, LFU) or r_end.min() < NEVER or s_end.min() < NEVER
    held, of_r, choice = counts[0], counts[1], counts[2]
    observed = average[0]
    if start == 0:
        np.random.seed(seed)
    for t in range(start, stop):
        if touched:
            found = 0
            for i in range(held):
                partner = r[t] if number[i] & 1 else s[t]
                if value[i] == partner and t < end[i]:
                    found += 1
                    used[i] = t
                    uses[i] += 1
            results[t] = found
        else:
            results[t] = s_held[r_code[t]] + r_held[s_code[t]]
        r_seen[r_code[t]] += 1
        s_seen[s_code[t]] += 1
        r_held[r_code[t]] += 1
        s_held[s_code[t]] += 1
        of_r += 1
        for new in range(2):
            number[held] = 2 * t + new
            value[held] = s[t] if new else r[t]
            code[held] = s_code[t] if new else r_code[t]
            end[held] = s_end[t] if new else r_end[t]
            used[held] = t
            uses[held] = 0
            held += 1
        if held > size:
            if kind == TABLE:
                of_r_now = r_scores[choice, r_row[t - start]]
                of_s_now = s_scores[choice, s_row[t - start]]
                at_r, at_s = r_origin[t - start], s_origin[t - start]
                for i in range(held):
                    if number[i] & 1:
                        score[i] = _look_up(of_s_now, s_factors[choice], s_shape, at_s, value[i])
                    else:
                        score[i] = _look_up(of_r_now, r_factors[choice], r_shape, at_r, value[i])
            elif kind == FIFO:
                for i in range(held):
                    score[i] = number[i] // 2
            elif kind == LRU:
                for i in range(held):
                    score[i] = used[i]
            elif kind == LFU:
                for i in range(held):
                    score[i] = uses[i]
            elif kind == PLAN:
                for i in range(held):
                    score[i] = 1.0 if t + 1 < end[i] else 0.0
            else:
                for i in range(held):
                    seen = r_seen[code[i]] if number[i] & 1 else s_seen[code[i]]
                    if t + 1 >= end[i]:
                        score[i] = -1.0
                    elif kind == RANDOM:
                        score[i] = np.random.random()
                    elif kind == PROB:
                        score[i] = seen
                    else:
                        score[i] = seen * (end[i] - t - 1)
        excess = held - size
        if excess > 0:
            first, second = _lowest_two(score, number, held)
            # The later place goes first, so that filling it from the end does not move the other one.
            for worst in (max(first, second), min(first, second)) if excess > 1 else (first, first):
                arrived = number[worst] // 2
                if arrived < t:
                    observed += (t - arrived - observed) / memory
                if number[worst] & 1:
                    s_held[code[worst]] -= 1
                else:
                    r_held[code[worst]] -= 1
                    of_r -= 1
                held -= 1
                number[worst] = number[held]
                value[worst] = value[held]
                code[worst] = code[held]
                used[worst] = used[held]
                uses[worst] = uses[held]
                end[worst] = end[held]
                if excess == 1:
                    break
        kept_of_r[t] = of_r
        if len(lifetimes) > 1:
            target = np.log(observed)
            for j in range(len(lifetimes)):
                if abs(lifetimes[j] - target) < abs(lifetimes[choice] - target):
                    choice = j
        choices[t] = choice
    counts[0], counts[1], counts[2] = held, of_r, choice
    average[0] = observed
