"""ECBs in closed form, dominance, windows, recurrences and the interpolated surface."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.models.chains import AutoRegressive, Walk
from millpond.models.lifetime import Exponential, Fixed, Lifetime
from millpond.models.models import Past, Stationary, Trend
from millpond.models.noise import Noise
from millpond.models.score_surface import interpolate_surface
from millpond.models.score_tables import heeb_table
from tests.support.reference.benefit import (
    caching_ecb,
    dominance,
    dominated_subset,
    dominates,
    estimated_benefit,
    joining_ecb,
    limit_to_window,
    same_future,
    stationary_caching_ecb,
    stationary_ecb,
    strongly_dominates,
    uniform_trend_caching_ecb,
    uniform_trend_ecb,
)
from tests.support.reference.known_streams import Offline
from tests.support.reference.lifetimes import Forever, Inverse
from tests.support.reference.recurrence import Recurrence, joining_step

NOW = 40
AHEAD = np.arange(1, 61)


@pytest.mark.parametrize("bound", [0, 3, 10, 15])
def test_appendix_o_equals_the_sum_of_lemma_1(bound: int) -> None:
    model = Trend.line(1, 0, Noise.uniform(-bound, bound))
    values = np.arange(NOW - 40, NOW + 45)
    joining = joining_ecb(model, values, len(AHEAD), Past(NOW))
    caching = caching_ecb(model, values, len(AHEAD), Past(NOW))
    for column, value in enumerate(values.tolist()):
        assert uniform_trend_ecb(value, AHEAD, NOW, bound) == pytest.approx(joining[:, column], abs=1e-12)
        closed = uniform_trend_caching_ecb(value, AHEAD, NOW, bound)
        assert closed == pytest.approx(caching[:, column], abs=1e-12)


def test_appendix_o_by_category() -> None:
    w_r, w_s = 3, 6
    # R1: behind S's window.  R2: covered until the window has passed.
    assert not uniform_trend_ecb(NOW - w_s, AHEAD, NOW, w_s).any()
    covered = uniform_trend_ecb(NOW + 1, AHEAD, NOW, w_s)
    assert covered[0] == pytest.approx(1 / 13)
    assert covered[-1] == pytest.approx((1 + w_s) / 13)
    # S1 and S2 the same with R's window; S3: ahead of it, nothing at first, then certain to be covered fully.
    assert not uniform_trend_ecb(NOW - w_r, AHEAD, NOW, w_r).any()
    ahead = uniform_trend_ecb(NOW + w_r + 3, AHEAD, NOW, w_r)
    assert ahead[:2].tolist() == [0, 0]
    assert ahead[2] == pytest.approx(1 / 7)
    assert ahead[-1] == pytest.approx(1.0)


def test_stationary_closed_forms_equal_the_sums() -> None:
    noise = Noise.normal(2, 6)
    values = np.arange(-8, 9)
    model = Stationary(noise)
    past = Past(NOW)
    assert stationary_ecb(noise, values, AHEAD) == pytest.approx(joining_ecb(model, values, 60, past))
    assert stationary_caching_ecb(noise, values, AHEAD) == pytest.approx(caching_ecb(model, values, 60, past))


def test_offline_caching_is_a_step_at_the_next_reference() -> None:
    ecb = caching_ecb(Offline(np.array([9, 1, 2, 1, 3])), np.array([1, 3, 4]), 4, Past(0))
    assert ecb.T.tolist() == [[1, 1, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert dominates(ecb[:, 0], ecb[:, 1])
    assert not strongly_dominates(ecb[:, 0], ecb[:, 1])


@given(st.integers(-30, 30), st.integers(-8, 8), st.sampled_from([1, -1, 2, 0.5, -1.5]))
def test_corollary_5_equal_offsets_have_equal_futures(value: int, shift: int, slope: float) -> None:
    model = Trend.line(slope, 0, Noise.normal(3, 8))
    later = NOW + 2 * shift
    moved = same_future(model.slope, value, NOW, later)
    for ecb in (joining_ecb, caching_ecb):
        here = ecb(model, np.array([value]), 40, Past(NOW))
        there = ecb(model, np.array([moved]), 40, Past(later))
        assert here == pytest.approx(there, abs=1e-12)


def test_corollary_5_needs_the_same_fraction_of_a_step() -> None:
    with pytest.raises(ValueError, match="integer"):
        same_future(Trend.line(0.5, 0, Noise.point(0)).slope, 3, 0, 1)


@given(st.integers(-6, 6), st.integers(-40, 40), st.integers(-20, 20))
def test_theorem_5_a_walk_sees_distances_only(distance: int, here: int, there: int) -> None:
    model = Walk(Noise.of({-2: 0.3, 0: 0.3, 1: 0.4}))
    lifetime = Fixed(12)
    first = estimated_benefit(model, lifetime, np.array([here + distance]), Past(0, here))
    second = estimated_benefit(model, lifetime, np.array([there + distance]), Past(99, there))
    assert first == pytest.approx(second, abs=1e-15)


def test_theorem_5_an_ar1_stream_sees_the_last_value_only() -> None:
    model = AutoRegressive(2.0, 0.6, 1.5)
    values = np.arange(model.low, model.high + 1)
    first = estimated_benefit(model, Exponential(4), values, Past(0, 7))
    second = estimated_benefit(model, Exponential(4), values, Past(12345, 7))
    assert first.tolist() == second.tolist()
    assert heeb_table(model, 4).look_up(values, 3, 7) == pytest.approx(first, abs=1e-9)


def test_a_symmetric_walk_ranks_by_distance() -> None:
    ecb = joining_ecb(Walk.normal(1.0), np.array([0, 1, -1, 2, 5]), 50, Past(0, 0))
    over = dominance(ecb)
    assert over[0].all()
    assert over[1, 2] and over[2, 1]
    assert over[2, 3] and over[3, 4] and not over[4, 3]


def test_section_7_ranks_x2_x1_x3() -> None:
    model = Stationary(Noise.of({1: 0.50, 2: 0.49, 3: 0.01}))
    remaining = np.array([1, 50, 51])
    for alpha in (2.0, 5.0, 10.0, 50.0):
        scores = estimated_benefit(
            model, Exponential(alpha), np.array([1, 2, 3]), Past(0), remaining=remaining
        )
        assert np.argsort(-scores).tolist() == [1, 0, 2]


def test_a_windowed_ecb_is_flat_once_the_window_has_passed() -> None:
    ecb = np.array([[0.1, 0.2], [0.3, 0.4], [0.6, 0.6]])
    assert limit_to_window(ecb, np.array([2, 0])).T.tolist() == [[0.1, 0.3, 0.3], [0, 0, 0]]


def test_the_window_of_h_is_that_of_its_ecb() -> None:
    model = Trend.line(1, 0, Noise.normal(3, 9))
    values, remaining = np.arange(-5, 15), np.arange(20) - 2
    ecb = limit_to_window(joining_ecb(model, values, 40, Past(0)), remaining)
    lifetime = Exponential(6.0)
    expected = lifetime.weights(40) @ np.diff(ecb, axis=0, prepend=0)
    assert estimated_benefit(model, lifetime, values, Past(0), remaining=remaining) == pytest.approx(expected)


ECBS = st.lists(st.lists(st.floats(0, 1), min_size=8, max_size=8), min_size=2, max_size=6)
LIFETIMES: list[Lifetime] = [Fixed(3), Fixed(8), Forever(8), Inverse(8), Exponential(0.5), Exponential(5)]


@given(ECBS, st.sampled_from(LIFETIMES))
def test_theorem_4_h_agrees_with_dominance(steps: list[list[float]], lifetime: Lifetime) -> None:
    each = np.array(steps).T
    ecb = np.cumsum(each, axis=0)
    scores = lifetime.weights(8) @ each
    for i, j in zip(*np.nonzero(dominance(ecb)), strict=True):
        assert scores[i] >= scores[j] - 1e-9
        if strongly_dominates(ecb[:, i], ecb[:, j]):
            assert scores[i] > scores[j] - 1e-9 * (lifetime.weights(1)[0] > 0)


@given(ECBS, st.integers(0, 5))
def test_a_dominated_subset_is_what_corollary_2_says_and_the_largest(
    steps: list[list[float]], discards: int
) -> None:
    ecb = np.cumsum(np.round(np.array(steps).T, 1), axis=0)
    over = dominance(ecb)
    count = ecb.shape[1]
    found = dominated_subset(ecb, discards)
    best = 0
    for mask in range(1 << count):
        inside = [i for i in range(count) if mask >> i & 1]
        outside = [i for i in range(count) if not mask >> i & 1]
        if len(inside) <= discards and all(over[i, j] for i in outside for j in inside):
            best = max(best, len(inside))
    assert len(found) == best
    assert all(over[i, j] for i in range(count) if i not in found for j in found)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([0.7, 3.0, 12.0]), st.booleans(), st.sampled_from([1, -0.5]))
def test_recurrences_follow_the_defining_sum(alpha: float, caching: bool, slope: float) -> None:
    model = Trend.line(slope, 0, Noise.uniform(-10, 10))
    values = np.arange(-30, 60)
    carried = Recurrence(model, alpha, values, 0, caching)
    table = heeb_table(model, alpha, caching)
    for step in range(1, 200):
        carried.advance()
        assert carried.scores == pytest.approx(table.look_up(values, step, 0), abs=1e-9)


def test_recurrences_drift_without_fresh_scores() -> None:
    model = Stationary(Noise.normal(2, 9))
    values = np.arange(-9, 10)
    exact = heeb_table(model, 3.0).look_up(values, 0, 0)
    naive = exact.copy()
    for _ in range(200):
        naive = joining_step(naive, model.chances(values, 1, Past(0))[0], 3.0)
    assert np.abs(naive - exact).max() > 1e3


@pytest.mark.campaign
@pytest.mark.parametrize("caching", [False, True], ids=["joining", "caching"])
def test_recurrences_are_right_during_a_hundred_thousand_steps(caching: bool) -> None:
    model = Stationary(Noise.normal(2, 9))
    values = np.arange(-9, 10)
    carried = Recurrence(model, 3.0, values, 0, caching)
    exact = heeb_table(model, 3.0, caching).look_up(values, 0, 0)
    for _ in range(103):  # 997 is prime: the checks are at every distance from the last fresh scores
        carried.advance(997)
        assert np.abs(carried.scores - exact).max() < 1e-9


def test_25_control_points_give_the_surface_in_kind() -> None:
    model = AutoRegressive(55.9, 0.72, 42.2)
    table = heeb_table(model, 50.0, caching=True)
    rough = interpolate_surface(table, (70, 433), 5)
    fine = interpolate_surface(table, (70, 433), 40)
    places = np.arange(70, 434, 7)
    exact = np.vstack([table.look_up(places, 0, int(x)) for x in places])
    errors = [
        np.abs(np.vstack([t.look_up(places, 0, int(x)) for x in places]) - exact).max() for t in (rough, fine)
    ]
    assert errors[1] < errors[0] / 10
    assert errors[0] < 0.3 * exact.max()
    with pytest.raises(TypeError, match="AR"):
        interpolate_surface(heeb_table(Walk.normal(1), 3), (0, 10))
