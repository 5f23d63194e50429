"""The budget is divided among the shards without remainder, and most of it goes where keys match."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engines.budgeted.shard_budgets import ShardBudgets, sample_keys, sampling_interval
from millpond.models.array_types import Floats, Ints


def unscored(leaf: int, values: Ints) -> Floats | None:
    return None


@settings(deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 9), st.lists(st.integers(0, 10**6), max_size=50))
def test_the_budgets_of_the_shards_add_up(memory: int, shards: int, keys: list[int]) -> None:
    budgets = ShardBudgets(memory, shards, 2)
    assert budgets.tuples.sum() == memory and np.ptp(budgets.tuples) <= 1
    values = np.array(keys, np.int64)
    budgets.observe(
        [(0, sample_keys(values, values % shards, 1)), (1, sample_keys(values, values % shards, 1))], 100
    )
    budgets.rebalance(unscored)
    assert budgets.tuples.sum() == memory and (budgets.tuples >= 0).all()


def test_a_shard_whose_keys_match_gets_more() -> None:
    """Keys of shard 0 arrive on both sides, those of the other shards on one side only."""
    budgets = ShardBudgets(1000, 4, 2)
    for _ in range(8):
        left, right = np.arange(4000), np.arange(0, 4000, 4)
        samples = [(i, sample_keys(keys, keys % 4, 1000)) for i, keys in enumerate((left, right))]
        budgets.observe(samples, 5000)
        budgets.rebalance(unscored)
    tuples = budgets.tuples
    assert tuples[0] > 700 and tuples.sum() == 1000 and (tuples[1:] >= 60).all()


def test_scores_of_a_model_take_precedence_over_frequencies() -> None:
    budgets = ShardBudgets(100, 2, 2)
    keys = np.arange(1000)
    budgets.observe([(0, sample_keys(keys, keys % 2, 100)), (1, sample_keys(keys, keys % 2, 100))], 2000)
    for _ in range(6):
        budgets.rebalance(lambda leaf, values: (values % 2).astype(float))
    assert budgets.tuples[1] > 80


def test_a_key_is_always_or_never_sampled() -> None:
    """About one in ``sampling_interval`` keys is in the sample, with all of its tuples."""
    keys = np.arange(100_000)
    assert sampling_interval(100) == 1 and sampling_interval(1 << 20) == 256
    found = sample_keys(np.concatenate([keys, keys]), np.zeros(200_000, np.int64), 1 << 16)
    assert set(found.column("count").to_pylist()) == {2}
    assert 100_000 / 16 * 0.9 < found.num_rows < 100_000 / 16 * 1.1


def test_a_restarted_shard_computes_the_same_budgets() -> None:
    one, other = ShardBudgets(5000, 3, 2), ShardBudgets(5000, 3, 2)
    rng = np.random.default_rng(0)
    for _ in range(5):
        keys = rng.zipf(1.3, 3000) % 10_000
        samples = [(i, sample_keys(keys[i::2], keys[i::2] % 3, 5000)) for i in (0, 1)]
        for budgets in (one, other):
            budgets.observe(samples, 3000)
            budgets.rebalance(unscored)
        again = ShardBudgets(5000, 3, 2)
        again.load(other.save())
        other = again
        assert (one.tuples == other.tuples).all()
