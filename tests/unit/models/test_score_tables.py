"""Score tables equal the defining sum, whatever the model, the step and the place."""

from __future__ import annotations

import numpy as np
import pytest

from millpond.models.chains import AutoRegressive, Walk
from millpond.models.lifetime import Exponential, Fixed, ObservedLifetime, alpha_for
from millpond.models.models import Model, Past, Trend
from millpond.models.noise import Noise
from millpond.models.score_tables import (
    ScoreTable,
    best_rate,
    build_table,
    build_tables,
    heeb_table,
    surplus,
    weighted_sum,
)
from tests.support.reference.benefit import caching_steps, estimated_benefit, joining_steps
from tests.support.reference.lifetimes import Inverse
from tests.unit.models.test_models import MODELS

PASTS = [Past(0, 0), Past(7, 13), Past(1_000_003, -4)]


def values_near(model: Model, past: Past) -> np.ndarray:
    origin = model.origin_value(past)
    return np.arange(origin - 30, origin + 60)


@pytest.mark.parametrize("caching", [False, True], ids=["joining", "caching"])
@pytest.mark.parametrize("alpha", [0.3, 3.0, 12.0])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_heeb_tables_equal_the_defining_sum(model: Model, alpha: float, caching: bool) -> None:
    table = heeb_table(model, alpha, caching)
    for past in PASTS:  # the last one after a million steps
        values = values_near(model, past)
        steps = caching_steps if caching else joining_steps
        expected = estimated_benefit(model, Exponential(alpha), values, past, steps)
        assert table.look_up(values, past.now, past.last) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("caching", [False, True], ids=["joining", "caching"])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "ar1"])
def test_tables_of_any_valuation_equal_the_defining_sum(name: str, caching: bool) -> None:
    model = MODELS[name]
    for lifetime in (Fixed(9), Inverse(span=15)):
        table = build_table(model, weighted_sum(lifetime), lifetime.horizon, caching)
        for past in PASTS:
            values = values_near(model, past)
            steps = caching_steps if caching else joining_steps
            expected = estimated_benefit(model, lifetime, values, past, steps)
            assert table.look_up(values, past.now, past.last) == pytest.approx(expected, abs=1e-12)


WIDE = AutoRegressive(55.9, 0.72, 42.2)


@pytest.mark.campaign
def test_wide_noise_has_narrow_factors() -> None:
    left, right = WIDE.factors
    assert len(right) < WIDE.rows / 10
    assert np.abs(left @ right - WIDE.moves).max() < 1e-14
    past = Past(3, 260)
    values = np.arange(50, 400, 50)
    for caching, steps in ((False, joining_steps), (True, caching_steps)):
        expected = estimated_benefit(WIDE, Exponential(12.0), values, past, steps)
        found = heeb_table(WIDE, 12.0, caching).look_up(values, past.now, past.last)
        assert found == pytest.approx(expected, abs=1e-9)


def test_surfaces_of_any_valuation_equal_the_defining_sum() -> None:
    values = np.array([WIDE.low - 5, 150, 199, 260, WIDE.high + 5])
    valuations = [weighted_sum(Fixed(9)), weighted_sum(Inverse(span=9)), surplus(0.002), best_rate]
    tables = build_tables(WIDE, valuations, 9)
    for last in (-200, 120, 260, 600):
        steps = WIDE.chances(values, 9, Past(0, last))
        for table, valuation in zip(tables, valuations, strict=True):
            assert table.look_up(values, 0, last) == pytest.approx(valuation(steps), abs=1e-12)


def test_far_from_a_walk_scores_keep_their_order() -> None:
    table = heeb_table(Walk.normal(1), 3.0)
    scores = table.look_up(np.arange(0, 300), 0, 0)
    assert (np.diff(scores) < 0).all()
    assert table.look_up(np.array([-250]), 0, 0) == table.look_up(np.array([250]), 0, 0)


def test_edges_of_any_step_repeat_the_table() -> None:
    model = Trend.line(3, 0, Noise.uniform(-2, 2))
    table = heeb_table(model, 2.0)
    values = np.arange(3, 60)
    ahead = table.look_up(values + 3, 0, 0)
    assert ahead == pytest.approx(table.look_up(values, 0, 0) * np.exp(-1 / 2.0), rel=1e-12)


def test_best_rate_and_surplus_take_the_best_moment_to_leave() -> None:
    steps = np.array([[0.1, 0.5], [0.5, 0.0], [0.0, 0.0]])
    assert best_rate(steps) == pytest.approx([0.3, 0.5])
    assert surplus(0.2)(steps) == pytest.approx([0.2, 0.3])


def test_a_table_does_not_change() -> None:
    table = heeb_table(MODELS["trend"], 2.0)
    assert isinstance(table, ScoreTable)
    with pytest.raises(ValueError, match="read-only"):
        table.scores[0, 0] = 1.0


@pytest.mark.parametrize("lifetime", [1.5, 3.0, 12.5, 1000.0])
def test_alpha_predicts_the_lifetime_it_was_made_for(lifetime: float) -> None:
    assert 1 / (1 - np.exp(-1 / alpha_for(lifetime))) == pytest.approx(lifetime)


def test_the_observed_lifetime_follows_evictions() -> None:
    observed = ObservedLifetime(3.0, memory=10)
    for _ in range(100):
        observed = observed.after_evictions(np.array([8.0, 12.0]))
    assert observed.lifetime == pytest.approx(10.0, abs=1e-6)
    assert observed.alpha == pytest.approx(alpha_for(observed.lifetime))
    assert observed.after_evictions(np.empty(0)) is observed


def test_a_lifetime_is_more_than_a_step() -> None:
    with pytest.raises(ValueError, match="more than one step"):
        alpha_for(1.0)
