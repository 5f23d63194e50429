"""REHEARSE for caching: try several policies on the references as they come, and act as the best so far.

Each policy tried runs a shadow cache, which holds keys only.  The cache itself discards by the scores of the
policy whose shadow has had the most hits lately, if they are clearly more than those of the first one.
Nothing needs to be configured, and a change of the stream changes the leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from millpond.budget import reuse
from millpond.budget.cache_loop import LFU, LRU, TABLE, numbered
from millpond.budget.join_loop import Placed, _look_up, no_table
from millpond.compiled import compiled
from millpond.stochastic.arrays import Bools, Floats, Ints
from millpond.stochastic.models import Model
from millpond.stochastic.scores import heeb_table
from millpond.stochastic.stretches import Stretch

# A policy that scores by the reuse model; the others are those of the plain loop.
REUSE = 100
_OTHERS = {"reuse": REUSE, "lru": LRU, "lfu": LFU}
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
    if model is None:
        return _trace(keys, size, _OTHERS.values(), _OTHERS, no_table())
    return rehearse_stretches(keys, size, [Stretch(0, len(keys), model=model)])


def rehearse_stretches(keys: Ints, size: int, parts: Sequence[Stretch]) -> ShadowTrace:
    """The same with the model of each stretch."""
    return _in_stretches(keys, size, parts, _OTHERS)


def heeb_online(keys: Ints, size: int, model: Model) -> ShadowTrace:
    """HEEB with the alpha that does best in shadow caches, starting from the paper's: the size."""
    return heeb_stretches(keys, size, [Stretch(0, len(keys), model=model)])


def heeb_stretches(keys: Ints, size: int, parts: Sequence[Stretch]) -> ShadowTrace:
    """The same with the model of each stretch."""
    return _in_stretches(keys, size, parts, {})


def _in_stretches(keys: Ints, size: int, parts: Sequence[Stretch], others: Mapping[str, int]) -> ShadowTrace:
    """HEEB with several alphas, beside others; it is LRU while there is no model."""
    alphas = (float(size), *(alpha for alpha in ALPHAS if alpha != size))
    run = ShadowRun(keys, size, [*_heeb_names(alphas), *others])
    for part in parts:
        kind, placed = LRU, no_table()
        if part.model is not None:
            tables = tuple(heeb_table(part.model, alpha, caching=True) for alpha in alphas)
            kind, placed = TABLE, Placed.of(tables, keys[part.start : part.stop])
        run.play(part.stop, [*[kind] * len(alphas), *others.values()], placed)
    return run.trace


def _heeb_names(alphas: Sequence[float]) -> list[str]:
    return [f"heeb alpha={alpha:g}" for alpha in alphas]


def reuse_cache(keys: Ints, size: int) -> Bools:
    """Which references are hits when rows are kept by the reuse model alone."""
    return _trace(keys, size, [REUSE], ["reuse"], no_table()).hits


def _trace(keys: Ints, size: int, kinds: Iterable[int], names: Iterable[str], placed: Placed) -> ShadowTrace:
    run = ShadowRun(keys, size, tuple(names))
    run.play(len(keys), tuple(kinds), placed)
    return run.trace


class ShadowRun:
    """A group of shadow caches in the midst of the references: each can go on by other scores than before."""

    def __init__(self, keys: Ints, size: int, names: Sequence[str]) -> None:
        codes = numbered(keys)
        count = int(codes.max(initial=-1)) + 1
        policies = len(names)
        caches = policies + 1 if policies > 1 else 1  # the last one is the real one
        self._names = tuple(names)
        self._keys = (np.ascontiguousarray(keys, np.int64), codes)
        self._size = size
        self._next = 0
        self._hits: Bools = np.zeros(len(keys), np.bool_)
        self._leaders = np.zeros(len(keys), np.int64)
        self._shadows = np.zeros(policies, np.int64)
        # Against the first shadow, over recent references: hits of one that the other missed, and both kinds.
        self._lead = np.zeros((2, policies))
        self._caches = (
            np.full((caches, count), -1, np.int64),  # the slot of each key
            np.empty((caches, size + 1), np.int64),  # the key of each slot
            np.zeros(caches, np.int64),
        )
        # Of each key: last reference, references, value, until when it was exposed to reuse, class of reuse.
        self._known = np.zeros((5, count), np.int64)
        self._known[0] = -1
        self._listed = np.empty(count, np.int64)
        self._reuse = np.zeros((2, reuse.CLASSES, reuse.BINS))
        self._rates = reuse.starting_rates()
        self._counts = np.zeros(2, np.int64)  # keys known, and the leader

    def play(self, stop: int, kinds: Sequence[int], placed: Placed) -> None:
        """Go on up to reference ``stop``, each shadow by scores of its kind."""
        _loop(
            self._next, stop, *self._keys, self._size, np.array(kinds, np.int64),
            placed.scores, placed.factors, placed.shape, placed.row, placed.origin, MEMORY, CLEARLY,
            self._hits, self._leaders, self._shadows, *self._caches, self._lead, self._known, self._listed,
            self._reuse, self._rates, self._counts,
        )  # fmt: skip
        self._next = stop

    @property
    def trace(self) -> ShadowTrace:
        """What happened so far."""
        return ShadowTrace(self._hits, self._leaders, self._shadows, self._names)


@compiled
def _loop(
    start: int, stop: int, keys: Ints, codes: Ints, size: int, kinds: Ints,
    scores: Floats, factors: Floats, shape: Ints, row: Ints, origin: Ints, memory: float, clearly: float,
    hits: Bools, leaders: Ints, shadows: Ints, slot: Ints, held: Ints, filled: Ints,
    lead: Floats, keyed: Ints, known: Ints, reused: Floats, rates: Floats, counts: Ints,
) -> None:  # fmt: skip
    policies = len(kinds)
    caches = len(filled)
    hit_by = np.zeros(caches, np.bool_)
    ahead, apart = lead[0], lead[1]
    used, seen, value, since, group = keyed[0], keyed[1], keyed[2], keyed[3], keyed[4]
    events, exposure = reused[0], reused[1]
    known_count, leader = counts[0], counts[1]
    for t in range(start, stop):
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
                        scores[policy, row[t - start]],
                        factors[policy],
                        shape,
                        origin[t - start],
                        value[candidate],
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
    counts[0], counts[1] = known_count, leader
