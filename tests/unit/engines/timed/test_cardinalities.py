"""Counting the different values of columns from the smallest of their hashes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.engines.timed.cardinalities import (
    Hashes,
    decode_hashes,
    encode_hashes,
    estimate_values,
    merge_hashes,
    take_hashes,
)

USER = ("visits", "user")


def _hash(values: range) -> Hashes:
    rng = np.random.default_rng(0)
    hashes = rng.integers(-(2**63), 2**63, 1_000_000, dtype=np.int64)  # the hash of each value
    return take_hashes(USER, pa.array(hashes[values.start : values.stop]))


@pytest.mark.parametrize("count", [0, 1, 4000])
def test_few_values_are_counted_exactly(count: int) -> None:
    assert estimate_values(_hash(range(count))) == {USER: count}
    assert estimate_values(merge_hashes([_hash(range(count)), _hash(range(count // 2, count))])) == {
        USER: count
    }


@pytest.mark.parametrize("count", [20_000, 1_000_000])
def test_many_values_are_estimated(count: int) -> None:
    (estimate,) = estimate_values(_hash(range(count))).values()
    assert estimate == pytest.approx(count, rel=0.06)


def test_hashes_of_parts_are_those_of_the_whole() -> None:
    whole = _hash(range(30_000))
    parts = [_hash(range(start, min(start + 9_000, 30_000))) for start in range(0, 30_000, 6_000)]
    merged = merge_hashes(decode_hashes(encode_hashes(each, b"f" * 16), b"f" * 16) for each in parts)
    assert (merged[USER] == whole[USER]).all() and merged.keys() == whole.keys()


def test_null_is_no_value() -> None:
    assert estimate_values(take_hashes(USER, pa.array([None, 5, 5, None], pa.int64()))) == {USER: 1}
