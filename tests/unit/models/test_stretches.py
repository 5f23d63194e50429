"""Stretches: models found from the past alone, in time that begins with them, and replaced when they fail."""

from __future__ import annotations

import numpy as np
import pytest

from millpond.models.chains import AutoRegressive, Walk
from millpond.models.identify import predictive
from millpond.models.models import Model, Past, Stationary, Trend
from millpond.models.noise import Noise
from millpond.models.stretches import Stretch, begun, ruling_kind, stretches

ROOF = Trend.line(1, 0, Noise.normal(3.3, 10))


def changing(*models: Model, steps: int = 1500) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.concatenate([model.sample(rng, steps) for model in models])


def test_they_cover_the_stream_and_begin_without_a_model() -> None:
    values = changing(ROOF)
    parts = stretches(values)
    assert parts[0].model is None and parts[0].start == 0
    assert [part.stop for part in parts[:-1]] == [part.start for part in parts[1:]]
    assert parts[-1].stop == len(values)
    assert ruling_kind(parts) == "trend"


def test_a_stretch_knows_nothing_of_what_comes() -> None:
    values = changing(ROOF, Walk.normal(1.0))
    whole = {part.start: part.kind for part in stretches(values)}
    for stop in (333, 1700, 2222):
        for part in stretches(values[:stop]):
            assert whole[part.start] == part.kind


def test_a_model_is_replaced_soon_after_the_stream_changes() -> None:
    values = changing(Walk.normal(1.0), ROOF)
    after = [part for part in stretches(values) if part.start > 1500]
    assert after[0].start <= 1700
    assert {part.kind for part in after} == {"trend"}


def test_a_steady_stream_changes_its_model_as_often_as_what_is_known_doubles() -> None:
    parts = stretches(changing(ROOF, steps=6000))
    assert len(parts) < 12
    assert {part.kind for part in parts[1:]} == {"trend"}


@pytest.mark.parametrize(
    "model",
    [
        Trend.line(-0.4, 3, Noise.normal(3)),
        Walk.normal(1, 2.0),
        AutoRegressive(5.0, 0.5, 3.0),
        Stationary(Noise.normal(3)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_that_begins_later_has_the_same_future(model: Model) -> None:
    values = np.arange(-40, 60)
    later = begun(model, 17, -4)
    assert later.chances(values, 5, Past(3, -6)) == pytest.approx(model.chances(values, 5, Past(20, -6)))
    if isinstance(later, Walk):
        assert later.sample(np.random.default_rng(1), 1)[0] == -4


def test_a_stretch_s_model_predicts_in_its_own_time() -> None:
    values = changing(ROOF)
    part = stretches(values)[-1]
    assert part.model is not None
    losses = -predictive(part.model, values[part.start : part.stop], 0)
    assert losses.mean() < 3.0  # that of the true model is 2.6


def test_what_was_ruled_longest_names_the_stream() -> None:
    parts = [Stretch(0, 50), Stretch(50, 90, "walk"), Stretch(90, 200, "trend"), Stretch(200, 260, "walk")]
    assert ruling_kind(parts) == "trend"
