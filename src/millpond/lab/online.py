"""Runs a policy on streams whose models are identified as they come: what ``lab cache`` and ``lab join`` use.

Before a model is identified, HEEB evicts the least recently used row of a cache, and the oldest tuple of a
join.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millpond.lab.simulate import (
    AHEAD,
    align_adaptive_tables,
    cache_player,
    cache_table,
    choose_tables,
    missing_model,
    run_in_store,
    run_rule,
    warm_up,
)
from millpond.lab.workloads import Workload, workload_of
from millpond.models.array_types import Bools, Floats, Ints
from millpond.models.segments import Segment, most_common_kind, shift_model
from millpond.policies.fifo import Fifo
from millpond.policies.flow_expect import FlowExpect
from millpond.policies.heeb import LIFETIMES
from millpond.policies.kernels.join_loop import JoinRun
from millpond.policies.kernels.kinds import CacheScore, JoinScore
from millpond.policies.kernels.score_lookup import align_tables, no_tables
from millpond.policies.opt_offline import plan_join
from millpond.policies.policy import Candidates, Policy
from millpond.policies.registry import policy_info
from millpond.policies.rehearse.cache import ShadowRun, heeb_segments, rehearse_segments
from millpond.policies.store import NEVER

# --- caching ---------------------------------------------------------------------------------------


def has_useful_model(segments: Sequence[Segment]) -> bool:
    """Whether the keys mostly follow a model in which time or order matters.

    A stationary model is not useful: perfect LFU counts its frequencies better.
    """
    return most_common_kind(segments) not in (None, "stationary")


def cache_online(policy: str, size: int, segments: Sequence[Segment], keys: Ints, seed: int = 0) -> Bools:
    """Which references are hits under a policy that has the model of each segment."""
    has_model = any(segment.model is not None for segment in segments)
    if policy_info(policy).needs_model and not has_model:
        raise missing_model(policy)
    match policy:
        case "heeb-online":
            return heeb_segments(keys, size, segments).hits
        case "rehearse" if has_useful_model(segments):
            return rehearse_segments(keys, size, segments).hits
        case "heeb" | "ao":
            return _cache_by_table(policy, size, segments, keys)
    return cache_player(policy, size, None, seed)(keys)


def _cache_by_table(policy: str, size: int, segments: Sequence[Segment], keys: Ints) -> Bools:
    run = ShadowRun(keys, size, [policy])
    for segment in segments:
        if segment.model is None:
            run.play(segment.stop, [CacheScore.LRU], no_tables())
        else:
            table = cache_table(policy, size, segment.model)
            tables = align_tables((table,), keys[segment.start : segment.stop])
            run.play(segment.stop, [CacheScore.TABLE], tables)
    return run.trace.hits


# --- joining ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class JoinSegment:
    """Steps during which neither stream changes its model; ``work`` is None before both have one.

    The first step of the segment is step 0 of the workload.
    """

    start: int
    stop: int
    work: Workload | None

    def of(self, stream: Ints) -> Ints:
        """The values of a stream in this segment."""
        return stream[self.start : self.stop]


def join_segments(
    r: Ints, s: Ints, r_segments: Sequence[Segment], s_segments: Sequence[Segment]
) -> list[JoinSegment]:
    """The segments of both streams together, cut where the model of either changes."""
    cuts = sorted({segment.start for segment in (*r_segments, *s_segments)})
    found = []
    for start, stop in zip(cuts, [*cuts[1:], len(r)], strict=True):
        models = []
        for stream, segments in ((r, r_segments), (s, s_segments)):
            segment = segments[bisect_right([segment.start for segment in segments], start) - 1]
            if segment.model is not None:
                last = int(stream[start - 1]) if start else 0
                models.append(shift_model(segment.model, start - segment.start, last))
        found.append(JoinSegment(start, stop, workload_of("join", *models) if len(models) == 2 else None))
    return found


def join_online(
    policy: str, size: int, segments: Sequence[JoinSegment], r: Ints, s: Ints, seed: int = 0
) -> int:
    """The results after the warm-up under a policy that has the models of each segment."""
    match policy:
        case "opt":
            return plan_join(r, s, size, warm_up(size)).results
        case "flowexpect":
            return run_in_store(_SegmentedFlowExpect(segments, size), size, r, s)
        case "heeb" | "rehearse" | "heeb-adaptive":
            return _join_by_table(policy, size, segments, r, s)
    return run_rule(policy, size, r, s, _leaves(segments, r, s), seed)


def _join_by_table(policy: str, size: int, segments: Sequence[JoinSegment], r: Ints, s: Ints) -> int:
    adaptive = policy == "heeb-adaptive"
    run = JoinRun(r, s, size, lifetimes=np.array(LIFETIMES) if adaptive else None)
    for segment in segments:
        if segment.work is None:
            run.play(segment.stop, JoinScore.FIFO)
            continue
        streams = segment.of(r), segment.of(s)
        if adaptive:
            tables = align_adaptive_tables(segment.work, *streams)
        else:
            tables = choose_tables(policy, segment.work, size).align(*streams)
        run.play(segment.stop, JoinScore.TABLE, tables)
    return run.trace.total(warm_up(size))


def _leaves(segments: Sequence[JoinSegment], r: Ints, s: Ints) -> tuple[Ints, Ints]:
    """The step at which each tuple leaves the window that the models give it.

    A tuple that arrives before the models have windows gets its window when they do.
    """
    ends = [np.full(len(r), NEVER, np.int64) for _ in range(2)]
    since = 0
    for segment in segments:
        within = slice(since, segment.stop)
        leaves = segment.work.leaves(r[within], s[within]) if segment.work is not None else None
        if leaves is not None:
            for end, step in zip(ends, leaves, strict=True):
                end[within] = np.maximum(segment.start + step, np.arange(since, segment.stop) + 1)
            since = segment.stop
    return ends[0], ends[1]


class _SegmentedFlowExpect(Policy):
    """FlowExpect with the models of each segment, and FIFO before there are any."""

    def __init__(self, segments: Sequence[JoinSegment], size: int) -> None:
        self._starts = [segment.start for segment in segments]
        self._policies: list[Policy] = [
            Fifo() if segment.work is None else FlowExpect(segment.work.r, segment.work.s, AHEAD, size)
            for segment in segments
        ]

    def _current(self, now: int) -> tuple[Policy, int]:
        place = bisect_right(self._starts, now) - 1
        return self._policies[place], now - self._starts[place]

    def observe(self, now: int, r: Ints, s: Ints) -> None:
        policy, step = self._current(now)
        policy.observe(step, r, s)

    def scores(self, now: int, candidates: Candidates) -> Floats:
        policy, step = self._current(now)
        return policy.scores(step, candidates)
