"""Caching: compiled loops, the offline optimum, and the reduction to joining."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.models.arrays import Ints, integers
from millpond.models.chains import AutoRegressive
from millpond.models.scores import heeb_table
from millpond.policies.arc import arc_cache
from millpond.policies.baselines import Fifo, Lfu, Lru, LruK, NextUse, Prob
from millpond.policies.heeb import caching, next_step, next_step_table
from millpond.policies.kernels import cache_loop
from millpond.policies.kernels.cache_loop import run_cache
from millpond.policies.kernels.join_loop import Placed
from millpond.policies.offline import best_join
from millpond.policies.policy import Policy
from millpond.policies.reduction import Reduced, as_join
from millpond.policies.store import CacheStore, JoinStore

MODEL = AutoRegressive(4.0, 0.6, 3.0)
KEYS = st.lists(st.integers(0, 5), min_size=1, max_size=40).map(np.array)


def by_store(policy: Policy, keys: Ints, size: int) -> list[bool]:
    store = CacheStore(size, policy)
    return [store.refer(t, int(key)) for t, key in enumerate(keys)]


PAIRS: dict[int, Callable[[Ints], Policy]] = {
    cache_loop.LRU: lambda keys: Lru(),
    cache_loop.FIFO: lambda keys: Fifo(),
    cache_loop.LFU: lambda keys: Prob(),
    cache_loop.LRU_K: lambda keys: LruK(2),
    cache_loop.NEXT_USE: NextUse,
    cache_loop.CACHED_LFU: lambda keys: Lfu(),
}


@settings(deadline=None)
@given(KEYS, st.integers(1, 5), st.sampled_from(sorted(PAIRS)))
def test_compiled_loops_are_the_store_under_the_policy(keys: Ints, size: int, kind: int) -> None:
    assert run_cache(keys, size, kind).tolist() == by_store(PAIRS[kind](keys), keys, size)


@pytest.mark.parametrize("size", [2, 6])
def test_compiled_tables_are_the_store_under_heeb_and_a_o(size: int) -> None:
    keys = MODEL.sample(np.random.default_rng(1), 400)
    for table, policy in (
        (heeb_table(MODEL, 4.0, caching=True), caching(MODEL, 4.0)),
        (next_step_table(MODEL), next_step(MODEL)),
    ):
        hits = run_cache(keys, size, cache_loop.TABLE, Placed.of((table,), keys))
        assert hits.tolist() == by_store(policy, keys, size)


def most_hits(keys: Ints, size: int) -> int:
    """The most hits, trying every choice at every step; the fetched row need not be cached."""
    best: dict[frozenset[int], int] = {frozenset(): 0}
    for key in keys.tolist():
        after: dict[frozenset[int], int] = {}
        for kept, total in best.items():
            total += key in kept
            rows = kept | {key}
            for choice in combinations(sorted(rows), min(size, len(rows))):
                chosen = frozenset(choice)
                after[chosen] = max(after.get(chosen, -1), total)
        best = after
    return max(best.values())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=10).map(np.array), st.integers(1, 3))
def test_longest_forward_distance_with_bypass_is_optimal(keys: Ints, size: int) -> None:
    assert run_cache(keys, size, cache_loop.NEXT_USE).sum() == most_hits(keys, size)


@settings(max_examples=60, deadline=None)
@given(KEYS, st.integers(1, 5))
def test_no_policy_hits_more_than_the_optimum(keys: Ints, size: int) -> None:
    best = run_cache(keys, size, cache_loop.NEXT_USE).sum()
    for kind in (*PAIRS, cache_loop.RANDOM):
        assert run_cache(keys, size, kind).sum() <= best
    table = Placed.of((heeb_table(MODEL, 3.0, caching=True),), keys)
    assert run_cache(keys, size, cache_loop.TABLE, table).sum() <= best
    assert arc_cache(keys, size).sum() <= best


@settings(max_examples=60, deadline=None)
@given(KEYS, st.integers(1, 5), st.sampled_from(["lru", "lfu", "lfd", "heeb"]))
def test_theorem_1_hits_are_results_of_the_reduced_join(keys: Ints, size: int, name: str) -> None:
    make: dict[str, Callable[[], Policy]] = {
        "lru": Lru,
        "lfu": Prob,
        "lfd": lambda: NextUse(keys),
        "heeb": lambda: caching(MODEL, 3.0),
    }
    r, s = as_join(keys)
    store = JoinStore(size, Reduced(make[name](), keys))
    results = [store.step(t, integers(r[t]), integers(s[t])) for t in range(len(keys))]
    assert results == [int(hit) for hit in by_store(make[name](), keys, size)]


@settings(max_examples=40, deadline=None)
@given(KEYS, st.integers(1, 5))
def test_the_optimum_of_the_reduced_join_is_that_of_the_cache(keys: Ints, size: int) -> None:
    assert best_join(*as_join(keys), size).results == run_cache(keys, size, cache_loop.NEXT_USE).sum()
