"""Runs a policy, chosen by name, on whole streams whose models are known: what the experiments use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from millpond.errors import MillpondError
from millpond.lab.workloads import Workload
from millpond.models.array_types import Bools, Ints, integers
from millpond.models.lifetime import alpha_for
from millpond.models.models import Model
from millpond.models.score_tables import ScoreTable, heeb_table
from millpond.policies.arc import run_arc
from millpond.policies.definitions import CACHE_DEFINITIONS, JOIN_DEFINITIONS, CacheSetting, JoinSetting
from millpond.policies.heeb import LIFETIMES, next_step_table
from millpond.policies.kernels.cache_loop import run_cache
from millpond.policies.kernels.join_loop import JoinTrace, run_join
from millpond.policies.kernels.kinds import CacheScore, JoinScore
from millpond.policies.kernels.score_lookup import AlignedTables, align_tables
from millpond.policies.opt_offline import plan_join
from millpond.policies.policy import Policy
from millpond.policies.registry import policy_info
from millpond.policies.rehearse.cache import heeb_online, rehearse_cache, reuse_cache
from millpond.policies.rehearse.join import JoinTables, heeb_join_tables, rehearse
from millpond.policies.store import CacheStore, JoinStore

# Runs a policy on two streams (and the number of the run); returns the results after the warm-up.
JoinPlayer = Callable[[Ints, Ints, int], int]
# Runs a policy on a trace; returns which references are hits.
CachePlayer = Callable[[Ints], Bools]

# The look-ahead of FlowExpect by default.
AHEAD = 5

# The policies that the compiled loops run without a model.
_JOIN_SCORES = {
    "rand": JoinScore.RANDOM,
    "prob": JoinScore.PROB,
    "life": JoinScore.LIFE,
    "fifo": JoinScore.FIFO,
    "lru": JoinScore.LRU,
    "lfu": JoinScore.LFU,
}
_CACHE_SCORES = {
    "rand": CacheScore.RANDOM,
    "fifo": CacheScore.FIFO,
    "lru": CacheScore.LRU,
    "lfu": CacheScore.LFU,
    "lfu-cached": CacheScore.CACHED_LFU,
    "lru-2": CacheScore.LRU_K,
    "lfd": CacheScore.NEXT_USE,
}


def warm_up(size: int) -> int:
    """The number of first steps whose results do not count: four times the memory (section 6.2)."""
    return 4 * size


def join_player(policy: str, work: Workload, size: int, seed: int = 0, ahead: int = AHEAD) -> JoinPlayer:
    """A player of the policy on a workload with ``size`` kept tuples."""
    warm = warm_up(size)
    match policy:
        case "opt":
            return lambda r, s, run: plan_join(r, s, size, warm).results
        case "heeb-adaptive":
            return lambda r, s, run: _run_adaptive(work, size, r, s).total(warm)
        case "heeb" | "rehearse":
            tables = choose_tables(policy, work, size)
            return lambda r, s, run: run_tables(tables, size, r, s).total(warm)
    if policy in _JOIN_SCORES:
        return lambda r, s, run: run_rule(policy, size, r, s, work.leaves(r, s), seed * 10_007 + run)
    setting = JoinSetting(work.r, work.s, size, work.alpha(size), seed, ahead)
    return lambda r, s, run: run_in_store(JOIN_DEFINITIONS[policy](setting), size, r, s)


def run_rule(policy: str, size: int, r: Ints, s: Ints, leaves: tuple[Ints, Ints] | None, seed: int) -> int:
    """The results after the warm-up under a policy that needs no model beyond the windows."""
    return run_join(r, s, size, _JOIN_SCORES[policy], leaves=leaves, seed=seed).total(warm_up(size))


def choose_tables(policy: str, work: Workload, size: int) -> JoinTables:
    """The tables of HEEB with the paper's alpha, or those that REHEARSE chooses."""
    alpha = work.alpha(size)
    if policy == "heeb":
        return heeb_join_tables(work.r, work.s, alpha)
    return rehearse(work.r, work.s, size, alpha).chosen


def run_tables(tables: JoinTables, size: int, r: Ints, s: Ints) -> JoinTrace:
    """Join the streams with scores from tables."""
    return run_join(r, s, size, JoinScore.TABLE, tables.align(r, s))


def align_adaptive_tables(work: Workload, r: Ints, s: Ints) -> tuple[AlignedTables, AlignedTables]:
    """HEEB's tables for every lifetime that an adaptive alpha may follow."""
    of_r, of_s = (
        align_tables(tuple(heeb_table(model, alpha_for(life)) for life in LIFETIMES), stream)
        for model, stream in ((work.s, s), (work.r, r))
    )
    return of_r, of_s


def _run_adaptive(work: Workload, size: int, r: Ints, s: Ints) -> JoinTrace:
    tables = align_adaptive_tables(work, r, s)
    return run_join(r, s, size, JoinScore.TABLE, tables, lifetimes=np.array(LIFETIMES))


def run_in_store(policy: Policy, size: int, r: Ints, s: Ints) -> int:
    """The results after the warm-up under a policy without a compiled loop."""
    store = JoinStore(size, policy)
    warm = warm_up(size)
    return sum(
        found
        for step in range(len(r))
        if (found := store.step(step, integers(r[step]), integers(s[step]))) and step >= warm
    )


def run_in_cache_store(policy: str, setting: CacheSetting) -> Bools:
    """Which references are hits under a policy without a compiled loop."""
    store = CacheStore(setting.size, CACHE_DEFINITIONS[policy](setting))
    return np.array([store.refer(step, key) for step, key in enumerate(setting.keys.tolist())], np.bool_)


def cache_player(policy: str, size: int, model: Model | None, seed: int = 0) -> CachePlayer:
    """A player of the policy on a trace with ``size`` cached rows."""
    if policy in _CACHE_SCORES:
        kind = _CACHE_SCORES[policy]
        return lambda keys: run_cache(keys, size, kind, seed=seed)
    match policy:
        case "arc":
            return lambda keys: run_arc(keys, size)
        case "reuse":
            return lambda keys: reuse_cache(keys, size)
        case "rehearse":
            return lambda keys: rehearse_cache(keys, size, model).hits
    if model is None and policy_info(policy).needs_model:
        raise missing_model(policy)
    if model is not None and policy == "heeb-online":
        return lambda keys: heeb_online(keys, size, model).hits
    if model is not None and policy in ("heeb", "ao"):
        table = cache_table(policy, size, model)
        return lambda keys: run_cache(keys, size, CacheScore.TABLE, align_tables((table,), keys))
    return lambda keys: run_in_cache_store(policy, CacheSetting(keys, size, model, seed))


def missing_model(policy: str) -> MillpondError:
    """The error for a policy that needs a model of keys that have none."""
    return MillpondError(
        f"{policy} needs a model of the keys, and none fits them",
        remedy="leave it out, or take rehearse, which needs none",
    )


def cache_table(policy: str, size: int, model: Model) -> ScoreTable:
    """The table of HEEB with the paper's alpha, or of A_o."""
    return next_step_table(model) if policy == "ao" else heeb_table(model, float(size), caching=True)
