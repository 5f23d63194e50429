"""Sketches: frequencies of values, estimates of missed pairs, and the Bloom filter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engines.budgeted.bloom_filter import BloomFilter, create_bloom_filter
from millpond.engines.budgeted.frequency_sketch import FrequencySketch
from millpond.engines.budgeted.hashing import hash_to_buckets, hash_to_signs
from millpond.engines.budgeted.missed_results import (
    AmsSketch,
    MissedEstimate,
    choose_replacements,
    count_equal_pairs,
)

integers = st.lists(st.integers(-(2**62), 2**62), max_size=60)


def array(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


# --- missed pairs ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(integers, integers)
def test_equal_pairs_are_counted_exactly(left: list[int], right: list[int]) -> None:
    right = right + left[:5]
    assert count_equal_pairs(array(left), array(right)) == sum(a == b for a in left for b in right)


def test_the_ams_estimate_is_unbiased_and_its_variance_is_right() -> None:
    """Over many sets of values, the mean error is zero and its spread is the estimated deviation."""
    rng = np.random.default_rng(1)
    errors, deviations = [], []
    for _ in range(300):
        keys = rng.integers(-(2**60), 2**60, 400)
        gone, came = rng.choice(keys, 3000), rng.choice(keys, 500)
        sketch = AmsSketch(256)
        sketch.add(gone)
        found = sketch.estimate_pairs(came)
        errors.append(found.value - count_equal_pairs(gone, came))
        deviations.append(found.variance**0.5)
    spread = float(np.std(errors))
    assert abs(np.mean(errors)) < 3 * spread / np.sqrt(len(errors))
    assert 0.6 < spread / float(np.mean(deviations)) < 1.4


def test_few_values_in_many_counters_are_estimated_exactly() -> None:
    sketch = AmsSketch(1 << 16)
    sketch.add(np.repeat(np.arange(20), 7))
    assert sketch.estimate_pairs(np.arange(10)).value == 70


def test_an_ams_sketch_is_restored_from_its_state() -> None:
    sketch, again = AmsSketch(1024), AmsSketch(1024)
    sketch.add(np.arange(5000))
    again.load(sketch.save())
    assert again.estimate_pairs(np.arange(100)) == sketch.estimate_pairs(np.arange(100))


def test_estimates_add_up() -> None:
    assert MissedEstimate(3, 4) + MissedEstimate(1, 2).scale(3) == MissedEstimate(6, 22)


def test_reservoir_sampling_is_uniform() -> None:
    """A reservoir of 20 gets 100 items in three lots."""
    rng = np.random.default_rng(2)
    hits = np.zeros(100)
    for _ in range(4000):
        sample = np.empty(0, np.int64)
        seen = 0
        for lot in (np.arange(7), np.arange(7, 40), np.arange(40, 100)):
            places, chosen = choose_replacements(rng, 20, seen, len(sample), len(lot))
            grown = np.zeros(min(20, seen + len(lot)), np.int64)
            grown[: len(sample)] = sample
            grown[places] = lot[chosen]
            sample, seen = grown, seen + len(lot)
        assert len(sample) == 20 == len(set(sample.tolist()))
        hits[sample] += 1
    assert abs(hits / 4000 - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 4000)


# --- Bloom filter ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(integers)
def test_a_bloom_filter_has_no_false_negatives(values: list[int]) -> None:
    seen = BloomFilter(1 << 12)
    seen.add(array(values))
    assert seen.contains(array(values)).all()


def test_a_bloom_filter_knows_its_false_positive_rate() -> None:
    rng = np.random.default_rng(3)
    seen = BloomFilter(1 << 14)
    seen.add(rng.integers(0, 2**60, 4000))
    mistaken = seen.contains(rng.integers(2**61, 2**62, 20_000)).mean()
    assert mistaken == pytest.approx(seen.false_positive_rate, rel=0.1)
    assert seen.false_positive_rate > 0.05


def test_a_bloom_filter_is_restored_from_its_state() -> None:
    seen = create_bloom_filter(10, 1)
    seen.add(np.arange(1000))
    again = create_bloom_filter(10, 1)
    again.load(seen.save())
    values = np.arange(100_000)
    assert (
        again.contains(values) == seen.contains(values)
    ).all() and again.false_positive_rate == seen.false_positive_rate
    empty = create_bloom_filter(10, 1)
    empty.load(b"")
    assert not empty.contains(values).any()


# --- frequencies -------------------------------------------------------------------------------------


def test_relative_frequencies_of_few_values_are_exact() -> None:
    counts = FrequencySketch(1 << 16, None)
    counts.observe(np.repeat(np.array([5, -9, 12345]), [70, 20, 10]))
    assert counts.relative_frequencies(np.array([5, -9, 12345, 77])) == pytest.approx([0.7, 0.2, 0.1, 0.0])


def test_frequencies_of_old_values_decay() -> None:
    counts = FrequencySketch(1 << 12, horizon=1000)
    counts.observe(np.full(1000, 1))
    for _ in range(5):
        counts.observe(np.full(1000, 2))
    one, two = counts.relative_frequencies(np.array([1, 2]))
    assert one < 0.01 and two > 0.9


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 16), integers)
def test_buckets_and_signs_depend_only_on_the_value(bits: int, values: list[int]) -> None:
    width = 1 << bits
    found = hash_to_buckets(array(values), width)
    assert ((found >= 0) & (found < width)).all()
    assert set(hash_to_signs(array(values)).tolist()) <= {1.0, -1.0}
    assert (hash_to_buckets(array(values)[::-1], width)[::-1] == found).all()


def test_consecutive_values_are_spread_evenly_over_buckets() -> None:
    counts = np.bincount(hash_to_buckets(np.arange(64_000), 64), minlength=64)
    assert counts.min() > 800 and counts.max() < 1200
    assert abs(hash_to_signs(np.arange(64_000)).mean()) < 0.02
