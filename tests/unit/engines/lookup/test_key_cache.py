"""Caches have the same hits as in the lab, however the references are divided into batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engines.lookup.key_cache import (
    FIRST_IDENTIFICATION,
    MAX_REHEARSED,
    KeyCache,
    ModelledCache,
    create_key_cache,
)
from millpond.lab.simulate import cache_player
from millpond.models.array_types import Bools, Ints
from millpond.models.chains import Walk
from millpond.models.models import Trend
from millpond.models.noise import Noise
from millpond.policies.kernels.heap_cache import HeapCache
from millpond.policies.kernels.kinds import CacheScore
from millpond.policies.kernels.score_lookup import no_tables
from millpond.policies.rehearse.lru_lfu_race import RaceCache
from millpond.policies.rehearse.shadow_caches import ShadowCaches
from tests.support.lookups import INT_LABEL, Join, relation, store

# Skewed keys that drift, and a random walk.
RNG = np.random.default_rng(7)
SKEWED = (RNG.zipf(1.3, 20_000) + np.arange(20_000) // 5000) % 3000
WALK = Walk(Noise.normal(4.0), 1000)
WALKED = WALK.sample(RNG, 6000)
CUTS = (1, 17, 18, 2500, 2501, 9000)


def play(cache: KeyCache, keys: Ints, cuts: tuple[int, ...]) -> Bools:
    """The hits of the references, batch by batch; keys are numbered in the order of arrival."""
    _, first, code = np.unique(keys, return_index=True, return_inverse=True)
    codes = np.argsort(np.argsort(first))[code]
    hits, start = [], 0
    for stop in (*(c for c in cuts if c < len(keys)), len(keys)):
        weights = np.ones(int(codes[:stop].max(initial=-1)) + 1, np.int64)
        hits.append(cache.refer(codes[start:stop], keys[start:stop], weights))
        start = stop
    return np.concatenate(hits)


@pytest.mark.parametrize("policy", ["lru", "fifo", "lfu", "prob", "rand"])
@pytest.mark.parametrize("size", [1, 30, 400])
def test_classic_policies_have_the_hits_of_the_lab(policy: str, size: int) -> None:
    expected = cache_player("lfu" if policy == "prob" else policy, size, None)(SKEWED)
    assert play(create_key_cache(policy, size, True), SKEWED, CUTS).tolist() == expected.tolist()


@pytest.mark.campaign
@pytest.mark.parametrize("size", [5, 40])
def test_policies_with_a_given_model_have_the_hits_of_the_lab(size: int) -> None:
    for policy, rehearsed in (("heeb", False), ("rehearse", True)):
        expected = cache_player(policy, size, WALK)(WALKED)
        found = play(ModelledCache(size, rehearsed, WALK), WALKED, CUTS)
        assert found.tolist() == expected.tolist()


def test_rehearse_without_a_model_has_the_hits_of_the_lab() -> None:
    for policy in ("rehearse", "auto"):
        expected = cache_player("rehearse", 60, None)(SKEWED)
        assert play(create_key_cache(policy, 60, False), SKEWED, CUTS).tolist() == expected.tolist()


def test_a_model_is_identified_from_the_references() -> None:
    """HEEB uses it from that step on, however the references are divided into batches."""
    trend = Trend.line(0.1, 500, Noise.normal(6.0))
    for model in (WALK, trend):
        keys = model.sample(np.random.default_rng(3), 9000)
        whole, cut = ModelledCache(20, False, online=True), ModelledCache(20, False, online=True)
        hits = play(whole, keys, ())
        assert whole.has_model
        assert hits.tolist() == play(cut, keys, tuple(sorted((*CUTS, FIRST_IDENTIFICATION)))).tolist()
        known = cache_player("heeb", 20, model)(keys)
        assert hits[FIRST_IDENTIFICATION + 500 :].sum() >= 0.95 * known[FIRST_IDENTIFICATION + 500 :].sum()
    assert not ModelledCache(20, False, online=True).has_model


@pytest.mark.campaign
def test_auto_on_a_large_cache_is_about_as_good_as_the_better_of_lru_and_lfu() -> None:
    size = MAX_REHEARSED + 1
    keys = np.random.default_rng(4).zipf(1.1, 200_000) % 100_000
    own = play(create_key_cache("auto", size, True), keys, CUTS).mean()
    others = [cache_player(policy, size, None)(keys).mean() for policy in ("lru", "lfu")]
    assert own > 0.99 * max(others) and max(others) > min(others) + 0.01


WEIGHTED = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), min_size=1, max_size=60)


@settings(deadline=None, max_examples=150)
@given(WEIGHTED, st.integers(1, 6), st.sampled_from(["lru", "fifo", "lfu", "rand", "race", "shadow"]))
def test_a_cache_never_holds_more_rows_than_its_size(
    references: list[tuple[int, int]], size: int, kind: str
) -> None:
    """With keys of several rows, whose number may change, and with keys that are forgotten."""
    kinds = {"lru": CacheScore.LRU, "fifo": CacheScore.FIFO, "lfu": CacheScore.LFU, "rand": CacheScore.RANDOM}
    cache: HeapCache | RaceCache | ShadowCaches
    cache = HeapCache(size, kinds[kind]) if kind in kinds else RaceCache(size)
    if kind == "shadow":
        cache = ShadowCaches(size, [CacheScore.REUSE, CacheScore.LRU, CacheScore.LFU])
    weights = np.array([1, 2, 3, 1, 1, 7, 2], np.int64)
    for key, change in references:
        before = set(cache.held.tolist())
        if change == 1:
            weights[key] = weights[key] % 4 + 1
        codes = np.array([key])
        if isinstance(cache, ShadowCaches):
            hit = cache.refer(codes, codes, weights, no_tables())[0]
        else:
            hit = cache.refer(codes, weights)
        assert hit.tolist() == [key in before]
        held = cache.held
        assert cache.rows == weights[held].sum() <= size
        assert len(set(held.tolist())) == len(held)
        if (kind in kinds or kind == "race") and change != 1:
            assert (key in held) == (weights[key] <= size)
        if change == 2:  # all keys stay and keep their numbers
            cache.forget(np.arange(7))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=300).map(np.array),
    st.integers(1, 8),
    st.lists(st.integers(1, 3), min_size=10, max_size=10).map(np.array),
    st.integers(0, 300),
)
def test_the_race_of_lru_and_lfu_equals_rehearse_with_these_two(
    keys: Ints, size: int, weights: Ints, cut: int
) -> None:
    rehearsal = ShadowCaches(size, [CacheScore.LRU, CacheScore.LFU])
    expected = rehearsal.refer(keys, keys, weights, no_tables())[0]
    race = RaceCache(size)
    hits = [race.refer(part, weights) for part in np.split(keys, [min(cut, len(keys))])]
    assert np.concatenate(hits).tolist() == expected.tolist()
    assert sorted(race.held.tolist()) == sorted(rehearsal.held.tolist())
    assert race.rows == rehearsal.rows and race.remembered.tolist() == rehearsal.remembered.tolist()


def test_forgetting_keys_renumbers_the_others() -> None:
    for cache in (HeapCache(3, CacheScore.LRU), RaceCache(3)):
        cache.refer(np.array([0, 1, 2, 3, 4, 3]), np.ones(5, np.int64))
        assert sorted(cache.held.tolist()) == [2, 3, 4]
        cache.forget(np.array([2, 3, 4]))
        assert sorted(cache.held.tolist()) == [0, 1, 2]
        # Key 2 was the least recently used; its number is 0 now.
        assert cache.refer(np.array([3, 2, 0, 1]), np.ones(4, np.int64)).tolist() == [
            False,
            True,
            False,
            False,
        ]


@pytest.mark.parametrize("policy", ["lru", "lfu", "rand", "rehearse"])
def test_the_lookup_join_has_the_hits_of_the_lab(tmp_path: Path, policy: str) -> None:
    """Keys that are not in the database are cached too."""
    url = store(tmp_path / "r.db", "R", INT_LABEL, [(n, str(n)) for n in range(0, 3000, 3)])
    join = Join(relation(url, INT_LABEL, 50, policy), ["K"], [pa.int32()])
    keys = SKEWED[:8000]
    found, lookups, hits = join.run([(int(key),) for key in keys], CUTS[:5])
    model = None  # no model fits these keys
    assert (lookups, hits) == (len(keys), cache_player(policy, 50, model)(keys).sum())
    assert len(found) == (keys % 3 == 0).sum()
