"""The flow behind OPT-offline, slot by slot, as machine code.

Each slot in turn takes the path through the steps that gains most, given the slots before it; where it gains
more to take over what another slot does, it does, and that one takes another way (successive shortest paths).
Gains are 0 or 1, so a path is found by buckets instead of a heap, and slots that gain nothing are left idle.
A general solver needs ten to a hundred times as long.
"""

from __future__ import annotations

import numpy as np

from millpond.models.arrays import Bools, Ints
from millpond.policies.kernels.compiled import compiled

NOWHERE = -1


def held_matches(owner: Ints, arrived: Ints, when: Ints, counts: Bools, steps: int, size: int) -> Bools:
    """Which matches the best plan finds; a tuple that finds one has found all its earlier ones.

    Match j belongs to tuple ``owner[j]``, which came in step ``arrived[j]``, and happens in step ``when[j]``;
    matches are in the order of both.  It is worth 1 if it ``counts``, else nothing.
    """
    if not len(owner):
        return np.zeros(0, np.bool_)
    first = np.ones(len(owner), np.bool_)
    first[1:] = owner[1:] != owner[:-1]
    firsts = np.full(2 * steps, NOWHERE, np.int64)
    firsts[owner[first]] = np.flatnonzero(first)
    order = np.argsort(when, kind="stable").astype(np.int64)
    starts = np.searchsorted(when[order], np.arange(steps + 1)).astype(np.int64)
    return _plan(arrived, when, counts.astype(np.int64), first, firsts, order, starts, steps, size)


@compiled
def _first_lengths(
    arrived: Ints, when: Ints, gain: Ints, first: Bools, order: Ints, starts: Ints, steps: int
) -> Ints:
    """The length of the shortest path to every node while nothing flows: one pass in the order of time."""
    length = np.zeros(steps + len(when), np.int64)
    for t in range(1, steps):
        length[t] = length[t - 1]
        for place in range(starts[t], starts[t + 1]):
            j = order[place]
            before = arrived[j] if first[j] else steps + j - 1
            length[steps + j] = length[before] - gain[j]
            length[t] = min(length[t], length[steps + j])
    return length


@compiled
def _leave_bucket(node: int, bucket: int, heads: Ints, after: Ints, before: Ints) -> None:
    if before[node] == NOWHERE:
        heads[bucket] = after[node]
    else:
        after[before[node]] = after[node]
    if after[node] != NOWHERE:
        before[after[node]] = before[node]


@compiled
def _reach(
    node: int, source: int, distance: int, best: Ints, parent: Ints, heads: Ints, after: Ints, before: Ints
) -> None:
    """Note a way to a node, if it is the shortest so far and not longer than a path of no gain."""
    if distance >= len(heads) or (best[node] != NOWHERE and best[node] <= distance):
        return
    if best[node] != NOWHERE:
        _leave_bucket(node, best[node], heads, after, before)
    best[node] = distance
    parent[node] = source
    before[node] = NOWHERE
    after[node] = heads[distance]
    if after[node] != NOWHERE:
        before[after[node]] = node
    heads[distance] = node


@compiled
def _plan(
    arrived: Ints, when: Ints, gain: Ints, first: Bools, firsts: Ints, order: Ints, starts: Ints,
    steps: int, size: int,
) -> Bools:  # fmt: skip
    # Node t < steps is the choice at step t, where a slot is free; node steps + j is match j, just found.
    count = len(when)
    last = steps - 1
    length = _first_lengths(arrived, when, gain, first, order, starts, steps)
    held = np.zeros(count, np.bool_)  # a slot goes from the match before, or the arrival, to this one
    freed = np.zeros(count, np.bool_)  # and is free after it
    waiting = np.zeros(steps, np.int64)  # slots that are free from a step to the next
    best = np.empty(steps + count, np.int64)
    parent = np.empty(steps + count, np.int64)
    after = np.empty(steps + count, np.int64)
    before = np.empty(steps + count, np.int64)
    settled = np.empty(steps + count, np.int64)
    for _ in range(size):
        gained = length[0] - length[last]
        if gained <= 0:
            break
        heads = np.full(gained + 1, NOWHERE, np.int64)
        best[:] = NOWHERE
        done = 0
        _reach(0, NOWHERE, 0, best, parent, heads, after, before)
        bucket = 0
        while best[last] == NOWHERE or bucket < best[last]:
            node = heads[bucket]
            if node == NOWHERE:
                bucket += 1
                continue
            _leave_bucket(node, bucket, heads, after, before)
            settled[done] = node
            done += 1
            base = bucket + length[node]
            if node < steps:
                t = node
                if t < last:
                    _reach(t + 1, t, base - length[t + 1], best, parent, heads, after, before)
                if t > 0 and waiting[t - 1] > 0:
                    _reach(t - 1, t, base - length[t - 1], best, parent, heads, after, before)
                for side in range(2):
                    j = firsts[side * steps + t]
                    if j != NOWHERE and not held[j]:
                        there = base - gain[j] - length[steps + j]
                        _reach(steps + j, t, there, best, parent, heads, after, before)
                for place in range(starts[t], starts[t + 1]):
                    j = order[place]
                    if freed[j]:
                        there = base - length[steps + j]
                        _reach(steps + j, t, there, best, parent, heads, after, before)
                continue
            j = node - steps
            if not freed[j]:
                there = base - length[when[j]]
                _reach(when[j], node, there, best, parent, heads, after, before)
            if j + 1 < count and not first[j + 1] and not held[j + 1]:
                there = base - gain[j + 1] - length[node + 1]
                _reach(node + 1, node, there, best, parent, heads, after, before)
            if held[j]:
                back = arrived[j] if first[j] else node - 1
                there = base + gain[j] - length[back]
                _reach(back, node, there, best, parent, heads, after, before)
        if best[last] >= gained:
            break
        for place in range(done):
            length[settled[place]] += best[settled[place]] - best[last]
        node = last
        while node != 0:
            source = parent[node]
            if node < steps and source < steps:
                if source < node:
                    waiting[source] += 1
                else:
                    waiting[node] -= 1
            elif node < steps:
                j = source - steps
                if when[j] == node:
                    freed[j] = True
                else:  # the tuple is not taken in after all
                    held[j] = False
            elif source < steps:
                j = node - steps
                if when[j] == source:  # the tuple stays on
                    freed[j] = False
                else:
                    held[j] = True
            elif node > source:
                held[node - steps] = True
            else:
                held[source - steps] = False
            node = source
    return held
