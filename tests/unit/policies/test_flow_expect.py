"""FlowExpect, and the adaptive strategies that beat it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import MillpondError
from millpond.models.array_types import integers
from millpond.models.models import Past
from millpond.models.noise import Noise
from millpond.policies.flow_expect import FlowExpect, find_best_plan
from millpond.policies.opt_offline import plan_join
from millpond.policies.policy import Candidates, R, S
from millpond.policies.store import NEVER, JoinStore
from tests.support.reference.benefit import dominance, dominated_subset, joining_ecb, strongly_dominates
from tests.support.reference.best_adaptive import best_adaptive, first_choices
from tests.support.reference.known_streams import Offline, Scripted

# Section 3.4: what joins nothing is -1 in R and -2 in S.
EXAMPLE_R = Scripted((Noise.point(-1), Noise.point(2), Noise.point(3), Noise.of({2: 0.5, -1: 0.5})))
EXAMPLE_S = Scripted(
    (Noise.point(2), Noise.of({3: 0.5, -2: 0.5}), Noise.of({1: 0.8, -2: 0.2}), Noise.of({1: 0.8, -2: 0.2}))
)


def columns(*tuples: tuple[int, int]) -> Candidates:
    side, value = np.array(tuples).T
    zero = np.zeros(len(tuples), np.int64)
    return Candidates(side, value, zero, zero, zero, np.full(len(tuples), NEVER))


def test_the_example_of_section_3_4() -> None:
    policy = FlowExpect(EXAMPLE_R, EXAMPLE_S, ahead=3, size=1)
    candidates = columns((R, 1), (R, -1), (S, 2))
    plan = find_best_plan(policy.certain(0, candidates), policy.uncertain(0), 1)
    assert plan.keep.tolist() == [True, False, False]
    assert plan.benefit == pytest.approx(1.6)
    choices = first_choices(EXAMPLE_R, EXAMPLE_S, ((R, 1), (R, -1), (S, 2)), 1, 0, 3)
    assert choices[((R, 1),)] == pytest.approx(1.6)
    assert choices[((S, 2),)] == pytest.approx(1.75)
    assert max(choices.values()) == pytest.approx(1.75)


def test_an_exhaustive_search_that_is_too_large_is_refused() -> None:
    steps = Scripted(tuple(Noise.uniform(0, 9) for _ in range(9)))
    with pytest.raises(MillpondError, match="look fewer steps ahead"):
        best_adaptive(steps, steps, ((R, 1),), 3, 0, 8)


CHANCES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=3, max_size=3).filter(any)


@st.composite
def scripts(draw: st.DrawFn, steps: int = 3) -> Scripted:
    laws = [draw(CHANCES) for _ in range(steps + 1)]
    return Scripted(tuple(Noise(0, np.array(law) / sum(law)) for law in laws))


@settings(max_examples=40, deadline=None)
@given(scripts(), scripts(), st.integers(1, 2), st.randoms(use_true_random=False))
def test_theorem_2_a_plan_earns_what_it_expects_and_adapting_earns_no_less(
    r: Scripted, s: Scripted, size: int, rng: np.random.Generator
) -> None:
    tuples = tuple((side, value) for side in (R, S) for value in (0, 1))
    candidates = columns(*tuples)
    policy = FlowExpect(r, s, ahead=3, size=size)
    certain, uncertain = policy.certain(0, candidates), policy.uncertain(0)
    plan = find_best_plan(certain, uncertain, size)
    assert plan.benefit == pytest.approx(_best_fixed(certain, uncertain, size), abs=1e-8)
    assert plan.benefit <= best_adaptive(r, s, tuples, size, 0, 3) + 1e-8


def _best_fixed(certain: np.ndarray, uncertain: np.ndarray, size: int) -> float:
    """The best plan by trying every set of tuples at every step."""
    benefits = np.vstack([certain, uncertain])
    arrivals = [0] * len(certain) + [step for step in range(1, certain.shape[1]) for _ in range(2)]

    def value(kept: frozenset[int], step: int) -> float:
        if step == certain.shape[1]:
            return 0.0
        available = [*kept, *(i for i, a in enumerate(arrivals) if a == step)]
        return max(
            float(benefits[list(choice), step].sum()) + value(frozenset(choice), step + 1)
            for choice in combinations(available, min(size, len(available)))
        )

    return value(frozenset(), 0)


@settings(max_examples=40, deadline=None)
@given(scripts(), scripts(), st.integers(1, 3))
def test_theorem_3_and_corollary_2_on_the_best_adaptive_strategy(r: Scripted, s: Scripted, size: int) -> None:
    tuples = tuple((side, value) for side in (R, S) for value in (0, 1, 2))
    choices = first_choices(r, s, tuples, size, 0, 3)
    best = max(choices.values())
    optimal = [set(choice) for choice, value in choices.items() if value > best - 1e-9]
    ecb = np.column_stack(
        [joining_ecb(s if side == R else r, np.array([value]), 3, Past(0))[:, 0] for side, value in tuples]
    )
    over = dominance(ecb)
    for i, better in enumerate(tuples):
        for j, worse in enumerate(tuples):
            if over[i, j] and i != j:
                assert any(better in kept or worse not in kept for kept in optimal)
                if strongly_dominates(ecb[:, i], ecb[:, j]):
                    assert all(better in kept or worse not in kept for kept in optimal)
    gone = {tuples[i] for i in dominated_subset(ecb, len(tuples) - size)}
    assert any(not gone & kept for kept in optimal)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=4, max_size=12), st.integers(1, 3))
def test_flow_expect_equals_opt_offline_on_known_streams(pairs: list[tuple[int, int]], size: int) -> None:
    r, s = np.array(pairs).T
    policy = FlowExpect(Offline(r), Offline(s), ahead=len(r), size=size)
    store = JoinStore(size, policy)
    found = sum(store.step(t, integers(r[t]), integers(s[t])) for t in range(len(r)))
    assert found == plan_join(r, s, size).results
