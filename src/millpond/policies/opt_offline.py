"""OPT-offline (section 5.1): the most results that any algorithm could find, knowing both streams."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.models.array_types import Ints
from millpond.policies.kernels.opt_offline_flow import Matches, find_held_matches


@dataclass(frozen=True, eq=False)
class JoinPlan:
    """The most results, and for each tuple the first step at which the plan no longer keeps it."""

    results: int
    r_until: Ints
    s_until: Ints


def find_matches(r: Ints, s: Ints) -> Matches:
    """Every later partner of every tuple.  Tuples of R have the numbers 0, 1, …, then come those of S."""
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
    return Matches(every.astype(np.int64), arrived.astype(np.int64), when.astype(np.int64))


def plan_join(r: Ints, s: Ints, size: int, warm_up: int = 0) -> JoinPlan:
    """The plan that finds the most results from step ``warm_up`` on with ``size`` kept tuples.

    Min-cost flow: ``size`` units flow along a chain of steps.  A unit, a place in memory, leaves the
    chain when it takes an arriving tuple, passes from match to match of that tuple, and returns to the chain
    after one of them.
    There is one arc for each match and one for the return after it; steps without a match need no node.
    """
    steps = len(r)
    matches = find_matches(r, s)
    counts = matches.when >= warm_up
    found = find_held_matches(matches, counts, steps, size)
    until = np.zeros(2 * steps, np.int64)
    np.maximum.at(until, matches.owner[found], matches.when[found] + 1)
    return JoinPlan(int(counts[found].sum()), until[:steps], until[steps:])
