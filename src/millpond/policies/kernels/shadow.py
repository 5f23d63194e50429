"""REHEARSE for caching: try several policies on the references as they come, and act as the best so far.

Each policy tried runs a shadow cache, which holds keys only.  The cache itself discards by the scores of the
policy whose shadow has had the most hits lately, if they are clearly more than those of the first one.
Nothing needs to be configured, and a change of the stream changes the leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from millpond.models.arrays import Bools, Floats, Ints
from millpond.models.models import Model
from millpond.models.scores import ScoreTable, heeb_table
from millpond.models.stretches import Stretch
from millpond.policies.kernels import reuse
from millpond.policies.kernels.cache_loop import LFU, LRU, TABLE, numbered
from millpond.policies.kernels.compiled import compiled
from millpond.policies.kernels.join_loop import Placed, _look_up, no_table
from millpond.policies.kernels.ordered import grown

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
    alphas = heeb_alphas(size)
    run = ShadowRun(keys, size, [*_heeb_names(alphas), *others])
    for part in parts:
        kind, placed = LRU, no_table()
        if part.model is not None:
            kind, placed = TABLE, Placed.of(heeb_tables(size, part.model), keys[part.start : part.stop])
        run.play(part.stop, [*[kind] * len(alphas), *others.values()], placed)
    return run.trace


def heeb_alphas(size: int) -> tuple[float, ...]:
    """The alphas tried, the paper's first."""
    return (float(size), *(alpha for alpha in ALPHAS if alpha != size))


def heeb_tables(size: int, model: Model) -> tuple[ScoreTable, ...]:
    return tuple(heeb_table(model, alpha, caching=True) for alpha in heeb_alphas(size))


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
        self._names = tuple(names)
        self._keys = np.ascontiguousarray(keys, np.int64)
        self._codes = numbered(keys)
        self._weights = np.ones(int(self._codes.max(initial=-1)) + 1, np.int64)
        self._caches = ShadowCaches(size, [LRU] * len(names))
        self._next = 0
        self._hits: Bools = np.zeros(len(keys), np.bool_)
        self._leaders = np.zeros(len(keys), np.int64)

    def play(self, stop: int, kinds: Sequence[int], placed: Placed) -> None:
        """Go on up to reference ``stop``, each shadow by scores of its kind."""
        now = slice(self._next, stop)
        self._caches.kinds[:] = kinds
        self._hits[now], self._leaders[now] = self._caches.refer(
            self._codes[now], self._keys[now], self._weights, placed
        )
        self._next = stop

    @property
    def trace(self) -> ShadowTrace:
        return ShadowTrace(self._hits, self._leaders, self._caches.shadows, self._names)


# In the state's numbers: references so far, the leader, keys known.
_NOW, _LEADER, _KNOWN = range(3)


class ShadowCaches:
    """A cache of ``size`` rows and the shadows beside it, one a policy; with one policy it has no shadow.

    The state goes on from batch to batch, keys may be of several rows, and new keys may come at any time.  A
    policy that is not ``active`` is left out; the first one that is leads unless another is clearly better.
    """

    def __init__(self, size: int, kinds: Sequence[int]) -> None:
        self.size = size
        self.kinds = np.array(kinds, np.int64)
        self.active = np.ones(len(kinds), np.bool_)
        caches = len(kinds) + 1 if len(kinds) > 1 else 1  # the last one is the real one
        self.shadows = np.zeros(len(kinds), np.int64)
        self._numbers = np.zeros(3, np.int64)
        # Against the first shadow, over recent references: hits that it missed less the opposite, and both.
        self._margins = np.zeros((2, len(kinds)))
        self._slot = np.empty((caches, 0), np.int64)
        self._held = np.empty((caches, size + 1), np.int64)
        self._filled = np.zeros(caches, np.int64)
        self._rows = np.zeros(caches, np.int64)
        # By key: last reference, references, value, age counted up to, class, rows; and keys as they came.
        self._used, self._seen, self._value, self._since, self._group, self._weight, self._known = (
            np.empty(0, np.int64) for _ in range(7)
        )
        # Of the reuse model: references, ages lived through, rates.
        self._reuse = np.stack(
            [
                np.zeros((reuse.CLASSES, reuse.BINS)),
                np.zeros((reuse.CLASSES, reuse.BINS)),
                reuse.starting_rates(),
            ]
        )

    @property
    def rows(self) -> int:
        """Rows held by the cache itself."""
        return int(self._rows[-1])

    @property
    def held(self) -> Ints:
        """The keys held, in no particular order."""
        return self._held[-1, : self._filled[-1]].copy()

    @property
    def remembered(self) -> Ints:
        """The keys held by any of the caches."""
        return np.unique(np.concatenate([h[:n] for h, n in zip(self._held, self._filled, strict=True)]))

    @property
    def last_used(self) -> Ints:
        """The step of each key's last reference."""
        return self._used

    @property
    def now(self) -> int:
        """References so far."""
        return int(self._numbers[_NOW])

    def refer(self, codes: Ints, values: Ints, weights: Ints, placed: Placed) -> tuple[Bools, Ints]:
        """Which of these references are hits, and who led.

        ``weights`` are the rows of every key known by now; ``placed`` are the tables at these references.
        """
        self._grow(weights)
        hits = np.zeros(len(codes), np.bool_)
        leaders = np.zeros(len(codes), np.int64)
        _refer(
            codes, values, hits, leaders, self.size, self.kinds, self.active, self._numbers, self.shadows,
            self._margins, self._slot, self._held, self._filled, self._rows, self._used, self._seen,
            self._value, self._since, self._group, self._weight, self._known, self._reuse,
            placed.scores, placed.factors, placed.shape, placed.row, placed.origin, MEMORY, CLEARLY,
        )  # fmt: skip
        return hits, leaders

    def activate(self, policies: Sequence[int]) -> None:
        """Let policies take part from now on, their shadows holding what the cache itself holds."""
        for policy in policies:
            self.active[policy] = True
            self._slot[policy], self._held[policy] = self._slot[-1], self._held[-1]
            self._filled[policy], self._rows[policy] = self._filled[-1], self._rows[-1]
        self._margins[:] = 0.0

    def forget(self, kept: Ints) -> None:
        """Number the keys anew: those kept, among them all that are held anywhere, become 0, 1, …"""
        numbers = np.full(len(self._used), -1, np.int64)
        numbers[kept] = np.arange(len(kept))
        for held, filled in zip(self._held, self._filled, strict=True):
            held[:filled] = numbers[held[:filled]]
        self._slot = np.ascontiguousarray(self._slot[:, kept])
        self._used, self._seen, self._value, self._since, self._group, self._weight = (
            column[kept]
            for column in (self._used, self._seen, self._value, self._since, self._group, self._weight)
        )
        known = numbers[self._known[: self._numbers[_KNOWN]]]
        known = known[known >= 0]
        self._numbers[_KNOWN] = len(known)
        self._known = grown(known, len(kept), 0)

    def _grow(self, weights: Ints) -> None:
        count = len(weights)
        self._slot = grown(self._slot, count, -1)
        self._used = grown(self._used, count, -1)
        self._seen, self._value, self._since, self._group, self._weight, self._known = (
            grown(column, count, 0)
            for column in (self._seen, self._value, self._since, self._group, self._weight, self._known)
        )
        for cache, (held, filled) in enumerate(zip(self._held, self._filled, strict=True)):
            kept = held[:filled]
            self._rows[cache] = weights[kept].sum()
        self._weight = weights.copy()


@compiled
def _refer(
    codes: Ints, values: Ints, hits: Bools, leaders: Ints, size: int, kinds: Ints, active: Bools,
    numbers: Ints, shadows: Ints, margins: Floats, slot: Ints, held: Ints, filled: Ints, rows: Ints,
    used: Ints, seen: Ints, value: Ints, since: Ints, group: Ints, weight: Ints, known: Ints, model: Floats,
    scores: Floats, factors: Floats, shape: Ints, row: Ints, origin: Ints, memory: float, clearly: float,
) -> None:  # fmt: skip
    policies = len(kinds)
    caches = len(filled)
    ahead, apart = margins[0], margins[1]
    events, exposure, rates = model[0], model[1], model[2]
    hit_by = np.zeros(caches, np.bool_)
    first = 0
    while not active[first]:
        first += 1
    leader = max(numbers[_LEADER], first)
    for i in range(len(codes)):
        t = numbers[_NOW]
        numbers[_NOW] = t + 1
        key = codes[i]
        if used[key] >= 0:
            age = t - used[key]
            reuse.expose(exposure[group[key]], since[key] - used[key], age)
            events[group[key], reuse.age_bin(age)] += 1
            group[key] = reuse.reuse_class(age)
        else:
            known[numbers[_KNOWN]] = key
            numbers[_KNOWN] += 1
            value[key] = values[i]
        used[key] = t
        since[key] = t
        seen[key] += 1
        if (t + 1) % reuse.PERIOD == 0:
            reuse.catch_up(t, known, numbers[_KNOWN], used, since, group, exposure)
            reuse.best_rates(events, exposure, rates)
            events *= reuse.FADING
            exposure *= reuse.FADING
        for cache in range(caches):
            real = cache == caches - 1
            policy = leader if real else cache
            if not active[policy]:
                continue
            hit = slot[cache, key] >= 0
            if real:
                hits[i] = hit
                leaders[i] = leader
            hit_by[cache] = hit
            kind = kinds[policy]
            looks_ahead = kind in (TABLE, REUSE)
            if not hit:
                if weight[key] > size:
                    continue
                slot[cache, key] = filled[cache]
                held[cache, filled[cache]] = key
                filled[cache] += 1
                rows[cache] += weight[key]
            while rows[cache] > size:
                worst = -1
                lowest = np.inf
                for at in range(filled[cache]):
                    candidate = held[cache, at]
                    if candidate == key and not looks_ahead and filled[cache] > 1:
                        continue
                    if kind == TABLE:
                        score = _look_up(
                            scores[policy, row[i]], factors[policy], shape, origin[i], value[candidate]
                        )
                    elif kind == LFU:
                        score = float(seen[candidate])
                    elif kind == REUSE:
                        score = rates[group[candidate], reuse.age_bin(t - used[candidate] + 1)]
                    else:
                        score = float(used[candidate])
                    if score < lowest or (score == lowest and used[candidate] < used[held[cache, worst]]):
                        lowest = score
                        worst = at
                gone = held[cache, worst]
                last = filled[cache] - 1
                slot[cache, gone] = -1
                filled[cache] = last
                rows[cache] -= weight[gone]
                if worst < last:
                    held[cache, worst] = held[cache, last]
                    slot[cache, held[cache, worst]] = worst
        for policy in range(policies):
            shadows[policy] += hit_by[policy]
            ahead[policy] *= 1 - 1 / memory
            apart[policy] *= 1 - 1 / memory
            if hit_by[policy] != hit_by[first]:
                ahead[policy] += 1.0 if hit_by[policy] else -1.0
                apart[policy] += 1.0
        if ahead[leader] <= 0.0:
            leader = first
        for policy in range(policies):
            if ahead[policy] > ahead[leader] and ahead[policy] > clearly * np.sqrt(apart[policy]):
                leader = policy
    numbers[_LEADER] = leader
