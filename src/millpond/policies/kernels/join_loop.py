"""The compiled loop of joining two streams in a fixed memory.

In each step the two new tuples join the kept ones (not each other); then the lowest scores are evicted.  Of
equal scores the oldest tuple goes first; of the same step R's if the step is even, otherwise S's.
:class:`millpond.policies.store.JoinStore` defines the same in plain Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from millpond.models.array_types import Floats, Ints
from millpond.policies.kernels.compiled import compiled, inlined
from millpond.policies.kernels.kinds import JoinScore
from millpond.policies.kernels.score_lookup import AlignedTables, look_up_score, no_tables
from millpond.policies.store import NEVER

# Indices into `counts`: the tuples kept, those of R among them, and the table in use.
_HELD, _HELD_OF_R, _CHOICE = range(3)


@dataclass(frozen=True, eq=False)
class JoinTrace:
    """For each step: the results found, the tuples of R kept after it, and the table in use."""

    results: Ints
    kept_of_r: Ints
    choices: Ints

    def total(self, warm_up: int) -> int:
        """The results found from step ``warm_up`` on."""
        return int(self.results[warm_up:].sum())


class _JoinStreams(NamedTuple):
    """The values of both streams, codes of the values from 0 on, and the first step outside each window."""

    r: Ints
    s: Ints
    r_code: Ints
    s_code: Ints
    r_end: Ints
    s_end: Ints


class _Settings(NamedTuple):
    """``lifetimes`` are logarithms, one for each table; ``memory`` is in evictions."""

    size: int
    lifetimes: Floats
    memory: float
    seed: int


class _Kept(NamedTuple):
    """The kept tuples; the first ``counts[_HELD]`` entries are in use."""

    number: Ints  # 2t for R's tuple of step t, 2t + 1 for S's
    value: Ints
    code: Ints
    used: Ints
    uses: Ints
    end: Ints
    score: Floats


class _Totals(NamedTuple):
    """By code: how often R and S had it, and how many tuples of either are kept."""

    r_seen: Ints
    s_seen: Ints
    r_held: Ints
    s_held: Ints
    counts: Ints  # by _HELD, _HELD_OF_R and _CHOICE
    lifetime: Floats  # the average lifetime of evicted tuples


class _Trace(NamedTuple):
    results: Ints
    kept_of_r: Ints
    choices: Ints


class JoinRun:
    """A join that can change its score between steps.

    ``leaves`` has for each tuple the first step at which its window no longer covers it; under PLAN, the
    first step at which the plan no longer keeps it.  With ``lifetimes`` there is one table for each of these
    average lifetimes, and the one nearest to the observed average is in use.
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
        self._streams = _JoinStreams(
            np.ascontiguousarray(r, np.int64),
            np.ascontiguousarray(s, np.int64),
            codes[:steps].astype(np.int64),
            codes[steps:].astype(np.int64),
            *(leaves if leaves is not None else (never, never)),
        )
        logs = np.zeros(1) if lifetimes is None else np.log(lifetimes)
        self._settings = _Settings(size, logs, memory, seed)
        self._next = 0
        self._trace = _Trace(*(np.zeros(steps, np.int64) for _ in range(3)))
        number, value, code, used, uses, end = (np.empty(size + 2, np.int64) for _ in range(6))
        self._kept = _Kept(number, value, code, used, uses, end, np.empty(size + 2))
        r_seen, s_seen, r_held, s_held = (np.zeros(len(distinct), np.int64) for _ in range(4))
        self._totals = _Totals(r_seen, s_seen, r_held, s_held, np.zeros(3, np.int64), np.exp(logs[:1]))

    def play(
        self, stop: int, kind: JoinScore, tables: tuple[AlignedTables, AlignedTables] | None = None
    ) -> None:
        """Continue up to step ``stop``; the tables are aligned with the steps from the current one on."""
        of_r, of_s = tables if tables is not None else (no_tables(), no_tables())
        if kind == JoinScore.TABLE and tables is None:
            raise ValueError("scores by table need tables")
        _run_steps(
            (self._next, stop), int(kind), self._settings, self._streams, of_r, of_s,
            self._kept, self._totals, self._trace,
        )  # fmt: skip
        self._next = stop

    @property
    def trace(self) -> JoinTrace:
        """The steps so far."""
        return JoinTrace(*self._trace)


def run_join(
    r: Ints,
    s: Ints,
    size: int,
    kind: JoinScore,
    tables: tuple[AlignedTables, AlignedTables] | None = None,
    leaves: tuple[Ints, Ints] | None = None,
    lifetimes: Floats | None = None,
    memory: float = 1000.0,
    seed: int = 0,
) -> JoinTrace:
    """Join the streams with ``size`` kept tuples, evicting by one score; see :class:`JoinRun`."""
    run = JoinRun(r, s, size, leaves, lifetimes, memory, seed)
    run.play(len(r), kind, tables)
    return run.trace


@compiled
def _run_steps(
    steps: tuple[int, int], kind: int, settings: _Settings, streams: _JoinStreams,
    of_r: AlignedTables, of_s: AlignedTables, kept: _Kept, totals: _Totals, trace: _Trace,
) -> None:  # fmt: skip
    start, stop = steps
    counts, lifetimes = totals.counts, settings.lifetimes
    if start == 0:
        np.random.seed(settings.seed)
    # Results can be counted by value, unless tuples leave their windows or each use must be noted.
    by_tuple = (
        kind in (JoinScore.LRU, JoinScore.LFU) or streams.r_end.min() < NEVER or streams.s_end.min() < NEVER
    )
    for t in range(start, stop):
        r_code, s_code = streams.r_code[t], streams.s_code[t]
        if by_tuple:
            trace.results[t] = _use_partners(t, streams, kept, counts[_HELD])
        else:
            trace.results[t] = totals.s_held[r_code] + totals.r_held[s_code]
        totals.r_seen[r_code] += 1
        totals.s_seen[s_code] += 1
        totals.r_held[r_code] += 1
        totals.s_held[s_code] += 1
        counts[_HELD_OF_R] += 1
        _add_tuple(counts[_HELD], 2 * t, streams.r[t], r_code, streams.r_end[t], kept)
        _add_tuple(counts[_HELD] + 1, 2 * t + 1, streams.s[t], s_code, streams.s_end[t], kept)
        counts[_HELD] += 2
        excess = counts[_HELD] - settings.size
        if excess > 0:
            if kind == JoinScore.TABLE:
                _score_by_table(t - start, of_r, of_s, kept, counts)
            else:
                _score_by_rule(t, kind, kept, totals)
            first, second = _find_lowest_two(kept.score, kept.number, counts[_HELD])
            if excess == 1:
                _evict(first, t, settings.memory, kept, totals)
            else:  # the later place goes first: filling it from the end does not move the other one
                _evict(max(first, second), t, settings.memory, kept, totals)
                _evict(min(first, second), t, settings.memory, kept, totals)
        trace.kept_of_r[t] = counts[_HELD_OF_R]
        if len(lifetimes) > 1:
            target = np.log(totals.lifetime[0])
            for j in range(len(lifetimes)):
                if abs(lifetimes[j] - target) < abs(lifetimes[counts[_CHOICE]] - target):
                    counts[_CHOICE] = j
        trace.choices[t] = counts[_CHOICE]


@inlined
def _use_partners(t: int, streams: _JoinStreams, kept: _Kept, held: int) -> int:
    """Mark the kept tuples that match an arrival of step ``t`` as used, and count them."""
    found = 0
    for i in range(held):
        partner = streams.r[t] if kept.number[i] & 1 else streams.s[t]
        if kept.value[i] == partner and t < kept.end[i]:
            found += 1
            kept.used[i] = t
            kept.uses[i] += 1
    return found


@inlined
def _add_tuple(at: int, number: int, value: int, code: int, end: int, kept: _Kept) -> None:
    kept.number[at] = number
    kept.value[at] = value
    kept.code[at] = code
    kept.end[at] = end
    kept.used[at] = number // 2
    kept.uses[at] = 0


@inlined
def _score_by_table(step: int, of_r: AlignedTables, of_s: AlignedTables, kept: _Kept, counts: Ints) -> None:
    held, choice = counts[_HELD], counts[_CHOICE]
    number, value, score = kept.number, kept.value, kept.score
    r_scores, r_factors = of_r.scores[choice, of_r.row[step]], of_r.factors[choice]
    s_scores, s_factors = of_s.scores[choice, of_s.row[step]], of_s.factors[choice]
    r_origin, s_origin = of_r.origin[step], of_s.origin[step]
    for i in range(held):
        if number[i] & 1:
            score[i] = look_up_score(s_scores, s_factors, of_s.shape, s_origin, value[i])
        else:
            score[i] = look_up_score(r_scores, r_factors, of_r.shape, r_origin, value[i])


@inlined
def _score_by_rule(t: int, kind: int, kept: _Kept, totals: _Totals) -> None:
    for i in range(totals.counts[_HELD]):
        code, end = kept.code[i], kept.end[i]
        seen = totals.r_seen[code] if kept.number[i] & 1 else totals.s_seen[code]
        if kind == JoinScore.FIFO:
            kept.score[i] = kept.number[i] // 2
        elif kind == JoinScore.LRU:
            kept.score[i] = kept.used[i]
        elif kind == JoinScore.LFU:
            kept.score[i] = kept.uses[i]
        elif kind == JoinScore.PLAN:
            kept.score[i] = 1.0 if t + 1 < end else 0.0
        elif t + 1 >= end:
            kept.score[i] = -1.0
        elif kind == JoinScore.RANDOM:
            kept.score[i] = np.random.random()
        elif kind == JoinScore.PROB:
            kept.score[i] = seen
        else:
            kept.score[i] = float(seen) * (end - t - 1)


@inlined
def _age(number: int) -> int:
    """A tuple's place in the order in which equal scores go: by step, the sides taking turns."""
    return number ^ ((number >> 1) & 1)


@inlined
def _find_lowest_two(score: Floats, number: Ints, held: int) -> tuple[int, int]:
    """The places of the tuple to evict first and of the next one."""
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


@inlined
def _evict(at: int, t: int, memory: float, kept: _Kept, totals: _Totals) -> None:
    """Remove the tuple at a place and move the last one there."""
    counts, number, code = totals.counts, kept.number, kept.code
    arrived = number[at] // 2
    if arrived < t:
        totals.lifetime[0] += (t - arrived - totals.lifetime[0]) / memory
    if number[at] & 1:
        totals.s_held[code[at]] -= 1
    else:
        totals.r_held[code[at]] -= 1
        counts[_HELD_OF_R] -= 1
    counts[_HELD] -= 1
    last = counts[_HELD]
    number[at] = number[last]
    kept.value[at] = kept.value[last]
    code[at] = code[last]
    kept.used[at] = kept.used[last]
    kept.uses[at] = kept.uses[last]
    kept.end[at] = kept.end[last]
