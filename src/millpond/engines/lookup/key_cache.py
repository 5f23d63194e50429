"""What a cache of looked-up rows keeps: policies by name, at work batch after batch."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from millpond.models.arrays import Bools, Ints
from millpond.models.identify import identify
from millpond.models.models import Model
from millpond.models.scores import ScoreTable, heeb_table
from millpond.policies.kernels.cache_loop import LFU, LRU, TABLE
from millpond.policies.kernels.join_loop import Placed, no_table
from millpond.policies.kernels.ordered import FIFO, RANDOM, OrderedCache
from millpond.policies.kernels.race import RaceCache
from millpond.policies.kernels.shadow import REUSE, ShadowCaches, heeb_alphas, heeb_tables

_ORDERS = {"lru": LRU, "fifo": FIFO, "lfu": LFU, "prob": LFU, "rand": RANDOM}
# Up to this size `auto` rehearses all policies.  Beyond, where some would look at every cached row at every
# miss, it chooses between those that need not.
MOST_REHEARSED = 1000
# After how many references a model of the keys is first looked for, from how many of the last ones, and how
# many pass at most until it is looked for again.
FIRST_LOOK = 2000
REMEMBERED = 2000
LAST_LOOK = 128_000
# Keys further from zero are no values of a process that a model could tell of.
_WIDEST = 1 << 40


class KeyCache(Protocol):
    """A cache of numbered keys at work."""

    @property
    def held(self) -> Ints:
        """The keys held, in no particular order."""

    @property
    def remembered(self) -> Ints:
        """The keys that :meth:`forget` must keep."""

    @property
    def rows(self) -> int:
        """The rows of the keys held."""

    @property
    def last_used(self) -> Ints:
        """The step of each key's last reference."""

    def refer(self, codes: Ints, values: Ints, weights: Ints) -> Bools:
        """Which references are hits.  ``values`` are the keys themselves, ``weights`` the rows by number."""

    def forget(self, kept: Ints) -> None:
        """Number the keys anew: those kept become 0, 1, …"""


def create_key_cache(policy: str, size: int, numeric: bool, seed: int = 0) -> KeyCache:
    """A policy at work on ``size`` rows.  Only ``numeric`` keys can have a model."""
    if policy in _ORDERS:
        return UnmodelledCache(OrderedCache(size, _ORDERS[policy], seed=seed))
    if policy == "auto" and size > MOST_REHEARSED:
        return UnmodelledCache(RaceCache(size))
    return ModelledCache(size, policy != "heeb", online=numeric)


class UnmodelledCache:
    """A cache that needs to know nothing of the keys."""

    def __init__(self, cache: OrderedCache | RaceCache) -> None:
        self._cache = cache

    @property
    def held(self) -> Ints:
        return self._cache.held

    @property
    def remembered(self) -> Ints:
        return self._cache.remembered

    @property
    def rows(self) -> int:
        return self._cache.rows

    @property
    def last_used(self) -> Ints:
        return self._cache.last_used

    def refer(self, codes: Ints, values: Ints, weights: Ints) -> Bools:
        return self._cache.refer(codes, weights)

    def forget(self, kept: Ints) -> None:
        self._cache.forget(kept)


class ModelledCache:
    """HEEB, alone or rehearsed with others, under a model that is given or found in the references.

    Until a model is found HEEB is LRU, and is left out of the rehearsal.  Independent references have no
    model worth the name: what HEEB knows of them, LFU counts.  Looks at the same references whatever the cut
    into batches.
    """

    def __init__(self, size: int, rehearsed: bool, model: Model | None = None, online: bool = False) -> None:
        self._size = size
        self._tables: tuple[ScoreTable, ...] = ()
        self._rehearsed = rehearsed
        self._online = online
        self._last = np.empty(0, np.int64)
        self._look = FIRST_LOOK
        if not rehearsed:
            self._caches = ShadowCaches(size, [LRU])
        else:
            tabled = len(heeb_alphas(size))
            self._caches = ShadowCaches(size, [TABLE] * tabled + [REUSE, LRU, LFU])
            self._caches.active[:tabled] = False
        if model is not None:
            self._take(model)

    @property
    def held(self) -> Ints:
        return self._caches.held

    @property
    def remembered(self) -> Ints:
        return self._caches.remembered

    @property
    def rows(self) -> int:
        return self._caches.rows

    @property
    def last_used(self) -> Ints:
        return self._caches.last_used

    @property
    def modelled(self) -> bool:
        """Whether there is a model by now."""
        return bool(self._tables)

    def refer(self, codes: Ints, values: Ints, weights: Ints) -> Bools:
        found = [np.empty(0, np.bool_)]
        while len(codes):
            now = self._caches.now
            count = min(len(codes), self._look - now) if self._online else len(codes)
            placed = Placed.of(self._tables, values[:count], now) if self._tables else no_table()
            found.append(self._caches.refer(codes[:count], values[:count], weights, placed)[0])
            if self._online:
                self._learn(values[:count])
            codes, values = codes[count:], values[count:]
        return np.concatenate(found)

    def forget(self, kept: Ints) -> None:
        self._caches.forget(kept)

    def _learn(self, values: Ints) -> None:
        """Look for a model now and then."""
        self._last = np.concatenate([self._last, values])[-REMEMBERED:]
        now = self._caches.now
        if now < self._look:
            return
        self._look = now + min(now, LAST_LOOK)
        found = identify(self._last, now - len(self._last)) if np.abs(self._last).max() < _WIDEST else None
        if found is not None and found.kind != "stationary":
            self._take(found.model)
        elif not self._rehearsed:  # which has shadows to tell that a model no longer holds
            self._tables = ()
            self._caches.kinds = np.array([LRU], np.int64)

    def _take(self, model: Model) -> None:
        first = not self._tables
        if self._rehearsed:
            self._tables = heeb_tables(self._size, model)
            if first:
                self._caches.activate(range(len(self._tables)))
        else:
            self._tables = (heeb_table(model, float(self._size), caching=True),)
            self._caches.kinds = np.array([TABLE], np.int64)
