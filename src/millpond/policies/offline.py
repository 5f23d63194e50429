"""The best that any algorithm could have done, knowing both streams in advance (OPT-offline, section 5.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.models.arrays import Ints
from millpond.policies.kernels.augment import held_matches


@dataclass(frozen=True, eq=False)
class JoinPlan:
    """The most results, and for each tuple the first step at which it need no longer be there."""

    results: int
    r_until: Ints
    s_until: Ints


def matches(r: Ints, s: Ints) -> tuple[Ints, Ints, Ints]:
    """Every later partner of every tuple: tuple numbers (R's first, then S's), steps, in order of both."""
    steps = len(r)
    tuples, times = [], []
    for side, (own, other) in enumerate(((r, s), (s, r))):
        order = np.argsort(other, kind="stable")
        ordered = other[order]
        begin = np.searchsorted(ordered, own, "left")
        end = np.searchsorted(ordered, own, "right")
        counts = end - begin
        owner = np.repeat(np.arange(steps), counts)
        inside = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        when = order[np.repeat(begin, counts) + inside]
        later = when > owner
        tuples.append(owner[later] + side * steps)
        times.append(when[later])
    every = np.concatenate(tuples)
    when = np.concatenate(times)
    arrived = np.where(every < steps, every, every - steps)
    return every.astype(np.int64), arrived.astype(np.int64), when.astype(np.int64)


def best_join(r: Ints, s: Ints, size: int, warm_up: int = 0) -> JoinPlan:
    """The most results that ``size`` kept tuples can find from step ``warm_up`` on, by min-cost flow.

    ``size`` units flow along a chain of steps; a unit leaves the chain when it takes in an arriving tuple,
    passes from match to match of that tuple, and returns to the chain at any of them.  One arc a match
    and one for its way back: no node for a tuple at a step where nothing happens.
    """
    steps = len(r)
    owner, arrived, when = matches(r, s)
    counts = when >= warm_up
    found = held_matches(owner, arrived, when, counts, steps, size)
    until = np.zeros(2 * steps, np.int64)
    np.maximum.at(until, owner[found], when[found] + 1)
    return JoinPlan(int(counts[found].sum()), until[:steps], until[steps:])
