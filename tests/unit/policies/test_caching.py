"""Caching: compiled loops, the offline optimum, and the reduction to joining."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.models.array_types import Ints, integers
from millpond.models.chains import AutoRegressive
from millpond.models.score_tables import heeb_table
from millpond.policies.arc import run_arc
from millpond.policies.fifo import Fifo
from millpond.policies.heeb import heeb_for_caching, next_step_policy, next_step_table
from millpond.policies.kernels.cache_loop import run_cache
from millpond.policies.kernels.kinds import CacheScore
from millpond.policies.kernels.score_lookup import align_tables
from millpond.policies.lfd import Lfd
from millpond.policies.lfu import Lfu
from millpond.policies.lru import Lru, LruK
from millpond.policies.opt_offline import plan_join
from millpond.policies.policy import Policy
from millpond.policies.prob import Prob
from millpond.policies.store import CacheStore, JoinStore
from tests.support.reference.caching_as_joining import ReducedPolicy, reduce_to_join

MODEL = AutoRegressive(4.0, 0.6, 3.0)
KEYS = st.lists(st.integers(0, 5), min_size=1, max_size=40).map(np.array)


def by_store(policy: Policy, keys: Ints, size: int) -> list[bool]:
    store = CacheStore(size, policy)
    return [store.refer(t, int(key)) for t, key in enumerate(keys)]


PAIRS: dict[CacheScore, Callable[[Ints], Policy]] = {
    CacheScore.LRU: lambda keys: Lru(),
    CacheScore.FIFO: lambda keys: Fifo(),
    CacheScore.LFU: lambda keys: Prob(),
    CacheScore.LRU_K: lambda keys: LruK(2),
    CacheScore.NEXT_USE: Lfd,
    CacheScore.CACHED_LFU: lambda keys: Lfu(),
}


@settings(deadline=None)
@given(KEYS, st.integers(1, 5), st.sampled_from(sorted(PAIRS)))
def test_compiled_loops_equal_the_store(keys: Ints, size: int, kind: CacheScore) -> None:
    assert run_cache(keys, size, kind).tolist() == by_store(PAIRS[kind](keys), keys, size)


@pytest.mark.parametrize("size", [2, 6])
def test_compiled_tables_equal_the_store_under_heeb_and_a_o(size: int) -> None:
    keys = MODEL.sample(np.random.default_rng(1), 400)
    for table, policy in (
        (heeb_table(MODEL, 4.0, caching=True), heeb_for_caching(MODEL, 4.0)),
        (next_step_table(MODEL), next_step_policy(MODEL)),
    ):
        hits = run_cache(keys, size, CacheScore.TABLE, align_tables((table,), keys))
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
    assert run_cache(keys, size, CacheScore.NEXT_USE).sum() == most_hits(keys, size)


@settings(max_examples=60, deadline=None)
@given(KEYS, st.integers(1, 5))
def test_no_policy_hits_more_than_the_optimum(keys: Ints, size: int) -> None:
    best = run_cache(keys, size, CacheScore.NEXT_USE).sum()
    for kind in (*PAIRS, CacheScore.RANDOM):
        assert run_cache(keys, size, kind).sum() <= best
    table = align_tables((heeb_table(MODEL, 3.0, caching=True),), keys)
    assert run_cache(keys, size, CacheScore.TABLE, table).sum() <= best
    assert run_arc(keys, size).sum() <= best


@settings(max_examples=60, deadline=None)
@given(KEYS, st.integers(1, 5), st.sampled_from(["lru", "lfu", "lfd", "heeb"]))
def test_theorem_1_hits_are_results_of_the_reduced_join(keys: Ints, size: int, name: str) -> None:
    make: dict[str, Callable[[], Policy]] = {
        "lru": Lru,
        "lfu": Prob,
        "lfd": lambda: Lfd(keys),
        "heeb": lambda: heeb_for_caching(MODEL, 3.0),
    }
    r, s = reduce_to_join(keys)
    store = JoinStore(size, ReducedPolicy(make[name](), keys))
    results = [store.step(t, integers(r[t]), integers(s[t])) for t in range(len(keys))]
    assert results == [int(hit) for hit in by_store(make[name](), keys, size)]


@settings(max_examples=40, deadline=None)
@given(KEYS, st.integers(1, 5))
def test_the_optimum_of_the_reduced_join_equals_that_of_the_cache(keys: Ints, size: int) -> None:
    assert plan_join(*reduce_to_join(keys), size).results == run_cache(keys, size, CacheScore.NEXT_USE).sum()
