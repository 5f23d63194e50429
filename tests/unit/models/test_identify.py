"""Identification: the right kind, close parameters, detected changes, bounded state."""

from __future__ import annotations

import json

import numpy as np
import pytest

from millpond.models.chains import AutoRegressive, Walk
from millpond.models.identify import REMEMBERED, Identifier, identify
from millpond.models.models import Model, Stationary, Trend
from millpond.models.noise import Noise

STREAMS: dict[str, tuple[str, Model]] = {
    "stationary normal": ("stationary", Stationary(Noise.normal(5))),
    "stationary uniform": ("stationary", Stationary(Noise.uniform(0, 40))),
    "skewed": ("stationary", Stationary(Noise.of({0: 0.5, 1: 0.3, 7: 0.1, 30: 0.1}))),
    "uniform noise": ("trend", Trend.line(1, 0, Noise.uniform(-15, 15))),
    "normal noise": ("trend", Trend.line(1, 0, Noise.normal(1.0, 10))),
    "falling": ("trend", Trend.line(-0.25, 30, Noise.normal(3.3, 10))),
    "walk": ("walk", Walk.normal(1.0)),
    "drifting walk": ("walk", Walk.normal(1.0, 2.0)),
    "temperatures": ("ar1", AutoRegressive(55.9, 0.72, 42.2)),
    "alternating": ("ar1", AutoRegressive(3.0, -0.6, 4.0)),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", STREAMS)
def test_the_kind_of_a_stream_is_found(name: str, seed: int) -> None:
    kind, model = STREAMS[name]
    identifier = Identifier()
    identifier.observe(model.sample(np.random.default_rng(seed), 1500))
    assert identifier.found is not None
    assert identifier.found.kind == kind
    assert identifier.restarts == 0


def test_parameters_are_close() -> None:
    rng = np.random.default_rng(1)
    trend = identify(Trend.line(1, -1, Noise.uniform(-10, 10)).sample(rng, 2000))
    assert trend is not None and isinstance(trend.model, Trend)
    assert trend.model.slope == 1
    assert abs(float(trend.model.intercept) + trend.model.noise.mean + 1) < 0.6
    assert np.abs(trend.model.noise(np.arange(-8, 9)) - 1 / 21).max() < 0.02
    series = identify(AutoRegressive(55.9, 0.72, 42.2).sample(rng, 3650))
    assert series is not None and isinstance(series.model, AutoRegressive)
    assert series.model.slope == pytest.approx(0.72, abs=0.04)
    assert series.model.deviation == pytest.approx(42.2, rel=0.05)


@pytest.mark.parametrize("before, after", [("walk", "uniform noise"), ("temperatures", "stationary normal")])
def test_a_change_of_the_stream_restarts_the_choice(before: str, after: str) -> None:
    rng = np.random.default_rng(2)
    first = STREAMS[before][1].sample(rng, 1500)
    second = STREAMS[after][1].sample(rng, 1500)
    identifier = Identifier()
    identifier.observe(first)
    assert identifier.found is not None and identifier.found.kind == STREAMS[before][0]
    identifier.observe(second)
    assert identifier.restarts >= 1
    assert identifier.found is not None and identifier.found.kind == STREAMS[after][0]


def test_the_state_is_bounded_and_can_be_restored() -> None:
    stream = STREAMS["temperatures"][1].sample(np.random.default_rng(3), 12_345)
    one, other = Identifier(), Identifier()
    one.observe(stream[:10_000])
    state = json.loads(json.dumps(one.state()))
    assert len(state["values"]) <= REMEMBERED
    other.load(state)
    for identifier in (one, other):
        identifier.observe(stream[10_000:])
    assert one.found is not None and other.found is not None
    assert one.found.likelihoods == other.found.likelihoods
    assert one.state() == other.state()


def test_the_result_does_not_depend_on_batches() -> None:
    stream = STREAMS["uniform noise"][1].sample(np.random.default_rng(4), 1234)
    whole, parts = Identifier(), Identifier()
    whole.observe(stream)
    for part in np.array_split(stream, 97):
        parts.observe(part)
    assert whole.state() == parts.state()


def test_too_few_or_too_wide_values_have_no_model() -> None:
    assert identify(np.arange(10)) is None
    assert identify(np.random.default_rng(1).integers(0, 1 << 40, 500)) is None


def test_a_constant_stream_has_a_model() -> None:
    found = identify(np.full(100, 7))
    assert found is not None
    assert found.kind == "stationary"
