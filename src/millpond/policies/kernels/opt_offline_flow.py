"""The min-cost flow of OPT-offline, compiled.

The places in memory are added one by one.  Each takes the path through the steps that gains most, given the
earlier places, and may take over a part of another one's path, which is then rerouted (successive shortest
paths).  Gains are 0 or 1, so buckets replace the heap of Dijkstra's algorithm; the search ends when a place
gains nothing.
This is ten to a hundred times as fast as a general solver.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millpond.models.array_types import Bools, Ints
from millpond.policies.kernels.compiled import compiled, inlined

NOWHERE = -1


class Matches(NamedTuple):
    """Every later partner of every tuple, in the order of tuples and then of steps."""

    owner: Ints  # the number of the tuple
    arrived: Ints  # the step of the tuple
    when: Ints  # the step of the match


class _Graph(NamedTuple):
    """Node t < steps is step t, where a place is free; node steps + j is match j, just found."""

    steps: int
    arrived: Ints
    when: Ints
    gain: Ints  # by match: 1 if it counts
    first: Bools  # by match: whether it is its tuple's first
    firsts: Ints  # by tuple: its first match
    order: Ints  # the matches in the order of `when`
    starts: Ints  # by step: its first index in `order`


class _Flow(NamedTuple):
    """The paths of the places so far."""

    held: Bools  # by match: a place passes from the previous match, or from the arrival, to this one
    freed: Bools  # by match: a place is free after it
    waiting: Ints  # by step: the places that are free until the next step


class _PathSearch(NamedTuple):
    """A search for shortest paths; distances are reduced by the node's ``length``."""

    length: Ints  # by node: the length of the shortest path in the previous search
    best: Ints  # by node: the shortest distance so far
    parent: Ints
    after: Ints  # the links of the buckets
    before: Ints
    settled: Ints  # the nodes whose distance is final, in order
    heads: Ints  # by distance: the first node in its bucket


def find_held_matches(matches: Matches, counts: Bools, steps: int, size: int) -> Bools:
    """Which matches the best plan finds; a tuple that finds one has found all its earlier ones.

    A match is worth 1 if it ``counts``, otherwise nothing.
    """
    owner, arrived, when = matches
    if not len(owner):
        return np.zeros(0, np.bool_)
    first = np.ones(len(owner), np.bool_)
    first[1:] = owner[1:] != owner[:-1]
    firsts = np.full(2 * steps, NOWHERE, np.int64)
    firsts[owner[first]] = np.flatnonzero(first)
    order = np.argsort(when, kind="stable").astype(np.int64)
    starts = np.searchsorted(when[order], np.arange(steps + 1)).astype(np.int64)
    graph = _Graph(steps, arrived, when, counts.astype(np.int64), first, firsts, order, starts)
    return _add_slots(graph, size)


@compiled
def _initial_lengths(graph: _Graph) -> Ints:
    """The length of the shortest path to every node without any flow: one pass in the order of time."""
    steps = graph.steps
    length = np.zeros(steps + len(graph.when), np.int64)
    for t in range(1, steps):
        length[t] = length[t - 1]
        for place in range(graph.starts[t], graph.starts[t + 1]):
            j = graph.order[place]
            before = graph.arrived[j] if graph.first[j] else steps + j - 1
            length[steps + j] = length[before] - graph.gain[j]
            length[t] = min(length[t], length[steps + j])
    return length


@inlined
def _leave_bucket(node: int, bucket: int, search: _PathSearch) -> None:
    after, before = search.after, search.before
    if before[node] == NOWHERE:
        search.heads[bucket] = after[node]
    else:
        after[before[node]] = after[node]
    if after[node] != NOWHERE:
        before[after[node]] = before[node]


@inlined
def _reach(node: int, source: int, length: int, search: _PathSearch) -> None:
    """Record a path of this length to a node, if it is the shortest so far and short enough to gain."""
    best, heads = search.best, search.heads
    distance = length - search.length[node]
    if distance >= len(heads) or (best[node] != NOWHERE and best[node] <= distance):
        return
    if best[node] != NOWHERE:
        _leave_bucket(node, best[node], search)
    best[node] = distance
    search.parent[node] = source
    search.before[node] = NOWHERE
    search.after[node] = heads[distance]
    if search.after[node] != NOWHERE:
        search.before[search.after[node]] = node
    heads[distance] = node


@inlined
def _leave_step(t: int, length: int, graph: _Graph, flow: _Flow, search: _PathSearch) -> None:
    """Follow the arcs from a step where a place is free."""
    steps = graph.steps
    if t < steps - 1:
        _reach(t + 1, t, length, search)
    if t > 0 and flow.waiting[t - 1] > 0:
        _reach(t - 1, t, length, search)
    for side in range(2):
        j = graph.firsts[side * steps + t]
        if j != NOWHERE and not flow.held[j]:
            _reach(steps + j, t, length - graph.gain[j], search)
    for place in range(graph.starts[t], graph.starts[t + 1]):
        j = graph.order[place]
        if flow.freed[j]:
            _reach(steps + j, t, length, search)


@inlined
def _leave_match(j: int, length: int, graph: _Graph, flow: _Flow, search: _PathSearch) -> None:
    """Follow the arcs from a match that was just found."""
    node = graph.steps + j
    if not flow.freed[j]:
        _reach(graph.when[j], node, length, search)
    if j + 1 < len(graph.when) and not graph.first[j + 1] and not flow.held[j + 1]:
        _reach(node + 1, node, length - graph.gain[j + 1], search)
    if flow.held[j]:
        back = graph.arrived[j] if graph.first[j] else node - 1
        _reach(back, node, length + graph.gain[j], search)


@inlined
def _find_path(graph: _Graph, flow: _Flow, search: _PathSearch) -> int:
    """Find the shortest path from the first step to the last; return how many nodes are settled."""
    best, last = search.best, graph.steps - 1
    best[:] = NOWHERE
    _reach(0, NOWHERE, search.length[0], search)
    done = 0
    bucket = 0
    while best[last] == NOWHERE or bucket < best[last]:
        node = search.heads[bucket]
        if node == NOWHERE:
            bucket += 1
            continue
        _leave_bucket(node, bucket, search)
        search.settled[done] = node
        done += 1
        length = bucket + search.length[node]
        if node < graph.steps:
            _leave_step(node, length, graph, flow, search)
        else:
            _leave_match(node - graph.steps, length, graph, flow, search)
    return done


@inlined
def _augment(graph: _Graph, flow: _Flow, search: _PathSearch) -> None:
    """Send one place along the path found; arcs against the flow undo it."""
    steps, held, freed = graph.steps, flow.held, flow.freed
    node = steps - 1
    while node != 0:
        source = search.parent[node]
        if node < steps and source < steps:
            if source < node:
                flow.waiting[source] += 1
            else:
                flow.waiting[node] -= 1
        elif node < steps:
            j = source - steps
            if graph.when[j] == node:
                freed[j] = True
            else:  # the tuple is no longer kept on arrival
                held[j] = False
        elif source < steps:
            j = node - steps
            if graph.when[j] == source:  # the tuple is kept after this match
                freed[j] = False
            else:
                held[j] = True
        elif node > source:
            held[node - steps] = True
        else:
            held[source - steps] = False
        node = source


@compiled
def _add_slots(graph: _Graph, size: int) -> Bools:
    count = len(graph.when)
    nodes = graph.steps + count
    last = graph.steps - 1
    length = _initial_lengths(graph)
    flow = _Flow(np.zeros(count, np.bool_), np.zeros(count, np.bool_), np.zeros(graph.steps, np.int64))
    best, parent = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    after, before = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    settled = np.empty(nodes, np.int64)
    for _ in range(size):
        gained = length[0] - length[last]
        if gained <= 0:
            break
        heads = np.full(gained + 1, NOWHERE, np.int64)
        search = _PathSearch(length, best, parent, after, before, settled, heads)
        done = _find_path(graph, flow, search)
        if best[last] >= gained:
            break
        for place in range(done):
            length[settled[place]] += best[settled[place]] - best[last]
        _augment(graph, flow, search)
    return flow.held
