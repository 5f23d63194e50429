"""The reuse model and the shadow caches."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.models.array_types import Ints
from millpond.models.chains import AutoRegressive
from millpond.models.score_tables import heeb_table
from millpond.policies.kernels import reuse_model as reuse
from millpond.policies.kernels.cache_loop import run_cache
from millpond.policies.kernels.kinds import CacheScore
from millpond.policies.kernels.score_lookup import align_tables
from millpond.policies.rehearse.cache import rehearse_cache, reuse_cache
from millpond.policies.rehearse.cache_policy import RehearseCaching
from millpond.policies.reuse import Reuse
from millpond.policies.store import CacheStore

KEYS = st.lists(st.integers(0, 5), min_size=1, max_size=60).map(np.array)


@settings(deadline=None)
@given(st.integers(0, 1 << 22))
def test_a_bin_starts_at_its_lowest_age(age: int) -> None:
    place = reuse.age_bin(age)
    assert reuse.bin_start(place) <= age
    assert place == reuse.BINS - 1 or age < reuse.bin_start(place + 1)


@settings(deadline=None)
@given(st.integers(0, 5000), st.integers(0, 5000))
def test_exposure_counts_every_age_once(since: int, more: int) -> None:
    exposure = np.zeros(reuse.BINS)
    reuse.add_exposure(exposure, since, since + more)
    expected = np.bincount([reuse.age_bin(age) for age in range(since, since + more)], minlength=reuse.BINS)
    assert exposure.tolist() == expected.tolist()


def test_the_best_rate_rises_until_a_certain_reference() -> None:
    events = np.zeros((reuse.CLASSES, reuse.BINS))
    exposure = np.zeros((reuse.CLASSES, reuse.BINS))
    # Every key comes back at age 64 to 79, never before.
    for age in range(64, 80):
        events[1, reuse.age_bin(age)] += 1000
        reuse.add_exposure(exposure[1], 0, age)
    exposure *= 1000
    rates = reuse.starting_rates()
    reuse.update_rates(events, exposure, rates)
    ages = [rates[1, reuse.age_bin(age)] for age in (1, 8, 32, 48)]
    assert ages == sorted(ages)
    assert ages[0] == pytest.approx(1 / 71, rel=0.15)


def test_a_class_without_references_has_the_rates_of_all_classes() -> None:
    events = np.zeros((reuse.CLASSES, reuse.BINS))
    exposure = np.zeros((reuse.CLASSES, reuse.BINS))
    for age in (3, 40, 41, 300):
        events[1, reuse.age_bin(age)] += 7
        reuse.add_exposure(exposure[1], 0, age)
    rates = reuse.starting_rates()
    reuse.update_rates(events, exposure, rates)
    assert rates[5] == pytest.approx(rates[1])


def test_a_loop_longer_than_the_cache_keeps_a_part_of_it() -> None:
    keys = np.tile(np.arange(200), 60)
    assert run_cache(keys, 100, CacheScore.LRU).sum() == 0
    best = run_cache(keys, 100, CacheScore.NEXT_USE).mean()
    assert reuse_cache(keys, 100).mean() > 0.8 * best


def test_a_scan_does_not_evict_rows_in_use() -> None:
    rng = np.random.default_rng(2)
    keys = rng.integers(0, 80, 20_000)
    keys[1::2] = 1000 + np.arange(10_000)  # every second reference is to a key that never comes back
    lru = run_cache(keys, 100, CacheScore.LRU).mean()
    assert reuse_cache(keys, 100).mean() > lru + 0.05


@settings(max_examples=40, deadline=None)
@given(KEYS, st.integers(1, 5))
def test_no_more_hits_than_the_optimum(keys: Ints, size: int) -> None:
    best = run_cache(keys, size, CacheScore.NEXT_USE).sum()
    assert reuse_cache(keys, size).sum() <= best
    assert rehearse_cache(keys, size, AutoRegressive(1.0, 0.5, 2.0)).hits.sum() <= best


def test_the_hits_of_a_shadow_are_those_of_its_policy() -> None:
    model = AutoRegressive(4.0, 0.6, 3.0)
    keys = model.sample(np.random.default_rng(3), 2000)
    trace = rehearse_cache(keys, 6, model)
    shadows = dict(zip(trace.names, trace.shadows.tolist(), strict=True))
    assert shadows["lru"] == run_cache(keys, 6, CacheScore.LRU).sum()
    assert shadows["lfu"] == run_cache(keys, 6, CacheScore.LFU).sum()
    assert shadows["reuse"] == reuse_cache(keys, 6).sum()
    table = align_tables((heeb_table(model, 2.0, caching=True),), keys)
    assert shadows["heeb alpha=2"] == run_cache(keys, 6, CacheScore.TABLE, table).sum()


@pytest.mark.campaign
def test_compiled_caches_equal_the_store() -> None:
    model = AutoRegressive(4.0, 0.6, 3.0)
    keys = model.sample(np.random.default_rng(3), 1600)
    looped = np.concatenate([keys, np.tile(np.arange(30), 40)])
    store = CacheStore(6, Reuse())
    assert [store.refer(t, int(key)) for t, key in enumerate(looped)] == reuse_cache(looped, 6).tolist()
    store = CacheStore(6, RehearseCaching.of(6, model))
    hits = [store.refer(t, int(key)) for t, key in enumerate(looped)]
    trace = rehearse_cache(looped, 6, model)
    assert hits == trace.hits.tolist()
    assert len(set(trace.leaders.tolist())) > 1


def test_a_rehearsal_continues_from_its_saved_state() -> None:
    keys = np.tile(np.arange(30), 50)
    whole, first, second = (CacheStore(12, RehearseCaching.of(12)) for _ in range(3))
    hits = [whole.refer(t, int(key)) for t, key in enumerate(keys)]
    begun = [first.refer(t, int(key)) for t, key in enumerate(keys[:800])]
    second.load(json.loads(json.dumps(first.state())))
    ended = [second.refer(t, int(key)) for t, key in enumerate(keys[800:], start=800)]
    assert begun + ended == hits


def test_the_leader_follows_the_stream() -> None:
    rng = np.random.default_rng(4)
    popular = np.minimum(rng.geometric(0.05, 15_000), 300)
    looping = 1000 + np.tile(np.arange(120), 200)
    keys = np.concatenate([popular, looping])
    trace = rehearse_cache(keys, 60)
    assert trace.hits[-5000:].mean() > 0.3  # LRU and LFU have none in the loop
    assert trace.names[int(trace.leaders[-1])] == "reuse"
