"""Policies by name, each ready to play whole streams: what the experiments run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from millpond.errors import MillpondError
from millpond.lab.workloads import Workload
from millpond.models.arrays import Bools, Ints, integers
from millpond.models.lifetime import alpha_for
from millpond.models.models import Model
from millpond.models.scores import ScoreTable, heeb_table
from millpond.policies.arc import arc_cache
from millpond.policies.flow import FlowExpect
from millpond.policies.heeb import LIFETIMES, next_step_table
from millpond.policies.kernels import cache_loop, join_loop
from millpond.policies.kernels.cache_loop import run_cache
from millpond.policies.kernels.join_loop import JoinTrace, Placed, run_join
from millpond.policies.kernels.shadow import heeb_online, rehearse_cache, reuse_cache
from millpond.policies.offline import best_join
from millpond.policies.policy import Policy
from millpond.policies.rehearse import Way, heeb_way, rehearse
from millpond.policies.store import JoinStore

# Results of one run: the streams, the number of the run, and the results after the warm-up.
JoinPlayer = Callable[[Ints, Ints, int], int]
CachePlayer = Callable[[Ints], Bools]

# How far FlowExpect looks ahead unless told.
AHEAD = 5

_KINDS = {
    "rand": join_loop.RANDOM,
    "prob": join_loop.PROB,
    "life": join_loop.LIFE,
    "fifo": join_loop.FIFO,
    "lru": join_loop.LRU,
    "lfu": join_loop.LFU,
}

_CACHE_KINDS = {
    "rand": cache_loop.RANDOM,
    "fifo": cache_loop.FIFO,
    "lru": cache_loop.LRU,
    "lfu": cache_loop.LFU,
    "lfu-cached": cache_loop.CACHED_LFU,
    "lru-2": cache_loop.LRU_K,
    "lfd": cache_loop.NEXT_USE,
}


def warm_up(size: int) -> int:
    """The steps whose results do not count: four times the cache (section 6.2)."""
    return 4 * size


def join_player(policy: str, work: Workload, size: int, seed: int = 0, ahead: int = AHEAD) -> JoinPlayer:
    """A policy at work on a workload with ``size`` kept tuples."""
    warm = warm_up(size)
    match policy:
        case "opt":
            return lambda r, s, run: best_join(r, s, size, warm).results
        case "flowexpect":
            return lambda r, s, run: _by_flow(work, size, ahead, r, s)
        case "heeb-adaptive":
            return lambda r, s, run: _adaptive(work, size, r, s).total(warm)
        case "heeb" | "rehearse":
            way = join_way(policy, work, size)
            return lambda r, s, run: play(way, size, r, s).total(warm)
    return lambda r, s, run: by_rule(policy, size, r, s, work.leaves(r, s), seed * 10_007 + run)


def by_rule(policy: str, size: int, r: Ints, s: Ints, leaves: tuple[Ints, Ints] | None, seed: int) -> int:
    """The results after the warm-up under a policy that needs no model beyond the windows."""
    return run_join(r, s, size, _KINDS[policy], leaves=leaves, seed=seed).total(warm_up(size))


def join_way(policy: str, work: Workload, size: int) -> Way:
    """The tables of HEEB with the paper's alpha, or those that rehearsal finds."""
    alpha = work.alpha(size)
    return (
        heeb_way(work.r, work.s, alpha) if policy == "heeb" else rehearse(work.r, work.s, size, alpha).chosen
    )


def play(way: Way, size: int, r: Ints, s: Ints) -> JoinTrace:
    """A run with scores by table."""
    return run_join(r, s, size, join_loop.TABLE, way.placed(r, s))


def adaptive_tables(work: Workload, r: Ints, s: Ints) -> tuple[Placed, Placed]:
    """HEEB's tables for every lifetime that an adaptive alpha may follow."""
    of_r, of_s = (
        Placed.of(tuple(heeb_table(model, alpha_for(life)) for life in LIFETIMES), stream)
        for model, stream in ((work.s, s), (work.r, r))
    )
    return of_r, of_s


def _adaptive(work: Workload, size: int, r: Ints, s: Ints) -> JoinTrace:
    tables = adaptive_tables(work, r, s)
    return run_join(r, s, size, join_loop.TABLE, tables, lifetimes=np.array(LIFETIMES))


def _by_flow(work: Workload, size: int, ahead: int, r: Ints, s: Ints) -> int:
    return by_store(FlowExpect(work.r, work.s, ahead, size), size, r, s)


def by_store(policy: Policy, size: int, r: Ints, s: Ints) -> int:
    """The results after the warm-up under a policy that no loop is compiled for."""
    store = JoinStore(size, policy)
    warm = warm_up(size)
    return sum(
        found
        for step in range(len(r))
        if (found := store.step(step, integers(r[step]), integers(s[step]))) and step >= warm
    )


def cache_player(policy: str, size: int, model: Model | None, seed: int = 0) -> CachePlayer:
    """A policy at work on a reference stream with ``size`` cached rows."""
    if policy in _CACHE_KINDS:
        kind = _CACHE_KINDS[policy]
        return lambda keys: run_cache(keys, size, kind, seed=seed)
    if policy == "arc":
        return lambda keys: arc_cache(keys, size)
    if policy == "reuse":
        return lambda keys: reuse_cache(keys, size)
    if policy == "rehearse":
        return lambda keys: rehearse_cache(keys, size, model).hits
    if model is None:
        raise MillpondError(
            f"{policy} needs a model of the keys, and none fits them",
            remedy="leave it out, or take rehearse, which needs none",
        )
    if policy == "heeb-online":
        return lambda keys: heeb_online(keys, size, model).hits
    table = cache_table(policy, size, model)
    return lambda keys: run_cache(keys, size, cache_loop.TABLE, Placed.of((table,), keys))


def cache_table(policy: str, size: int, model: Model) -> ScoreTable:
    """The table of HEEB with the paper's alpha, or of A_o."""
    return next_step_table(model) if policy == "ao" else heeb_table(model, float(size), caching=True)
