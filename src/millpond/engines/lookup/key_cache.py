"""Caches of keys under an eviction policy: which keys of a lookup relation are cached, batch after batch."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from millpond.models.array_types import Bools, Ints
from millpond.models.identify import identify
from millpond.models.models import Model
from millpond.models.score_tables import ScoreTable, heeb_table
from millpond.policies.kernels.heap_cache import HeapCache
from millpond.policies.kernels.kinds import CacheScore
from millpond.policies.kernels.score_lookup import align_tables, no_tables
from millpond.policies.rehearse.cache import heeb_alphas, heeb_tables
from millpond.policies.rehearse.lru_lfu_race import RaceCache
from millpond.policies.rehearse.shadow_caches import ShadowCaches

_ORDERS = {
    "lru": CacheScore.LRU,
    "fifo": CacheScore.FIFO,
    "lfu": CacheScore.LFU,
    "prob": CacheScore.LFU,
    "rand": CacheScore.RANDOM,
}
# Up to this number of rows, `auto` is REHEARSE.  It scans the cache at every miss, so larger caches follow
# the better one of LRU and LFU, which need no scan.
MAX_REHEARSED = 1000
# A model of the keys is first identified after FIRST_IDENTIFICATION references, from the last REMEMBERED of
# them, and again after at most MAX_INTERVAL more.
FIRST_IDENTIFICATION = 2000
REMEMBERED = 2000
MAX_INTERVAL = 128_000
# Models are identified only for keys below this absolute value.
_MAX_KEY = 1 << 40


class KeyCache(Protocol):
    """A cache of numbered keys."""

    @property
    def held(self) -> Ints:
        """The cached keys, in no particular order."""

    @property
    def remembered(self) -> Ints:
        """The keys that :meth:`forget` must keep."""

    @property
    def rows(self) -> int:
        """The number of rows of the cached keys."""

    @property
    def last_used(self) -> Ints:
        """The step of each key's last reference."""

    def refer(self, codes: Ints, values: Ints, weights: Ints) -> Bools:
        """Process references to keys; returns which are hits.

        ``codes`` are the numbers of the keys, ``values`` their values, and ``weights`` the numbers of rows by
        code.
        """

    def forget(self, kept: Ints) -> None:
        """Forget all keys but ``kept``, which get the numbers 0, 1, …"""


def create_key_cache(policy: str, size: int, numeric: bool, seed: int = 0) -> KeyCache:
    """A cache of ``size`` rows under a policy.  Only ``numeric`` keys can have a model."""
    if policy in _ORDERS:
        return UnmodelledCache(HeapCache(size, _ORDERS[policy], seed=seed))
    if policy == "auto" and size > MAX_REHEARSED:
        return UnmodelledCache(RaceCache(size))
    return ModelledCache(size, policy != "heeb", online=numeric)


class UnmodelledCache:
    """A cache whose policy does not use the values of the keys."""

    def __init__(self, cache: HeapCache | RaceCache) -> None:
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
    """A cache under HEEB, or REHEARSE with HEEB among its policies.

    The model is given, or identified from the references if ``online``.  Without a model, HEEB is LRU, and
    REHEARSE leaves it out.  Independent references count as having no model: LFU serves them as well as HEEB.
    The result does not depend on how the references are divided into batches.
    """

    def __init__(self, size: int, rehearsed: bool, model: Model | None = None, online: bool = False) -> None:
        self._size = size
        self._tables: tuple[ScoreTable, ...] = ()
        self._rehearsed = rehearsed
        self._online = online
        self._last = np.empty(0, np.int64)
        self._next_identification = FIRST_IDENTIFICATION
        if not rehearsed:
            self._caches = ShadowCaches(size, [CacheScore.LRU])
        else:
            tabled = len(heeb_alphas(size))
            others = [CacheScore.REUSE, CacheScore.LRU, CacheScore.LFU]
            self._caches = ShadowCaches(size, [CacheScore.TABLE] * tabled + others)
            self._caches.active[:tabled] = False
        if model is not None:
            self._use_model(model)

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
    def has_model(self) -> bool:
        return bool(self._tables)

    def refer(self, codes: Ints, values: Ints, weights: Ints) -> Bools:
        found = [np.empty(0, np.bool_)]
        while len(codes):
            now = self._caches.now
            count = min(len(codes), self._next_identification - now) if self._online else len(codes)
            tables = align_tables(self._tables, values[:count], now) if self._tables else no_tables()
            found.append(self._caches.refer(codes[:count], values[:count], weights, tables)[0])
            if self._online:
                self._identify_model(values[:count])
            codes, values = codes[count:], values[count:]
        return np.concatenate(found)

    def forget(self, kept: Ints) -> None:
        self._caches.forget(kept)

    def _identify_model(self, values: Ints) -> None:
        """Remember the references, and identify a model when it is time."""
        self._last = np.concatenate([self._last, values])[-REMEMBERED:]
        now = self._caches.now
        if now < self._next_identification:
            return
        self._next_identification = now + min(now, MAX_INTERVAL)
        found = identify(self._last, now - len(self._last)) if np.abs(self._last).max() < _MAX_KEY else None
        if found is not None and found.kind != "stationary":
            self._use_model(found.model)
        elif not self._rehearsed:  # REHEARSE notices by itself when a model stops fitting
            self._tables = ()
            self._caches.kinds[:] = CacheScore.LRU

    def _use_model(self, model: Model) -> None:
        first = not self._tables
        if self._rehearsed:
            self._tables = heeb_tables(self._size, model)
            if first:
                self._caches.activate(range(len(self._tables)))
        else:
            self._tables = (heeb_table(model, float(self._size), caching=True),)
            self._caches.kinds[:] = CacheScore.TABLE
