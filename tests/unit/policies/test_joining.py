"""Joining: compiled loops equal the store, and no policy finds more than OPT-offline."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from millpond.lab.workloads import SYNTHETIC, Workload
from millpond.models.array_types import Ints, integers
from millpond.models.lifetime import ObservedLifetime, alpha_for
from millpond.models.score_tables import heeb_table
from millpond.policies.fifo import Fifo
from millpond.policies.heeb import LIFETIMES, AdaptiveHeeb, heeb_for_joining
from millpond.policies.kernels.join_loop import JoinTrace, run_join
from millpond.policies.kernels.kinds import JoinScore
from millpond.policies.kernels.score_lookup import align_tables
from millpond.policies.lfu import Lfu
from millpond.policies.lru import Lru
from millpond.policies.opt_offline import find_matches, plan_join
from millpond.policies.policy import Policy
from millpond.policies.prob import Life, Prob
from millpond.policies.rand import RandomEviction
from millpond.policies.rehearse.join import heeb_join_tables, rehearse
from millpond.policies.store import NEVER, JoinStore
from tests.support.reference.planned_eviction import PlannedEviction

Streams = tuple[Ints, Ints]
SMALL = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=7)


def by_store(
    policy: Policy, streams: Streams, size: int, leaves: tuple[Ints, Ints] | None = None
) -> list[int]:
    store = JoinStore(size, policy)
    r, s = streams
    ends = leaves or (np.full(len(r), NEVER), np.full(len(r), NEVER))
    return [
        store.step(t, integers(r[t]), integers(s[t]), int(ends[0][t]), int(ends[1][t])) for t in range(len(r))
    ]


@pytest.mark.parametrize("size", [1, 4, 10])
@pytest.mark.parametrize("make", SYNTHETIC.values(), ids=SYNTHETIC.keys())
def test_compiled_heeb_equals_the_store_under_heeb(make: Callable[[], Workload], size: int) -> None:
    work = make()
    r, s = work.streams(1, 0, 300)
    alpha = work.alpha(size)
    trace = run_join(r, s, size, JoinScore.TABLE, heeb_join_tables(work.r, work.s, alpha).align(r, s))
    assert trace.results.tolist() == by_store(heeb_for_joining(work.r, work.s, alpha), (r, s), size)


BASELINES: dict[JoinScore, Callable[[], Policy]] = {
    JoinScore.PROB: Prob,
    JoinScore.LIFE: Life,
    JoinScore.FIFO: Fifo,
    JoinScore.LRU: Lru,
    JoinScore.LFU: Lfu,
}


@pytest.mark.parametrize("windows", [False, True], ids=["no windows", "windows"])
@pytest.mark.parametrize("kind", BASELINES)
def test_compiled_baselines_equal_the_store(kind: JoinScore, windows: bool) -> None:
    work = SYNTHETIC["ROOF"]()
    r, s = work.streams(1, 0, 300)
    leaves = work.leaves(r, s) if windows else None
    trace = run_join(r, s, 6, kind, leaves=leaves)
    assert trace.results.tolist() == by_store(BASELINES[kind](), (r, s), 6, leaves)


def test_random_eviction_finds_about_as_much_in_the_loop_as_in_the_store() -> None:
    work = SYNTHETIC["TOWER"]()
    r, s = work.streams(1, 0, 3000)
    leaves = work.leaves(r, s)
    fast = run_join(r, s, 10, JoinScore.RANDOM, leaves=leaves, seed=3).results.sum()
    slow = sum(by_store(RandomEviction(3), (r, s), 10, leaves))
    assert abs(fast - slow) < 0.05 * slow


def test_compiled_adaptive_heeb_equals_the_store() -> None:
    work = SYNTHETIC["FLOOR"]()
    r, s = work.streams(1, 0, 400)
    lives = np.array(LIFETIMES[:12])
    tables = tuple(
        align_tables(tuple(heeb_table(model, alpha_for(life)) for life in lives), stream)
        for model, stream in ((work.s, s), (work.r, r))
    )
    trace = run_join(r, s, 5, JoinScore.TABLE, (tables[0], tables[1]), lifetimes=lives, memory=30.0)
    policy = AdaptiveHeeb(work.r, work.s, ObservedLifetime(lives[0], 30.0), LIFETIMES[:12])
    found = by_store(policy, (r, s), 5)
    # The loop averages evictions one by one, the store those of a step together, so they differ slightly.
    assert abs(trace.results.sum() - sum(found)) <= 0.03 * sum(found)
    assert len(set(trace.choices.tolist())) > 1


@pytest.mark.parametrize(
    "policy",
    [RandomEviction(1), Prob(), Life(), heeb_for_joining(SYNTHETIC["WALK"]().r, SYNTHETIC["WALK"]().s, 3.0)],
)
def test_a_policy_continues_from_its_saved_state(policy: Policy) -> None:
    work = SYNTHETIC["WALK"]()
    r, s = work.streams(1, 0, 60)
    store = JoinStore(5, policy)
    for t in range(30):
        store.step(t, integers(r[t]), integers(s[t]))
    saved = json.loads(json.dumps(store.state()))
    ahead = [store.step(t, integers(r[t]), integers(s[t])) for t in range(30, 60)]
    policy.observe(60, integers(99), integers(99))
    again = JoinStore(5, policy)
    again.load(saved)
    assert [again.step(t, integers(r[t]), integers(s[t])) for t in range(30, 60)] == ahead


# --- the optimum -----------------------------------------------------------------------------------


def exhaustive(r: Ints, s: Ints, size: int, warm_up: int) -> int:
    """The most results, trying every choice at every step."""
    best: dict[tuple[tuple[int, int], ...], int] = {(): 0}
    for t in range(len(r)):
        after: dict[tuple[tuple[int, int], ...], int] = {}
        for kept, total in best.items():
            found = sum(int(value == (s[t] if side == 0 else r[t])) for side, value in kept)
            total += found if t >= warm_up else 0
            candidates = (*kept, (0, int(r[t])), (1, int(s[t])))
            for choice in combinations(candidates, min(size, len(candidates))):
                key = tuple(sorted(choice))
                after[key] = max(after.get(key, -1), total)
        best = after
    return max(best.values())


def linear_program(r: Ints, s: Ints, size: int, warm_up: int) -> float:
    """The most results by an LP: whether each tuple stays until each match; prefixes; slots at every step."""
    owner, arrived, when = find_matches(r, s)
    count = len(owner)
    if not count:
        return 0.0
    rows, limits = [], []
    before = arrived.copy()
    same = owner[1:] == owner[:-1]
    before[1:][same] = when[:-1][same]
    for step in range(len(r)):
        rows.append(((before <= step) & (step < when)).astype(float))
        limits.append(float(size))
    for j in range(1, count):
        if owner[j] == owner[j - 1]:
            row = np.zeros(count)
            row[j], row[j - 1] = 1, -1
            rows.append(row)
            limits.append(0.0)
    solved = linprog(-(when >= warm_up).astype(float), np.array(rows), limits, bounds=(0, 1))
    return -float(solved.fun)


@settings(max_examples=60, deadline=None)
@given(SMALL, st.integers(1, 3), st.integers(0, 2))
def test_opt_offline_equals_exhaustive_search_and_an_lp(
    pairs: list[tuple[int, int]], size: int, warm: int
) -> None:
    r, s = np.array(pairs).T
    plan = plan_join(r, s, size, warm)
    assert plan.results == exhaustive(r, s, size, warm)
    assert plan.results == pytest.approx(linear_program(r, s, size, warm), abs=1e-6)


@pytest.mark.parametrize("size", [2, 5, 9])
@pytest.mark.parametrize("name", SYNTHETIC)
def test_opt_offline_equals_an_lp_on_longer_streams(name: str, size: int) -> None:
    for run in range(3):
        r, s = SYNTHETIC[name]().streams(11, run, 120)
        expected = linear_program(r, s, size, 20)
        assert plan_join(r, s, size, 20).results == pytest.approx(expected, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(SYNTHETIC)), st.integers(0, 1000), st.integers(1, 12))
def test_the_plan_of_opt_keeps_its_promise_and_no_policy_finds_more(name: str, run: int, size: int) -> None:
    work = SYNTHETIC[name]()
    r, s = work.streams(7, run, 150)
    warm = 2 * size
    plan = plan_join(r, s, size, warm)
    replayed = run_join(r, s, size, JoinScore.PLAN, leaves=(plan.r_until, plan.s_until))
    assert replayed.total(warm) == plan.results
    assert sum(by_store(PlannedEviction(plan), (r, s), size)[warm:]) == plan.results
    leaves = work.leaves(r, s)
    for kind in (*BASELINES, JoinScore.RANDOM):
        assert run_join(r, s, size, kind, leaves=leaves).total(warm) <= plan.results
    tables = heeb_join_tables(work.r, work.s, work.alpha(size)).align(r, s)
    assert run_join(r, s, size, JoinScore.TABLE, tables).total(warm) <= plan.results


def test_one_step_has_no_results() -> None:
    assert plan_join(np.array([1]), np.array([1]), 2).results == 0


# --- rehearsal -------------------------------------------------------------------------------------


def test_rehearsal_beats_heeb_where_its_lifetime_is_wrong() -> None:
    work = SYNTHETIC["FLOOR"]()
    found = rehearse(work.r, work.s, 5, work.alpha(5), runs=8, steps=1000)
    published = next(iter(found.results))
    assert found.results[found.chosen.name] > 1.08 * found.results[published]


def test_a_rehearsal_does_not_use_the_streams_of_the_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    work = SYNTHETIC["TOWER"]()
    played: list[list[int]] = []
    real = run_join

    def noted(r: Ints, s: Ints, *rest: Any) -> JoinTrace:
        played.append(r[:50].tolist())
        return real(r, s, *rest)

    monkeypatch.setattr("millpond.policies.rehearse.join.run_join", noted)
    rehearse(work.r, work.s, 3, work.alpha(3), runs=4, steps=100, seed=1)
    assert played
    for run in range(4):
        assert work.streams(1, run, 100)[0][:50].tolist() not in played


def test_rehearsal_stays_with_heeb_where_nothing_is_better() -> None:
    work = SYNTHETIC["WALK"]()
    assert rehearse(work.r, work.s, 5, 5.0, runs=4, steps=500).chosen.name == "heeb alpha=5"
