"""Sketches: frequencies of values, estimates of missed pairs, and the Bloom filter."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engines.budgeted import shed_keys
from millpond.engines.budgeted.bloom_filter import BloomFilter, create_bloom_filter
from millpond.engines.budgeted.frequency_sketch import FrequencySketch
from millpond.engines.budgeted.hashing import hash_to_buckets, hash_to_cells
from millpond.engines.budgeted.missed_results import (
    MissedEstimate,
    estimate_from_expectation,
    estimate_from_moments,
)
from millpond.engines.budgeted.shed_keys import SKETCHES, ShedKeys, estimate_pairs
from millpond.engines.budgeted.shed_sample import (
    SAMPLE_COLUMNS,
    SampleMoments,
    choose_by_priority,
    count_matches,
    start_sample,
    thin_sample,
)
from millpond.models.array_types import Ints

integers = st.lists(st.integers(-(2**62), 2**62), max_size=60)


def array(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


# --- missed pairs ------------------------------------------------------------------------------------


def count_pairs(left: Ints, right: Ints) -> int:
    return int((left[:, None] == right[None, :]).sum())


@settings(deadline=None)
@given(st.lists(integers, max_size=4), integers)
def test_pairs_of_few_keys_are_counted_exactly(shed: list[list[int]], came: list[int]) -> None:
    keys = ShedKeys(1)
    for values in shed:
        keys.add(array(values))
    every = array([value for values in shed for value in values])
    came += every.tolist()[::2]
    found = estimate_pairs(keys.count_pairs(array(came)))
    assert found == MissedEstimate(count_pairs(every, array(came)))


def test_the_interval_of_an_equality_join_contains_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are shed and arrive in four batches; the sketches forget nothing and are not biased."""
    monkeypatch.setattr(shed_keys, "EXACT_KEYS", 8)
    monkeypatch.setattr(shed_keys, "COUNTERS", 1 << 10)
    rng = np.random.default_rng(1)
    covered, errors = 0, []
    for _ in range(150):
        keys, shed, pairs, truth = ShedKeys(1), array([]), np.zeros(SKETCHES), 0
        known = rng.integers(-(2**60), 2**60, 60)
        for _ in range(4):
            came, gone = rng.choice(known, 50), rng.choice(known, 80)
            pairs += keys.count_pairs(came)
            truth += count_pairs(shed, came)
            keys.add(gone)
            shed = np.concatenate([shed, gone])
        found = estimate_pairs(pairs)
        low, high = found.limits
        covered += low <= truth <= high
        errors.append((found.value - truth) / truth)
    assert 0.9 <= covered / 150 <= 0.99
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(150) < 0.02


def test_shed_keys_are_restored_from_their_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shed_keys, "EXACT_KEYS", 100)
    keys, again = ShedKeys(1), ShedKeys(1)
    keys.add(np.arange(5000) % 700)
    again.load(keys.save())
    for each in (keys, again):
        each.add(np.arange(300))
    assert (again.count_pairs(np.arange(800)) == keys.count_pairs(np.arange(800))).all()


def test_estimates_add_up() -> None:
    assert MissedEstimate(3, 4, 5) + MissedEstimate(1, 2, 0).scale(3) == MissedEstimate(6, 22, 5)
    assert MissedEstimate(10, 36, 400).limits == (4, 30) and MissedEstimate(1, 36, 4).limits == (0, 3)


def test_the_interval_of_a_count_is_right_from_no_event_on() -> None:
    """A tenth of the events is seen; on average, the interval contains their number in 95 % of cases."""
    rng = np.random.default_rng(3)
    truth = np.repeat(np.arange(20, 400, 10), 200)
    seen = rng.binomial(truth, 0.1)
    limits = [estimate_from_moments(10 * n, 90 * n, 9).limits for n in seen]
    covered = [low <= true <= high for true, (low, high) in zip(truth, limits, strict=True)]
    assert 0.94 <= np.mean(covered) <= 0.965
    low, high = estimate_from_moments(0, 0, 10).limits
    assert low == 0 and 30 < high < 40
    assert estimate_from_moments(7, 0, 0) == MissedEstimate(7) == estimate_from_expectation(7, 0)


def test_priority_sampling_gives_every_item_an_expected_weight_of_one() -> None:
    """In two steps, of which the second thins what the first has kept."""
    rng = np.random.default_rng(2)
    rates = np.linspace(0, 1, 60) ** 3
    total, runs = np.zeros(60), 3000
    for _ in range(runs):
        first, weight = choose_by_priority(np.ones(60), rates, 30, rng)
        kept, weight = choose_by_priority(weight, rates[first], 12, rng)
        assert len(kept) == 12 and (weight >= 1).all()
        total[first[kept]] += weight
    assert abs(total / runs - 1).max() < 0.25 and abs(total.sum() / runs / 60 - 1) < 0.02


def test_the_interval_of_a_sample_contains_the_truth() -> None:
    """Tuples match again and again, some more often than others, while more are shed."""
    rng = np.random.default_rng(4)
    schema = pa.schema([("v", pa.float64()), *SAMPLE_COLUMNS])
    covered, errors = 0, []
    for _ in range(150):
        sample, moments, truth = schema.empty_table(), SampleMoments(), 0.0
        everything = np.empty(0)
        for _ in range(6):
            # A tuple matches as often as its number says, in every other batch twice as often.
            factor = rng.integers(1, 3)
            truth += factor * everything.sum()
            added, sample = count_matches(sample, factor * sample.column("v").to_numpy())
            moments += added
            shed = np.floor(rng.exponential(3, 150))
            everything = np.concatenate([everything, shed])
            sample = pa.concat_tables([sample, start_sample(pa.table({"v": shed}), schema)])
            rates = sample.column("v").to_numpy() + rng.random(sample.num_rows)
            sample = thin_sample(sample, rates, 40, rng)
        found = moments.estimate(10.0)
        low, high = found.limits
        covered += low <= truth <= high
        errors.append((found.value - truth) / truth)
    assert 0.9 <= covered / 150 <= 0.99
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(150) < 0.1


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
    assert (hash_to_buckets(array(values)[::-1], width)[::-1] == found).all()
    for buckets, signs in hash_to_cells(array(values), width, 5, 3):
        assert ((buckets >= 0) & (buckets < width)).all() and set(signs.tolist()) <= {1.0, -1.0}


def test_consecutive_values_are_spread_evenly_over_buckets() -> None:
    counts = np.bincount(hash_to_buckets(np.arange(64_000), 64), minlength=64)
    assert counts.min() > 800 and counts.max() < 1200
    for buckets, signs in hash_to_cells(np.arange(64_000), 64, 9, 2):
        counts = np.bincount(buckets, minlength=64)
        assert counts.min() > 800 and counts.max() < 1200 and abs(signs.mean()) < 0.02
