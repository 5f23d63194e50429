"""REHEARSE for caching: try several policies on the references as they come, and act as the best so far.

Each policy tried runs a shadow cache, which holds keys only.  The cache itself discards by the scores of the
policy whose shadow has had the most hits lately, if they are clearly more than those of the first one.
Nothing needs to be configured, and a change of the stream changes the leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millpond.budget import reuse
from millpond.budget.cache_loop import LFU, LRU, TABLE, numbered
from millpond.budget.join_loop import Placed, _look_up, no_table
from millpond.compiled import compiled
from millpond.stochastic.arrays import Bools, Floats, Ints
from millpond.stochastic.models import Model
from millpond.stochastic.scores import heeb_table

# A policy that scores by the reuse model; the others are those of the plain loop.
REUSE = 100
# The alphas with which HEEB is tried, beside the published one.
ALPHAS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
# References over which hits count in the choice of the leader.
MEMORY = 5000.0
# By how many standard deviations a shadow must be ahead of the first one to lead: many are compared, and at
# every reference.
CLEARLY = 3.0


@dataclass(frozen=True, eq=False)
class ShadowTrace:
    """Which references were hits, which policy led at each, and the hits of every shadow."""

    hits: Bools
    leaders: Ints
    shadows: Ints
    names: tuple[str, ...]


def rehearse_cache(keys: Ints, size: int, model: Model | None = None) -> ShadowTrace:
    """Cache the references under the leader of a group of policies.

    They are: the reuse model, LRU and perfect LFU; with a model of the keys also HEEB with the paper's alpha,
    the size, which then is the first, and with a range of others.
    """
    kinds, names = [REUSE, LRU, LFU], ["reuse", "lru", "lfu"]
    if model is None:
        return _trace(keys, size, kinds, names, no_table())
    alphas, placed = _heeb_tables(keys, size, model)
    return _trace(keys, size, [TABLE] * len(alphas) + kinds, _heeb_names(alphas) + names, placed)


def heeb_online(keys: Ints, size: int, model: Model) -> ShadowTrace:
    """HEEB with the alpha that does best in shadow caches, starting from the paper's: the size."""
    alphas, placed = _heeb_tables(keys, size, model)
    return _trace(keys, size, [TABLE] * len(alphas), _heeb_names(alphas), placed)


def _heeb_tables(keys: Ints, size: int, model: Model) -> tuple[tuple[float, ...], Placed]:
    alphas = (float(size), *(alpha for alpha in ALPHAS if alpha != size))
    return alphas, Placed.of(tuple(heeb_table(model, a, caching=True) for a in alphas), keys)


def _heeb_names(alphas: Sequence[float]) -> list[str]:
    return [f"heeb alpha={alpha:g}" for alpha in alphas]


def reuse_cache(keys: Ints, size: int) -> Bools:
    """Which references are hits when rows are kept by the reuse model alone."""
    return _trace(keys, size, [REUSE], ["reuse"], no_table()).hits


def _trace(keys: Ints, size: int, kinds: Sequence[int], names: Sequence[str], placed: Placed) -> ShadowTrace:
    codes = numbered(keys)
    hits, leaders, shadows = _loop(
        np.ascontiguousarray(keys, np.int64), codes, int(codes.max(initial=-1)) + 1, size,
        np.array(kinds, np.int64), placed.scores, placed.factors, placed.shape, placed.row, placed.origin,
        MEMORY, CLEARLY,
    )  # fmt: skip
    return ShadowTrace(hits, leaders, shadows, tuple(names))


@compiled
def _loop(
    keys: Ints, codes: Ints, count: int, size: int, kinds: Ints,
    scores: Floats, factors: Floats, shape: Ints, row: Ints, origin: Ints, memory: float, clearly: float,
) -> tuple[Bools, Ints, Ints]:  # fmt: skip
    policies = len(kinds)
    caches = policies + 1 if policies > 1 else 1  # the last one is the real one
    hits = np.zeros(len(keys), np.bool_)
    leaders = np.zeros(len(keys), np.int64)
    shadows = np.zeros(policies, np.int64)
    # Against the first shadow, over recent references: hits of one that the other missed, and both kinds.
    ahead = np.zeros(policies)
    apart = np.zeros(policies)
    hit_by = np.zeros(caches, np.bool_)
    slot = np.full((caches, count), -1, np.int64)
    held = np.empty((caches, size + 1), np.int64)
    filled = np.zeros(caches, np.int64)
    used = np.full(count, -1, np.int64)
    seen = np.zeros(count, np.int64)
    value = np.zeros(count, np.int64)
    since = np.zeros(count, np.int64)
    group = np.zeros(count, np.int64)
    known = np.empty(count, np.int64)
    known_count = 0
    events = np.zeros((reuse.CLASSES, reuse.BINS))
    exposure = np.zeros((reuse.CLASSES, reuse.BINS))
    rates = reuse.starting_rates()
    leader = 0
    for t in range(len(keys)):
        key = codes[t]
        if used[key] >= 0:
            age = t - used[key]
            reuse.expose(exposure[group[key]], since[key] - used[key], age)
            events[group[key], reuse.age_bin(age)] += 1
            group[key] = reuse.reuse_class(age)
        else:
            known[known_count] = key
            known_count += 1
            value[key] = keys[t]
        used[key] = t
        since[key] = t
        seen[key] += 1
        if (t + 1) % reuse.PERIOD == 0:
            reuse.catch_up(t, known, known_count, used, since, group, exposure)
            reuse.best_rates(events, exposure, rates)
            events *= reuse.FADING
            exposure *= reuse.FADING
        for cache in range(caches):
            real = cache == caches - 1
            policy = leader if real else cache
            hit = slot[cache, key] >= 0
            if real:
                hits[t] = hit
                leaders[t] = leader
            hit_by[cache] = hit
            if hit:
                continue
            last = filled[cache]
            slot[cache, key] = last
            held[cache, last] = key
            filled[cache] = last + 1
            if last < size:
                continue
            kind = kinds[policy]
            worst = -1
            lowest = np.inf
            for i in range(last + 1 if kind in (TABLE, REUSE) else last):
                candidate = held[cache, i]
                if kind == TABLE:
                    score = _look_up(
                        scores[policy, row[t]], factors[policy], shape, origin[t], value[candidate]
                    )
                elif kind == LFU:
                    score = float(seen[candidate])
                elif kind == REUSE:
                    score = rates[group[candidate], reuse.age_bin(t - used[candidate] + 1)]
                else:
                    score = float(used[candidate])
                if score < lowest or (score == lowest and used[candidate] < used[held[cache, worst]]):
                    lowest = score
                    worst = i
            slot[cache, held[cache, worst]] = -1
            filled[cache] = last
            if worst < last:
                held[cache, worst] = held[cache, last]
                slot[cache, held[cache, worst]] = worst
        for policy in range(policies):
            shadows[policy] += hit_by[policy]
            ahead[policy] *= 1 - 1 / memory
            apart[policy] *= 1 - 1 / memory
            if hit_by[policy] != hit_by[0]:
                ahead[policy] += 1.0 if hit_by[policy] else -1.0
                apart[policy] += 1.0
        if ahead[leader] <= 0.0:
            leader = 0
        for policy in range(policies):
            if ahead[policy] > ahead[leader] and ahead[policy] > clearly * np.sqrt(apart[policy]):
                leader = policy
    return hits, leaders, shadows
