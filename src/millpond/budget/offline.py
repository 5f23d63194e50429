"""The best that any algorithm could have done, knowing both streams in advance (OPT-offline, section 5.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ortools.graph.python import min_cost_flow

from millpond.stochastic.arrays import Floats, Ints


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
    count = len(owner)
    first = np.ones(count, bool)
    first[1:] = owner[1:] != owner[:-1]
    # Node t of the chain is "the choice at step t"; a match at step t ends before that choice.
    node = steps + np.arange(count)
    tails = np.concatenate([np.arange(steps - 1), np.where(first, arrived, node - 1), node])
    heads = np.concatenate([np.arange(1, steps), node, when])
    capacity = np.concatenate([np.full(steps - 1, size), np.ones(2 * count, np.int64)])
    cost = np.concatenate(
        [np.zeros(steps - 1, np.int64), -(when >= warm_up).astype(np.int64), np.zeros(count, np.int64)]
    )
    solver = min_cost_flow.SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(tails, heads, capacity, cost)
    solver.set_nodes_supplies(np.array([0, steps - 1]), np.array([size, -size]))
    if steps > 1 and solver.solve() != solver.OPTIMAL:
        raise RuntimeError("the flow of the offline optimum was not solved")
    until = np.zeros(2 * steps, np.int64)
    if steps > 1:
        used: Floats = solver.flows(arcs[steps - 1 : steps - 1 + count]) > 0
        np.maximum.at(until, owner[used], when[used] + 1)
    return JoinPlan(-solver.optimal_cost() if steps > 1 else 0, until[:steps], until[steps:])
