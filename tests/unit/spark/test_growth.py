"""Growth of state, found in the numbers that Spark reports."""

from __future__ import annotations

import pytest

from millpond.spark.growth import StateHistory, StateSample

LINE = [12 * (batch + 1) for batch in range(30)]
FLAT = [5] * 30
SAWTOOTH = [12, 24, 36, 48, 24, 36, 48, 24, 36, 48] * 3
WARM_UP = [min(12 * (batch + 1), 200) for batch in range(30)]
STEPS = [batch // 5 + 1 for batch in range(30)]


def find_batch(
    rows: list[int],
    predicted: str | None,
    bound: int | None = None,
    sizes: list[float] | None = None,
    watermark: str | None = "moves",
) -> int | None:
    """The batch at which growth is found; ``watermark`` is a time that stands still, "moves" or None."""
    history = StateHistory()
    for batch, count in enumerate(rows):
        moment = f"2024-01-01T00:{batch:02}:00Z" if watermark == "moves" else watermark
        size = sizes[batch] if sizes is not None else 80.0 * count
        history.add(StateSample(batch, (1, count), (80.0, size), moment))
        if history.find_growth(predicted, bound) is not None:
            return batch
    return None


@pytest.mark.parametrize("rows", [LINE, STEPS, WARM_UP])
def test_growth_that_is_predicted_is_found_early(rows: list[int]) -> None:
    found = find_batch(rows, "grows")
    assert found is not None and found < 20


@pytest.mark.parametrize("rows", [FLAT, [7] * 5 + [0] * 25])
def test_predicted_growth_that_does_not_happen_is_not_found(rows: list[int]) -> None:
    assert find_batch(rows, "grows") is None


@pytest.mark.parametrize("rows", [FLAT, SAWTOOTH, WARM_UP, LINE])
def test_a_state_that_is_predicted_flat_is_left_to_its_watermark(rows: list[int]) -> None:
    assert find_batch(rows, "flat") is None
    assert find_batch(rows, "flat", watermark=None) is None


def test_a_watermark_that_stands_still_is_found() -> None:
    assert find_batch(LINE, "flat", watermark="1970-01-01T00:00:00Z") == 19
    assert find_batch(SAWTOOTH, "flat", watermark="1970-01-01T00:00:00Z") is None


def test_bytes_that_grow_in_one_row_are_found() -> None:
    sizes = [100.0 * (batch + 1) for batch in range(30)]
    found = find_batch([1] * 30, "grows", sizes=sizes)
    assert found is not None and found < 20
    assert find_batch([1] * 30, "grows", sizes=[100.0, 101.0] * 15) is None


def test_a_bound_that_is_passed_is_found_at_once() -> None:
    assert find_batch(LINE, "grows", bound=30) == 2
    assert find_batch(FLAT, "flat", bound=3) is None
    assert find_batch(LINE, "flat", bound=30) == 15


@pytest.mark.parametrize("rows", [LINE, SAWTOOTH, FLAT])
def test_without_a_plan_a_moving_watermark_is_trusted(rows: list[int]) -> None:
    assert find_batch(rows, None) is None


def test_without_a_plan_and_a_watermark_growth_is_found() -> None:
    assert find_batch(LINE, None, watermark=None) == 15
    assert find_batch(SAWTOOTH, None, watermark=None) is None


def test_long_runs_are_remembered_in_few_samples() -> None:
    history = StateHistory()
    for batch in range(5_000):
        history.add(StateSample(batch, (batch % 7,), (1.0,), None))
    assert len(history.samples) <= 256
    assert history.find_growth(None, None) is None
    assert history.find_growth("grows", None) is None
    for batch in range(5_000, 50_000):
        history.add(StateSample(batch, (batch - 4_990,), (1.0,), None))
    assert len(history.samples) <= 256
    assert history.find_growth(None, None) is not None


def test_a_batch_that_is_reported_twice_counts_once() -> None:
    history = StateHistory()
    assert history.add(StateSample(0, (1,), (1.0,)))
    assert not history.add(StateSample(0, (1,), (1.0,)))
    assert len(history.samples) == 1
