"""Policies on streams whose models are identified as they come: what ``cache`` and ``join`` run.

Before a model is found, a cache discards the least recently used row, a join the oldest tuple.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millpond.errors import MillpondError
from millpond.lab.simulate import (
    AHEAD,
    adaptive_tables,
    by_rule,
    by_store,
    cache_player,
    cache_table,
    join_way,
    warm_up,
)
from millpond.lab.workloads import Workload, modelled
from millpond.models.arrays import Bools, Floats, Ints
from millpond.models.stretches import Stretch, begun, ruling_kind
from millpond.policies.baselines import Fifo
from millpond.policies.flow import FlowExpect
from millpond.policies.heeb import LIFETIMES
from millpond.policies.kernels import cache_loop, join_loop
from millpond.policies.kernels.join_loop import JoinRun, Placed, no_table
from millpond.policies.kernels.shadow import ShadowRun, heeb_stretches, rehearse_stretches
from millpond.policies.offline import best_join
from millpond.policies.policy import Candidates, Policy
from millpond.policies.registry import policy_info

# --- caching ---------------------------------------------------------------------------------------


def ordered(parts: Sequence[Stretch]) -> bool:
    """Whether the keys mostly follow a model in which time or order counts.

    What is only more or less popular is left to counting: a model of it knows less than perfect LFU does.
    """
    return ruling_kind(parts) not in (None, "stationary")


def cache_online(policy: str, size: int, parts: Sequence[Stretch], keys: Ints, seed: int = 0) -> Bools:
    """Which references are hits under a policy that has the model of each stretch."""
    known = any(part.model is not None for part in parts)
    if policy_info(policy).needs_model and not known:
        raise MillpondError(
            f"{policy} needs a model of the keys, and none fits them",
            remedy="leave it out, or take rehearse, which needs none",
        )
    match policy:
        case "heeb-online":
            return heeb_stretches(keys, size, parts).hits
        case "rehearse" if ordered(parts):
            return rehearse_stretches(keys, size, parts).hits
        case "heeb" | "ao":
            return _cache_by_table(policy, size, parts, keys)
    return cache_player(policy, size, None, seed)(keys)


def _cache_by_table(policy: str, size: int, parts: Sequence[Stretch], keys: Ints) -> Bools:
    run = ShadowRun(keys, size, [policy])
    for part in parts:
        if part.model is None:
            run.play(part.stop, [cache_loop.LRU], no_table())
        else:
            table = cache_table(policy, size, part.model)
            run.play(part.stop, [cache_loop.TABLE], Placed.of((table,), keys[part.start : part.stop]))
    return run.trace.hits


# --- joining ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class JoinStretch:
    """Steps of two streams with one model each, as a workload that begins with them; or with none yet."""

    start: int
    stop: int
    work: Workload | None

    def of(self, stream: Ints) -> Ints:
        """The part of a stream that lies within."""
        return stream[self.start : self.stop]


def paired(r: Ints, s: Ints, r_parts: Sequence[Stretch], s_parts: Sequence[Stretch]) -> list[JoinStretch]:
    """The stretches of both streams together, cut where the model of either changes."""
    cuts = sorted({part.start for part in (*r_parts, *s_parts)})
    found = []
    for start, stop in zip(cuts, [*cuts[1:], len(r)], strict=True):
        models = []
        for stream, parts in ((r, r_parts), (s, s_parts)):
            part = parts[bisect_right([part.start for part in parts], start) - 1]
            if part.model is not None:
                last = int(stream[start - 1]) if start else 0
                models.append(begun(part.model, start - part.start, last))
        found.append(JoinStretch(start, stop, modelled("join", *models) if len(models) == 2 else None))
    return found


def join_online(policy: str, size: int, parts: Sequence[JoinStretch], r: Ints, s: Ints, seed: int = 0) -> int:
    """The results after the warm-up under a policy that has the models of each stretch."""
    match policy:
        case "opt":
            return best_join(r, s, size, warm_up(size)).results
        case "flowexpect":
            return by_store(_Following(parts, size), size, r, s)
        case "heeb" | "rehearse" | "heeb-adaptive":
            return _join_by_table(policy, size, parts, r, s)
    return by_rule(policy, size, r, s, _leaves(parts, r, s), seed)


def _join_by_table(policy: str, size: int, parts: Sequence[JoinStretch], r: Ints, s: Ints) -> int:
    adaptive = policy == "heeb-adaptive"
    run = JoinRun(r, s, size, lifetimes=np.array(LIFETIMES) if adaptive else None)
    for part in parts:
        if part.work is None:
            run.play(part.stop, join_loop.FIFO)
            continue
        streams = part.of(r), part.of(s)
        if adaptive:
            tables = adaptive_tables(part.work, *streams)
        else:
            tables = join_way(policy, part.work, size).placed(*streams)
        run.play(part.stop, join_loop.TABLE, tables)
    return run.trace.total(warm_up(size))


def _leaves(parts: Sequence[JoinStretch], r: Ints, s: Ints) -> tuple[Ints, Ints]:
    """When each tuple leaves the window that the models give it.

    A tuple that comes before the models give windows gets its own when they do.
    """
    ends = [np.full(len(r), join_loop.NEVER, np.int64) for _ in range(2)]
    since = 0
    for part in parts:
        within = slice(since, part.stop)
        leaves = part.work.leaves(r[within], s[within]) if part.work is not None else None
        if leaves is not None:
            for end, step in zip(ends, leaves, strict=True):
                end[within] = np.maximum(part.start + step, np.arange(since, part.stop) + 1)
            since = part.stop
    return ends[0], ends[1]


class _Following(Policy):
    """FlowExpect with the models of each stretch."""

    def __init__(self, parts: Sequence[JoinStretch], size: int) -> None:
        self._starts = [part.start for part in parts]
        self._policies: list[Policy] = [
            Fifo() if part.work is None else FlowExpect(part.work.r, part.work.s, AHEAD, size)
            for part in parts
        ]

    def _ruling(self, now: int) -> tuple[Policy, int]:
        place = bisect_right(self._starts, now) - 1
        return self._policies[place], now - self._starts[place]

    def observe(self, now: int, r: Ints, s: Ints) -> None:
        policy, step = self._ruling(now)
        policy.observe(step, r, s)

    def scores(self, now: int, candidates: Candidates) -> Floats:
        policy, step = self._ruling(now)
        return policy.scores(step, candidates)
