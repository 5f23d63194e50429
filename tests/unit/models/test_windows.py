"""HEEB under sliding windows: tables equal the defining sum, and choices are those of section 7."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from millpond.models.array_types import integers
from millpond.models.chains import AutoRegressive, Walk
from millpond.models.lifetime import Exponential
from millpond.models.models import Model, Past, Stationary
from millpond.models.noise import Noise
from millpond.policies.heeb import heeb_for_joining
from millpond.policies.policy import Candidates, Policy, R
from millpond.policies.prob import Life, Prob
from millpond.policies.store import NEVER, JoinStore
from tests.support.reference import window_tables
from tests.support.reference.benefit import estimated_benefit
from tests.support.reference.window_tables import WindowedHeeb, window_table
from tests.unit.models.test_models import MODELS

PASTS = [Past(0, 0), Past(7, 13), Past(1_000_003, -4)]
WINDOW = 25


@pytest.mark.parametrize("alpha", [0.3, 3.0, 12.0])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_tables_equal_the_defining_sum_cut_at_the_window(model: Model, alpha: float) -> None:
    table = window_table(model, alpha, WINDOW)
    for past in PASTS:  # the last one after a million steps
        values = np.repeat(np.arange(-30, 60) + model.origin_value(past), WINDOW + 3)
        remaining = np.tile(np.arange(-2, WINDOW + 1), 90)
        expected = estimated_benefit(model, Exponential(alpha), values, past, remaining=remaining)
        found = table.look_up(values, past.now, past.last, remaining)
        assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_a_window_without_end_changes_no_score(model: Model) -> None:
    table = window_table(model, 3.0, NEVER)
    values = np.arange(-30, 60)
    found = table.look_up(values, 5, 2, np.full(90, NEVER))
    assert found == pytest.approx(table.whole.look_up(values, 5, 2), abs=1e-9)


def candidates(values: list[int], ends: list[int]) -> Candidates:
    zeros = np.zeros(len(values), np.int64)
    return Candidates(zeros + R, integers(values), zeros, zeros, zeros, integers(ends))


@pytest.mark.parametrize("alpha", [1.0, 3.0, 10.0])
def test_the_example_of_section_7(alpha: float) -> None:
    partner = Stationary(Noise.of({1: 0.5, 2: 0.49, 3: 0.01}))
    policy = WindowedHeeb(partner, partner, alpha, 51)
    now = 100
    x = candidates([1, 2, 3], [now + 2, now + 51, now + 52])  # remaining lifetimes 1, 50 and 51
    scores = policy.scores(now, x)
    assert np.argsort(-scores).tolist() == [1, 0, 2]
    lifetime, remaining = Exponential(alpha), integers([1, 50, 51])
    expected = estimated_benefit(partner, lifetime, x.value, Past(now), remaining=remaining)
    assert scores == pytest.approx(expected, abs=1e-9)


def found_in_windows(policy: Policy, model: Model, window: int, size: int) -> int:
    rng = np.random.default_rng(1)
    r, s = model.sample(rng, 1500), model.sample(rng, 1500)
    store = JoinStore(size, policy)
    return sum(store.step(t, integers(r[t]), integers(s[t]), t + window, t + window) for t in range(len(r)))


@pytest.mark.campaign
@pytest.mark.parametrize(
    "make",
    [lambda: Stationary(Noise.normal(8.0)), lambda: AutoRegressive(5.0, 0.9, 3.0)],
    ids=["stationary", "ar1"],
)
def test_scores_that_end_with_the_window_find_more_results(make: Callable[[], Model]) -> None:
    model, window, size = make(), 30, 10
    own = found_in_windows(WindowedHeeb(model, model, 10.0, window), model, window, size)
    others: list[Policy] = [heeb_for_joining(model, model, 10.0), Prob(), Life()]
    assert own > 1.02 * max(found_in_windows(other, model, window, size) for other in others)


def test_a_policy_continues_from_its_saved_state() -> None:
    model = Walk.normal(1.0)
    first, second = WindowedHeeb(model, model, 5.0, 20), WindowedHeeb(model, model, 5.0, 20)
    first.observe(3, integers(7), integers(-2))
    second.load(json.loads(json.dumps(first.state())))
    x = candidates([5, 6, -3], [10, 9, 6])
    assert first.scores(3, x).tolist() == second.scores(3, x).tolist()


def test_tables_that_would_be_too_large_are_refused() -> None:
    with pytest.raises(ValueError, match="take a shorter one"):
        window_table(AutoRegressive(55.9, 0.72, 42.2), 1000.0, 1000)
    assert window_tables.LARGEST < 1 << 30
