"""Models: probabilities sum to one, and agree with enumeration and with samples."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from millpond.models.chains import AutoRegressive, Walk
from millpond.models.models import Model, Past, Stationary, Trend
from millpond.models.noise import Noise
from tests.support.reference.known_streams import Offline

STEPS = Noise.of({-1: 0.2, 0: 0.5, 2: 0.3})

MODELS: dict[str, Model] = {
    "stationary": Stationary(Noise.normal(3, 10)),
    "trend": Trend.line(1, 0, Noise.uniform(-10, 10)),
    "falling trend": Trend.line(-0.4, 3, Noise.normal(3.3, 10)),
    "steep trend": Trend.line(2.5, 0.7, Noise.uniform(-3, 3)),
    "level trend": Trend.line(0, 2.5, Noise.normal(2)),
    "walk": Walk.normal(1),
    "drifting walk": Walk.normal(1, 2.0),
    "lattice walk": Walk(STEPS),
    "ar1": AutoRegressive(5.59, 0.72, 4.22),
    "alternating ar1": AutoRegressive(1.0, -0.5, 2),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_chances_of_a_step_sum_to_one(model: Model) -> None:
    past = Past(7, 3)
    origin = model.origin_value(past)
    low, high = model.reach(4)
    chances = model.chances(np.arange(origin + low, origin + high + 1), 4, past)
    assert chances.sum(axis=1) == pytest.approx(np.ones(4), abs=1e-12)
    assert (chances >= 0).all()


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_samples_follow_the_probabilities(model: Model) -> None:
    rng = np.random.default_rng(5)
    streams = np.array([model.sample(rng, 6) for _ in range(4000)])
    for last in np.unique(streams[:, 2])[:3]:
        chosen = streams[streams[:, 2] == last]
        if len(chosen) < 300:
            continue
        values = np.unique(chosen[:, 5])
        expected = model.chances(values, 3, Past(2, int(last)))[2]
        observed = (chosen[:, 5][:, None] == values).mean(axis=0)
        assert np.abs(observed - expected).max() < 6 * 0.5 / np.sqrt(len(chosen))


def test_walk_chances_equal_a_sum_over_paths() -> None:
    values = np.arange(-3, 7)
    chances = Walk(STEPS).chances(values, 3, Past(0, 1))
    firsts = Walk(STEPS).first_chances(values, 3, Past(0, 1))
    steps = {-1: 0.2, 0: 0.5, 2: 0.3}
    for column, value in enumerate(values):
        at, first = np.zeros(3), np.zeros(3)
        for path in product(steps, repeat=3):
            chance = np.prod([steps[s] for s in path])
            here = 1 + np.cumsum(path) == value
            at += chance * here
            if here.any():
                first[here.argmax()] += chance
        assert chances[:, column] == pytest.approx(at, abs=1e-15)
        assert firsts[:, column] == pytest.approx(first, abs=1e-15)


def test_ar1_first_chances_equal_a_sum_over_paths() -> None:
    model = AutoRegressive(0.3, 0.5, 0.4)
    values = np.arange(model.low, model.high + 1)
    visited = model.first_chances(values, 3, Past(0, 1))
    moves = model.moves
    for column, value in enumerate(values):
        first = np.zeros(3)
        for path in product(range(len(values)), repeat=3):
            states = (1 - model.low, *path)
            chance = np.prod([moves[a, b] for a, b in pairwise(states)])
            here = values[list(path)] == value
            if here.any():
                first[here.argmax()] += chance
        assert visited[:, column] == pytest.approx(first, abs=1e-12)


@pytest.mark.parametrize("slope", [Fraction(1), Fraction(-2, 5), Fraction(7, 3)])
def test_a_trend_leaves_a_value_when_its_noise_no_longer_reaches_it(slope: Fraction) -> None:
    model = Trend(slope, Fraction(1, 2), Noise.uniform(-3, 4))
    steps = np.arange(-200, 200)
    for value in range(-20, 20):
        reached = steps[model.noise(value - model.centre(steps)) > 0]
        assert int(model.leaves(np.array([value]))[0]) == reached.max() + 1


def test_offline_knows_its_values_and_nothing_after_them() -> None:
    model = Offline(np.array([5, 6, 5]))
    assert model.chances(np.array([5, 6]), 3, Past(0)).tolist() == [[0, 1], [1, 0], [0, 0]]
    with pytest.raises(TypeError, match="does not repeat"):
        model.place(np.array([0]), np.array([0]))


def test_an_ar1_model_too_wide_for_its_table_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="divide the values by"):
        AutoRegressive(0.0, 0.9, 5000.0)


@pytest.mark.parametrize("weights", [[], [0.5, 0.4], [1.5, -0.5]])
def test_noise_is_a_distribution(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        Noise(0, np.array(weights))
