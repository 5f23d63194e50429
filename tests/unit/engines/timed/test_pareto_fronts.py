"""Pareto fronts over time against their definition: a front accepts a partner if any row of its key does."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from millpond.engines.timed import pareto_fronts
from millpond.engines.timed.pareto_fronts import ALWAYS, NEVER, FrontHistory, build_front_history
from millpond.errors import MillpondError
from millpond.plan.synopses import count_alternatives

Ints = NDArray[np.int64]
# Key, time, requirements on each partner, values that partners must differ from.
Row = tuple[int, int, tuple[int, ...], tuple[int, ...]]
SETTINGS = settings(derandomize=True, max_examples=150, deadline=None)
DOMAIN = range(3)


@st.composite
def rows(draw: st.DrawFn, keys: int = 2, most: int = 14) -> list[Row]:
    """Rows sorted by key and time, all with the same number of requirements and differing values."""
    width, differing = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    values = st.integers(0, len(DOMAIN) - 1)
    row = st.tuples(
        st.integers(0, keys - 1),
        st.sampled_from([int(ALWAYS), 0, 1, 2, 3, 4, 5]),
        st.tuples(*[values] * width),
        st.tuples(*[values] * differing),
    )
    return sorted(draw(st.lists(row, max_size=most)), key=lambda r: r[:2])


def found(table: list[Row]) -> FrontHistory:
    def matrix(column: int) -> Ints:
        width = len(table[0][column]) if table else 0  # type: ignore[arg-type]
        return np.array([r[column] for r in table], dtype=np.int64).reshape(len(table), width)

    keys, times = (np.array([r[c] for r in table], dtype=np.int64) for c in (0, 1))
    return build_front_history(keys, times, matrix(2), matrix(3))


def accepts(row: Row, offered: tuple[int, ...], values: tuple[int, ...]) -> bool:
    """The row accepts a partner: its values satisfy the requirements, and differ where they must."""
    enough = all(required <= offer for required, offer in zip(row[2], offered, strict=True))
    return enough and all(mine != theirs for mine, theirs in zip(row[3], values, strict=True))


def alive(past: FrontHistory, table: list[Row], key: int, time: int) -> list[Row]:
    """What a row that arrives at a time finds: earlier entries that are not yet replaced."""
    return [
        table[row]
        for row, since, until in zip(past.rows, past.since, past.until, strict=True)
        if table[row][0] == key and since < time <= until
    ]


def assert_serves_as_all_rows_do(table: list[Row]) -> None:
    past = found(table)
    width, differing = (len(table[0][2]), len(table[0][3])) if table else (0, 0)
    partners = list(product(product(DOMAIN, repeat=width), product([*DOMAIN, -1], repeat=differing)))
    for key in {r[0] for r in table}:
        for time in (0, 1, 2, 3, 4, 5, 6, int(NEVER)):
            left = alive(past, table, key, time)
            earlier = [r for r in table if r[0] == key and r[1] < time]
            for offered, values in partners:
                served = any(accepts(r, offered, values) for r in earlier)
                assert any(accepts(r, offered, values) for r in left) == served, (
                    key,
                    time,
                    offered,
                    values,
                )


@pytest.mark.campaign
@SETTINGS
@given(rows())
@example([(0, 0, (), (0, 0)), (0, 1, (), (0, 1)), (0, 2, (), (1, 0)), (0, 3, (), (1, 1)), (0, 4, (), (2, 2))])
@example([(0, 1, (1, 1), (0,)), (0, 1, (0, 2), (0,)), (0, 2, (0, 0), (0,)), (0, 3, (0, 0), (1,))])
def test_the_front_accepts_a_partner_if_any_row_does(table: list[Row]) -> None:
    assert_serves_as_all_rows_do(table)


@pytest.mark.campaign
@SETTINGS
@given(rows(most=12), st.integers(1, 4))
def test_the_number_of_rows_compared_at_once_does_not_matter(table: list[Row], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pareto_fronts, "_SLICE", size)
        assert_serves_as_all_rows_do(table)


@SETTINGS
@given(rows(keys=3, most=20))
def test_a_place_has_one_entry_at_a_time(table: list[Row]) -> None:
    past = found(table)
    assert (past.until > past.since).all()
    spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row, since, until, place in zip(past.rows, past.since, past.until, past.places, strict=True):
        assert since == table[row][1]
        spans.setdefault((table[row][0], int(place)), []).append((int(since), int(until)))
    for entries in spans.values():
        entries.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(entries))


@SETTINGS
@given(rows(keys=3, most=20))
def test_no_row_of_the_front_dominates_another(table: list[Row]) -> None:
    """Among rows with the same values to differ from."""
    past = found(table)
    for key in {r[0] for r in table}:
        left = alive(past, table, key, int(NEVER))
        for i, mine in enumerate(left):
            for j, other in enumerate(left):
                no_more = all(a <= b for a, b in zip(other[2], mine[2], strict=True))
                assert i == j or not (no_more and other[3] == mine[3])


@SETTINGS
@given(st.integers(0, 3), st.data())
def test_differing_values_keep_few_rows(width: int, data: st.DataObject) -> None:
    values = st.tuples(*[st.integers(0, 4)] * width)
    table: list[Row] = [
        (0, i, (), v) for i, v in enumerate(data.draw(st.lists(values, min_size=1, max_size=40)))
    ]
    past = found(table)
    for time in range(len(table) + 1):
        assert len(alive(past, table, 0, time)) <= count_alternatives(width)


def test_a_row_with_a_weaker_requirement_replaces_the_one_before() -> None:
    past = found([(0, 1, (5,), ()), (0, 2, (7,), ()), (0, 3, (4,), ()), (0, 3, (3,), ()), (1, 2, (9,), ())])
    assert past.rows.tolist() == [0, 3, 4]
    assert past.since.tolist() == [1, 3, 2]
    assert past.until.tolist() == [3, NEVER, NEVER]
    assert past.places.tolist() == [0, 0, 0]


def test_without_requirements_the_first_row_stays() -> None:
    past = found([(0, 1, (), ()), (0, 2, (), ()), (2, int(ALWAYS), (), ()), (2, 1, (), ())])
    assert past.rows.tolist() == [0, 2]
    assert past.until.tolist() == [NEVER, NEVER]


def test_a_front_may_have_several_rows() -> None:
    past = found([(0, 1, (1, 3), ()), (0, 2, (3, 1), ()), (0, 3, (2, 2), ()), (0, 4, (1, 2), ())])
    ended = dict(zip(past.rows.tolist(), past.until.tolist(), strict=True))
    assert ended == {0: 4, 1: NEVER, 2: 4, 3: NEVER}
    assert len(set(past.places.tolist()[:3])) == 3


def test_no_rows_have_no_fronts() -> None:
    for width, differing in ((0, 0), (1, 0), (2, 0), (0, 1), (2, 2)):
        nothing = np.zeros(0, np.int64)
        past = build_front_history(
            nothing, nothing, np.zeros((0, width), np.int64), np.zeros((0, differing), np.int64)
        )
        assert not len(past.rows) and not len(past.places)


def test_a_key_may_have_many_rows() -> None:
    """More than are compared at once, and the rows of the front are spread over them."""
    rng = np.random.default_rng(0)
    requirements = rng.integers(0, 50, (2_000, 2))
    requirements[1_999] = -1
    keys, times = np.zeros(2_000, np.int64), np.arange(2_000)
    past = build_front_history(keys, times, requirements, np.zeros((2_000, 0), np.int64))
    for time in (1, 511, 513, 1_024, 1_500, 1_999):
        now = requirements[past.rows[(past.since < time) & (past.until >= time)]]
        seen = requirements[:time]
        easier = np.asarray((now[None, :, :] <= seen[:, None, :]).all(axis=2))
        assert np.asarray(easier.any(axis=1)).all()
        assert len(now) == len(np.unique(now, axis=0)) <= 50
    assert past.rows[past.until == NEVER].tolist() == [1_999]


def test_a_front_that_grows_without_bound_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pareto_fronts, "MAX_FRONT", 3)
    table: list[Row] = [(0, i, (i, -i), ()) for i in range(5)]
    assert len(found(table[:3]).rows) == 3
    with pytest.raises(MillpondError, match="Pareto front has more than"):
        found(table)
