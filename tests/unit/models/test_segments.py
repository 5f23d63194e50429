"""Segments: models identified from earlier values only, and replaced when they fail."""

from __future__ import annotations

import numpy as np
import pytest

from millpond.models.chains import AutoRegressive, Walk
from millpond.models.identify import log_likelihoods
from millpond.models.models import Model, Past, Stationary, Trend
from millpond.models.noise import Noise
from millpond.models.segments import Segment, most_common_kind, shift_model, split_into_segments

ROOF = Trend.line(1, 0, Noise.normal(3.3, 10))


def changing(*models: Model, steps: int = 1500) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.concatenate([model.sample(rng, steps) for model in models])


def test_segments_cover_the_stream_and_the_first_has_no_model() -> None:
    values = changing(ROOF)
    parts = split_into_segments(values)
    assert parts[0].model is None and parts[0].start == 0
    assert [part.stop for part in parts[:-1]] == [part.start for part in parts[1:]]
    assert parts[-1].stop == len(values)
    assert most_common_kind(parts) == "trend"


def test_the_model_of_a_segment_does_not_depend_on_later_values() -> None:
    values = changing(ROOF, Walk.normal(1.0))
    whole = {part.start: part.kind for part in split_into_segments(values)}
    for stop in (333, 1700, 2222):
        for part in split_into_segments(values[:stop]):
            assert whole[part.start] == part.kind


def test_a_model_is_replaced_soon_after_the_stream_changes() -> None:
    values = changing(Walk.normal(1.0), ROOF)
    after = [part for part in split_into_segments(values) if part.start > 1500]
    assert after[0].start <= 1700
    assert {part.kind for part in after} == {"trend"}


def test_a_steady_stream_gets_a_new_fit_when_the_known_values_have_doubled() -> None:
    parts = split_into_segments(changing(ROOF, steps=6000))
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
def test_a_shifted_model_has_the_same_future(model: Model) -> None:
    values = np.arange(-40, 60)
    later = shift_model(model, 17, -4)
    assert later.chances(values, 5, Past(3, -6)) == pytest.approx(model.chances(values, 5, Past(20, -6)))
    if isinstance(later, Walk):
        assert later.sample(np.random.default_rng(1), 1)[0] == -4


def test_step_0_of_a_model_is_the_start_of_its_segment() -> None:
    values = changing(ROOF)
    part = split_into_segments(values)[-1]
    assert part.model is not None
    losses = -log_likelihoods(part.model, values[part.start : part.stop], 0)
    assert losses.mean() < 3.0  # that of the true model is 2.6


def test_the_most_common_kind_is_that_of_the_most_steps() -> None:
    parts = [Segment(0, 50), Segment(50, 90, "walk"), Segment(90, 200, "trend"), Segment(200, 260, "walk")]
    assert most_common_kind(parts) == "trend"
