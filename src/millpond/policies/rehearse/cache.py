"""REHEARSE for caching: try several policies in shadow caches, and evict as the best so far.

Nothing needs to be configured, and the leader changes when the stream does.  This module runs whole traces;
:mod:`.shadow_caches` has the caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from millpond.models.array_types import Bools, Ints
from millpond.models.models import Model
from millpond.models.score_tables import ScoreTable, heeb_table
from millpond.models.segments import Segment
from millpond.policies.kernels.cache_loop import number_keys
from millpond.policies.kernels.kinds import CacheScore
from millpond.policies.kernels.score_lookup import AlignedTables, align_tables, no_tables
from millpond.policies.rehearse.shadow_caches import ShadowCaches

_WITHOUT_MODEL = {"reuse": CacheScore.REUSE, "lru": CacheScore.LRU, "lfu": CacheScore.LFU}
# The alphas with which HEEB is tried, beside the published one.
ALPHAS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


@dataclass(frozen=True, eq=False)
class ShadowTrace:
    """For each reference: whether it was a hit, and which policy led; and the hits of every shadow."""

    hits: Bools
    leaders: Ints
    shadows: Ints
    names: tuple[str, ...]


def rehearse_cache(keys: Ints, size: int, model: Model | None = None) -> ShadowTrace:
    """Cache the references under REHEARSE.

    It tries REUSE, LRU and perfect LFU; with a model of the keys also HEEB with a range of alphas.  Then the
    first policy is HEEB with the paper's alpha, which is the cache size.
    """
    if model is None:
        return _run(keys, size, _WITHOUT_MODEL.values(), _WITHOUT_MODEL)
    return rehearse_segments(keys, size, [Segment(0, len(keys), model=model)])


def rehearse_segments(keys: Ints, size: int, segments: Sequence[Segment]) -> ShadowTrace:
    """Cache the references under REHEARSE with the model of each segment."""
    return _run_segments(keys, size, segments, _WITHOUT_MODEL)


def heeb_online(keys: Ints, size: int, model: Model) -> ShadowTrace:
    """Cache the references under HEEB with the alpha that does best in shadow caches."""
    return heeb_segments(keys, size, [Segment(0, len(keys), model=model)])


def heeb_segments(keys: Ints, size: int, segments: Sequence[Segment]) -> ShadowTrace:
    """Cache the references under :func:`heeb_online` with the model of each segment."""
    return _run_segments(keys, size, segments, {})


def reuse_cache(keys: Ints, size: int) -> Bools:
    """Which references are hits under REUSE alone."""
    return _run(keys, size, [CacheScore.REUSE], ["reuse"]).hits


def heeb_alphas(size: int) -> tuple[float, ...]:
    """The alphas that are tried, the paper's first."""
    return (float(size), *(alpha for alpha in ALPHAS if alpha != size))


def heeb_tables(size: int, model: Model) -> tuple[ScoreTable, ...]:
    """HEEB's table for each alpha that is tried."""
    return tuple(heeb_table(model, alpha, caching=True) for alpha in heeb_alphas(size))


def _run(keys: Ints, size: int, kinds: Iterable[CacheScore], names: Iterable[str]) -> ShadowTrace:
    run = ShadowRun(keys, size, tuple(names))
    run.play(len(keys), tuple(kinds), no_tables())
    return run.trace


def _run_segments(
    keys: Ints, size: int, segments: Sequence[Segment], others: Mapping[str, CacheScore]
) -> ShadowTrace:
    """Try HEEB with several alphas beside other policies; HEEB is LRU where there is no model."""
    alphas = heeb_alphas(size)
    run = ShadowRun(keys, size, [*(f"heeb alpha={alpha:g}" for alpha in alphas), *others])
    for segment in segments:
        kind, tables = CacheScore.LRU, no_tables()
        if segment.model is not None:
            kind = CacheScore.TABLE
            tables = align_tables(heeb_tables(size, segment.model), keys[segment.start : segment.stop])
        run.play(segment.stop, [*[kind] * len(alphas), *others.values()], tables)
    return run.trace


class ShadowRun:
    """Shadow caches on a given trace; the scores of the policies may change between references."""

    def __init__(self, keys: Ints, size: int, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._keys = np.ascontiguousarray(keys, np.int64)
        self._codes = number_keys(keys)
        self._weights = np.ones(int(self._codes.max(initial=-1)) + 1, np.int64)
        self._caches = ShadowCaches(size, [CacheScore.LRU] * len(names))
        self._next = 0
        self._hits: Bools = np.zeros(len(keys), np.bool_)
        self._leaders = np.zeros(len(keys), np.int64)

    def play(self, stop: int, kinds: Sequence[CacheScore], tables: AlignedTables) -> None:
        """Continue up to reference ``stop``, each policy with its kind of score."""
        now = slice(self._next, stop)
        self._caches.kinds[:] = kinds
        self._hits[now], self._leaders[now] = self._caches.refer(
            self._codes[now], self._keys[now], self._weights, tables
        )
        self._next = stop

    @property
    def trace(self) -> ShadowTrace:
        """The references so far."""
        return ShadowTrace(self._hits, self._leaders, self._caches.shadow_hits, self._names)
