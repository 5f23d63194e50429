"""The compiled caches of REHEARSE: a real cache and one shadow cache for each policy that is tried.

A shadow holds keys only.  The real cache evicts by the score of the leader: the policy whose shadow had the
most hits recently, if they are clearly more than those of the first policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from millpond.models.array_types import Bools, Floats, Ints
from millpond.policies.kernels import reuse_model
from millpond.policies.kernels.compiled import compiled, inlined
from millpond.policies.kernels.growth import extend
from millpond.policies.kernels.kinds import CacheScore
from millpond.policies.kernels.reuse_model import ReuseState
from millpond.policies.kernels.score_lookup import AlignedTables, look_up_score

# The number of references over which hits count in the choice of the leader.
MEMORY = 5000.0
# By how many standard deviations a shadow must be ahead of the first one to lead.  Three, because many
# shadows are compared, and at every reference.
CLEARLY = 3.0
# Indices into `numbers`: references so far, the leader, keys known.
_NOW, _LEADER, _KNOWN = range(3)


class _Policies(NamedTuple):
    """By policy: its score, whether it takes part, and the hits of its shadow."""

    kinds: Ints
    active: Bools
    hits: Ints
    # Over recent references: hits that the first shadow missed less misses that it hit, and their sum.
    ahead: Floats
    apart: Floats


class _Caches(NamedTuple):
    """By cache; the last one is the real cache."""

    slot: Ints  # by cache and key: its index in `held`, or -1
    held: Ints  # the keys; the first `filled` entries are in use
    filled: Ints
    rows: Ints


class _Keys(NamedTuple):
    """By key."""

    seen: Ints  # references
    value: Ints
    weight: Ints  # rows
    known: Ints  # the keys in the order in which they came


class _Batch(NamedTuple):
    """The references of one call, their hits, and the policy that led at each."""

    codes: Ints
    values: Ints
    hits: Bools
    leaders: Ints


class ShadowCaches:
    """A real cache of ``size`` rows and its shadows.  With a single policy there is no shadow.

    The state carries on from batch to batch, a key may have several rows, and new keys may come at any time.
    Policies that are not ``active`` do not take part; the first active one leads unless another is clearly
    better.
    """

    def __init__(self, size: int, kinds: Sequence[CacheScore]) -> None:
        count = len(kinds)
        caches = count + 1 if count > 1 else 1
        self.size = size
        self._numbers = np.zeros(3, np.int64)
        self._policies = _Policies(
            np.array(kinds, np.int64),
            np.ones(count, np.bool_),
            np.zeros(count, np.int64),
            np.zeros(count),
            np.zeros(count),
        )
        self._caches = _Caches(
            np.empty((caches, 0), np.int64),
            np.empty((caches, size + 1), np.int64),
            np.zeros(caches, np.int64),
            np.zeros(caches, np.int64),
        )
        self._keys = _Keys(*(np.empty(0, np.int64) for _ in range(4)))
        self._reuse = reuse_model.empty_state()

    @property
    def kinds(self) -> Ints:
        """The score of each policy; may be changed between batches."""
        return self._policies.kinds

    @property
    def active(self) -> Bools:
        """Which policies take part."""
        return self._policies.active

    @property
    def shadow_hits(self) -> Ints:
        """The hits of each policy's shadow so far."""
        return self._policies.hits

    @property
    def rows(self) -> int:
        """The number of rows in the real cache."""
        return int(self._caches.rows[-1])

    @property
    def held(self) -> Ints:
        """The keys in the real cache, in no particular order."""
        return self._caches.held[-1, : self._caches.filled[-1]].copy()

    @property
    def remembered(self) -> Ints:
        """The keys in any of the caches."""
        caches = zip(self._caches.held, self._caches.filled, strict=True)
        return np.unique(np.concatenate([held[:filled] for held, filled in caches]))

    @property
    def last_used(self) -> Ints:
        """By key, the step of its last reference."""
        return self._reuse.used

    @property
    def now(self) -> int:
        """The number of references so far."""
        return int(self._numbers[_NOW])

    def refer(self, codes: Ints, values: Ints, weights: Ints, tables: AlignedTables) -> tuple[Bools, Ints]:
        """Which of these references are hits, and which policy led at each.

        ``weights`` are the row counts of all keys known by now; ``tables`` are aligned with these
        references.
        """
        self._reserve(weights)
        batch = _Batch(codes, values, np.zeros(len(codes), np.bool_), np.zeros(len(codes), np.int64))
        _refer(batch, self.size, self._numbers, self._policies, self._caches, self._keys, self._reuse, tables)
        return batch.hits, batch.leaders

    def activate(self, policies: Sequence[int]) -> None:
        """Let policies take part from now on; their shadows start with the keys of the real cache."""
        for policy in policies:
            self.active[policy] = True
            for column in self._caches:
                column[policy] = column[-1]
        self._policies.ahead[:] = 0.0
        self._policies.apart[:] = 0.0

    def forget(self, kept: Ints) -> None:
        """Renumber the keys: those in ``kept``, which includes all that are remembered, become 0, 1, …"""
        codes = np.full(len(self.last_used), -1, np.int64)
        codes[kept] = np.arange(len(kept))
        slot, held, filled, rows = self._caches
        for keys, count in zip(held, filled, strict=True):
            keys[:count] = codes[keys[:count]]
        self._caches = _Caches(np.ascontiguousarray(slot[:, kept]), held, filled, rows)
        self._reuse = self._reuse._replace(
            used=self._reuse.used[kept], since=self._reuse.since[kept], group=self._reuse.group[kept]
        )
        seen, value, weight, known = self._keys
        known = codes[known[: self._numbers[_KNOWN]]]
        known = known[known >= 0]
        self._numbers[_KNOWN] = len(known)
        self._keys = _Keys(seen[kept], value[kept], weight[kept], extend(known, len(kept), 0))

    def _reserve(self, weights: Ints) -> None:
        count = len(weights)
        slot, held, filled, rows = self._caches
        self._caches = _Caches(extend(slot, count, -1), held, filled, rows)
        self._reuse = reuse_model.reserve_keys(self._reuse, count)
        seen, value, _, known = self._keys
        self._keys = _Keys(
            extend(seen, count, 0), extend(value, count, 0), weights.copy(), extend(known, count, 0)
        )
        for cache, (keys, length) in enumerate(zip(held, filled, strict=True)):
            rows[cache] = weights[keys[:length]].sum()


@compiled
def _refer(
    batch: _Batch, size: int, numbers: Ints, policies: _Policies, caches: _Caches, keys: _Keys,
    reuse: ReuseState, tables: AlignedTables,
) -> None:  # fmt: skip
    count = len(caches.filled)
    hit_by = np.zeros(count, np.bool_)
    first = 0
    while not policies.active[first]:
        first += 1
    leader = max(numbers[_LEADER], first)
    for i in range(len(batch.codes)):
        now, key = numbers[_NOW], batch.codes[i]
        numbers[_NOW] = now + 1
        if reuse_model.record_reference(now, key, reuse):
            keys.known[numbers[_KNOWN]] = key
            numbers[_KNOWN] += 1
            keys.value[key] = batch.values[i]
        keys.seen[key] += 1
        if (now + 1) % reuse_model.PERIOD == 0:
            reuse_model.refresh(now, keys.known[: numbers[_KNOWN]], reuse)
        for cache in range(count):
            policy = leader if cache == count - 1 else cache
            if not policies.active[policy]:
                continue
            hit = caches.slot[cache, key] >= 0
            hit_by[cache] = hit
            if not hit:
                if keys.weight[key] > size:
                    continue
                _add(cache, key, caches, keys)
            kind = policies.kinds[policy]
            while caches.rows[cache] > size:
                _evict(cache, policy, kind, i, key, caches, keys, reuse, tables)
        batch.hits[i] = hit_by[count - 1]
        batch.leaders[i] = leader
        leader = _choose_leader(leader, first, hit_by, policies)
    numbers[_LEADER] = leader


@inlined
def _add(cache: int, key: int, caches: _Caches, keys: _Keys) -> None:
    at = caches.filled[cache]
    caches.slot[cache, key] = at
    caches.held[cache, at] = key
    caches.filled[cache] = at + 1
    caches.rows[cache] += keys.weight[key]


@inlined
def _find_lowest(
    held: Ints,
    policy: int,
    kind: int,
    i: int,
    key: int,
    keys: _Keys,
    reuse: ReuseState,
    tables: AlignedTables,
) -> int:
    """The index of the key to evict at the ``i``-th reference of the batch, which is to ``key``."""
    used, group, rates = reuse.used, reuse.group, reuse.rates
    now = used[key]
    bypasses = kind in (CacheScore.TABLE, CacheScore.REUSE)
    worst = -1
    lowest = np.inf
    for at in range(len(held)):
        candidate = held[at]
        if candidate == key and not bypasses and len(held) > 1:
            continue
        if kind == CacheScore.TABLE:
            row, factors = tables.scores[policy, tables.row[i]], tables.factors[policy]
            score = look_up_score(row, factors, tables.shape, tables.origin[i], keys.value[candidate])
        elif kind == CacheScore.LFU:
            score = float(keys.seen[candidate])
        elif kind == CacheScore.REUSE:
            score = rates[group[candidate], reuse_model.age_bin(now - used[candidate] + 1)]
        else:
            score = float(used[candidate])
        if score < lowest or (score == lowest and used[candidate] < used[held[worst]]):
            lowest = score
            worst = at
    return worst


@inlined
def _evict(
    cache: int, policy: int, kind: int, i: int, key: int, caches: _Caches, keys: _Keys, reuse: ReuseState,
    tables: AlignedTables,
) -> None:  # fmt: skip
    """Evict the key with the lowest score, and move the last one to its index."""
    slot, held = caches.slot[cache], caches.held[cache]
    at = _find_lowest(held[: caches.filled[cache]], policy, kind, i, key, keys, reuse, tables)
    gone = held[at]
    last = caches.filled[cache] - 1
    slot[gone] = -1
    caches.filled[cache] = last
    caches.rows[cache] -= keys.weight[gone]
    if at < last:
        held[at] = held[last]
        slot[held[at]] = at


@inlined
def _choose_leader(leader: int, first: int, hit_by: Bools, policies: _Policies) -> int:
    """Count the hits of one reference, and return who leads from then on."""
    ahead, apart = policies.ahead, policies.apart
    for policy in range(len(ahead)):
        policies.hits[policy] += hit_by[policy]
        ahead[policy] *= 1 - 1 / MEMORY
        apart[policy] *= 1 - 1 / MEMORY
        if hit_by[policy] != hit_by[first]:
            ahead[policy] += 1.0 if hit_by[policy] else -1.0
            apart[policy] += 1.0
    if ahead[leader] <= 0.0:
        leader = first
    for policy in range(len(ahead)):
        if ahead[policy] > ahead[leader] and ahead[policy] > CLEARLY * np.sqrt(apart[policy]):
            leader = policy
    return leader
