"""The closure against brute force: every assignment of a box that is large enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from millpond.query.closure import Closure, Difference, Disequality, Node
from millpond.query.expressions import Ref
from millpond.query.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TINYINT, SqlType, decimal

SETTINGS = settings(derandomize=True, max_examples=60, deadline=None)
MONEY = decimal(10, 2)
A, B, C, D = (Ref("S", name) for name in "ABCD")
COLUMNS = (A, B, C, D)
ZERO = Fraction(0)


def less(left: Ref | None, right: Ref | None, by: int | Fraction = 0) -> Difference:
    """left - right < by"""
    return Difference(left, right, Fraction(by), strict=True)


def at_most(left: Ref | None, right: Ref | None, by: int | Fraction = 0) -> Difference:
    """left - right <= by"""
    return Difference(left, right, Fraction(by))


def above(ref: Ref, value: int | Fraction) -> Difference:
    return less(None, ref, -value)


def at_least(ref: Ref, value: int | Fraction) -> Difference:
    return at_most(None, ref, -value)


def equal(left: Ref, right: Ref | None, by: int | Fraction = 0) -> list[Difference]:
    return [at_most(left, right, by), at_most(right, left, -by)]


def closed(
    facts: Sequence[Difference], apart: Sequence[Disequality] = (), **types: SqlType
) -> tuple[Closure, tuple[Ref, ...]]:
    """The closure over the columns named, and their references in order."""
    names = tuple(Ref("S", name) for name in types)
    return Closure.of([Node(r, t) for r, t in zip(names, types.values(), strict=True)], facts, apart), names


def bound_of(closure: Closure, left: Ref | None, right: Ref | None) -> Any:
    return closure.bound(left, right)


def ends_of(closure: Closure, ref: Ref) -> tuple[Any, Any]:
    r = closure.range(ref)
    return r.low, r.high


# --- brute force --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class System:
    """Facts over the first ``len(units)`` columns; a column takes multiples of its unit, out to ``reach``."""

    units: tuple[int, ...]  # the grid has ``scale`` points in 1; a column uses every ``units``-th of them
    scale: int
    reach: int
    facts: tuple[Difference, ...]
    apart: tuple[Disequality, ...] = ()

    @property
    def refs(self) -> tuple[Ref, ...]:
        return COLUMNS[: len(self.units)]

    def solutions(self) -> NDArray[np.int16]:
        """Every solution of the box, one a row, in points of the grid."""
        points = _box(self.units, self.scale * self.reach)
        keep = np.ones(len(points), dtype=bool)
        for fact in self.facts:
            gap, bound = self.gap(points, fact.left, fact.right), fact.bound * self.scale
            assert bound.denominator == 1
            keep &= gap < int(bound) if fact.strict else gap <= int(bound)
        for other in self.apart:
            value = other.value * self.scale
            assert value.denominator == 1
            keep &= self.gap(points, other.left, other.right) != int(value)
        return points[keep]

    def gap(self, points: NDArray[np.int16], left: Ref | None, right: Ref | None) -> NDArray[np.int16]:
        return self._column(points, left) - self._column(points, right)

    def _column(self, points: NDArray[np.int16], ref: Ref | None) -> NDArray[np.int16]:
        return points[:, COLUMNS.index(ref)] if ref is not None else np.zeros(len(points), dtype=np.int16)

    def closure(self, types: Sequence[SqlType]) -> Closure:
        nodes = [Node(r, t) for r, t in zip(self.refs, types, strict=True)]
        return Closure.of(nodes, self.facts, self.apart)

    def ends(self) -> list[tuple[Ref | None, Ref | None]]:
        return [(x, y) for x, y in product((*self.refs, None), repeat=2) if x != y]

    def greatest(self, points: NDArray[np.int16], left: Ref | None, right: Ref | None) -> Fraction:
        return Fraction(int(self.gap(points, left, right).max()), self.scale)


@lru_cache(maxsize=16)
def _box(units: tuple[int, ...], reach: int) -> NDArray[np.int16]:
    axes = [np.arange(-(reach // unit) * unit, reach + 1, unit, dtype=np.int16) for unit in units]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


# For each number of columns the largest constant L and a reach: a bound that is finite is at most n * L
# and every simple path stays within it, so that what exceeds it is unbounded.
_SIZES = {2: (3, 14), 3: (2, 14), 4: (1, 9)}


@st.composite
def systems(
    draw: st.DrawFn,
    *,
    columns: Sequence[int] = (2, 3, 4),
    disequalities: bool = False,
    scale: int = 1,
    stepped: Callable[[int], Sequence[bool]] | None = None,
    sizes: dict[int, tuple[int, int]] | None = None,
) -> System:
    """A random system; a column that is not stepped takes any point of the grid, others whole numbers."""
    n = draw(st.sampled_from(list(columns)))
    largest, reach = (sizes or _SIZES)[n]
    ends: list[Ref | None] = [*COLUMNS[:n], None]
    pairs = st.tuples(st.sampled_from(ends), st.sampled_from(ends)).filter(lambda p: p[0] != p[1])
    constants = st.integers(-largest, largest).map(Fraction)
    # Over integers < c is <= c - 1, and it is that which must not be larger.
    spare = int(scale == 1)
    facts = draw(
        st.lists(
            st.builds(
                lambda p, b, s: Difference(p[0], p[1], b + s * spare, s), pairs, constants, st.booleans()
            ),
            min_size=1,
            max_size=2 * n,
        )
    )
    apart: list[Disequality] = []
    if disequalities:
        mine = st.tuples(st.sampled_from(COLUMNS[:n]), st.sampled_from(ends)).filter(lambda p: p[0] != p[1])
        apart = draw(
            st.lists(
                st.builds(lambda p, v: Disequality(p[0], p[1], v), mine, constants), min_size=1, max_size=4
            )
        )
    whole = draw(st.tuples(*[st.booleans()] * n)) if stepped is None else tuple(stepped(n))
    units = tuple(scale if w else 1 for w in whole)
    return System(units, scale, reach, tuple(facts), tuple(apart))


def integers(n: int) -> list[bool]:
    return [True] * n


def dense(n: int) -> list[bool]:
    return [False] * n


def types_of(system: System) -> list[SqlType]:
    return [INT if unit == system.scale else DOUBLE for unit in system.units]


def assert_sound(system: System, closure: Closure, points: NDArray[np.int16]) -> None:
    """No solution breaks what the closure says; in particular none exists where it sees a contradiction."""
    if not closure.satisfiable:
        assert not len(points)
        return
    if not len(points):
        return
    for left, right in system.ends():
        bound = closure.bound(left, right)
        if bound is not None:
            most = system.greatest(points, left, right)
            assert most < bound[0] if bound[1] else most <= bound[0], (left, right)


# --- integers: exact ----------------------------------------------------------------------------------


@SETTINGS
@given(systems(stepped=integers))
def test_integer_systems_are_closed_exactly(system: System) -> None:
    closure, points = system.closure(types_of(system)), system.solutions()
    assert closure.satisfiable == bool(len(points))
    assume(closure.satisfiable)
    n = len(system.refs)
    finite = n * _SIZES[n][0]
    for left, right in system.ends():
        bound, most = closure.bound(left, right), system.greatest(points, left, right)
        assert bound == (most, False) if bound is not None else most > finite


@SETTINGS
@given(systems(stepped=integers))
def test_integer_answers_mean_what_they_say(system: System) -> None:
    closure, points = system.closure(types_of(system)), system.solutions()
    assume(closure.satisfiable)
    n = len(system.refs)
    finite = n * _SIZES[n][0]
    for i, x in enumerate(system.refs):
        high, low = system.greatest(points, x, None), -system.greatest(points, None, x)
        r = closure.range(x)
        assert closure.unbounded_above[i] == (high > finite) == (r.high is None)
        assert closure.unbounded_below[i] == (low < -finite) == (r.low is None)
        assert closure.bounded[i] == closure.is_bounded(x) == (-finite <= low and high <= finite)
        assert closure.pinned[i] == (low == high)
        assert (r.low_strict, r.high_strict) == (False, False)
        for j, y in enumerate(system.refs):
            most, least = system.greatest(points, x, y), -system.greatest(points, y, x)
            assert closure.finite[i, j] == (most <= finite)
            assert closure.below[i, j] == closure.finite[i, j]
            assert closure.fixed[i, j] == closure.has_fixed_difference(x, y) == (most == least)
            apart_by_constants = (
                closure.finite[i, j]
                and not closure.unbounded_above[i]
                and not closure.unbounded_below[j]
                and high + system.greatest(points, None, y) == most
            )
            assert closure.by_constants[i, j] == apart_by_constants
            for k, z in enumerate(system.refs):
                via = system.greatest(points, x, z) + system.greatest(points, z, y)
                through = closure.finite[i, k] and closure.finite[k, j] and via == most
                assert closure.through(k)[i, j] == through


@SETTINGS
@given(systems(columns=(2, 3), stepped=integers, disequalities=True))
def test_disequalities_tighten_soundly(system: System) -> None:
    closure, points = system.closure(types_of(system)), system.solutions()
    assert_sound(system, closure, points)
    plain = Closure.of(closure.nodes, system.facts)
    if not closure.satisfiable:
        return
    refused: set[tuple[Ref | None, Ref | None, Fraction]] = {(d.left, d.right, d.value) for d in system.apart}
    refused |= {(d.right, d.left, -d.value) for d in system.apart}
    for left, right in system.ends():
        bound, before = closure.bound(left, right), plain.bound(left, right)
        if bound is None:
            assert before is None
            continue
        assert before is not None and bound <= before
        # Nothing is left to tighten: the extreme value itself is not one that is refused.
        assert (left, right, bound[0]) not in refused


@pytest.mark.parametrize("type_", [INT, DATE, MONEY, BIGINT], ids=str)
def test_at_most_and_unequal_is_below(type_: SqlType) -> None:
    closure, (a, b, c) = closed(
        [at_most(A, B), at_most(B, C)], [Disequality(B, A, ZERO)], A=type_, B=type_, C=type_
    )
    assert bound_of(closure, a, b) == (-type_.step, False)
    assert bound_of(closure, b, c) == (ZERO, False)
    assert bound_of(closure, a, c) == (-type_.step, False)


def test_a_finer_column_elsewhere_does_not_loosen_it() -> None:
    closure, (a, b, _) = closed([at_most(A, B)], [Disequality(A, B, ZERO)], A=INT, B=INT, C=MONEY)
    assert bound_of(closure, a, b) == (-1, False)


def test_disequalities_tighten_one_after_the_other() -> None:
    apart = [Disequality(A, None, Fraction(v)) for v in (2, 0, 1)]
    closure, (a,) = closed([at_least(A, 0), at_most(A, None, 4)], apart, A=INT)
    assert ends_of(closure, a) == (3, 4)
    none_left, _ = closed([at_least(A, 0), at_most(A, None, 2)], apart, A=INT)
    assert not none_left.satisfiable


def test_a_disequality_inside_changes_nothing() -> None:
    closure, (a,) = closed([at_least(A, 0), at_most(A, None, 4)], [Disequality(A, None, Fraction(2))], A=INT)
    assert ends_of(closure, a) == (0, 4)


def test_dense_at_most_and_unequal_is_below() -> None:
    closure, (a, b, c) = closed(
        [at_most(A, B), at_most(B, C)], [Disequality(A, B, ZERO)], A=DOUBLE, B=DOUBLE, C=DOUBLE
    )
    assert bound_of(closure, a, b) == (ZERO, True)
    assert bound_of(closure, b, c) == (ZERO, False)
    assert bound_of(closure, a, c) == (ZERO, True)
    contradiction, _ = closed(equal(A, B), [Disequality(B, A, ZERO)], A=DOUBLE, B=DOUBLE)
    assert not contradiction.satisfiable


# --- the examples of theory.md 1 ----------------------------------------------------------------------


def test_the_squeeze_of_one_column() -> None:
    closure, (a,) = closed([above(A, 10), less(A, None, 12)], A=INT)
    assert closure.pinned.tolist() == [True]
    assert closure.range(a).low == closure.range(a).high == 11
    wider, (a,) = closed([above(A, 10), less(A, None, 12)], A=DOUBLE)
    assert not wider.pinned[0] and not wider.bounded[0]
    assert ends_of(wider, a) == (10, 12)
    assert wider.range(a).low_strict and wider.range(a).high_strict


def test_the_squeeze_of_two_columns() -> None:
    facts = [above(A, 10), less(A, B), less(B, None, 13)]
    closure, (a, b) = closed(facts, A=INT, B=INT)
    assert [closure.range(x).low for x in (a, b)] == [closure.range(x).high for x in (a, b)] == [11, 12]
    assert closure.has_fixed_difference(a, b)
    assert bound_of(closure, b, a) == (1, False)
    too_narrow, _ = closed([above(A, 10), less(A, B), less(B, None, 12)], A=INT, B=INT)
    assert not too_narrow.satisfiable
    assert closed([above(A, 10), less(A, B), less(B, None, 12)], A=DOUBLE, B=DOUBLE)[0].satisfiable
    assert closed([above(A, 10), less(A, B), less(B, None, 12)], A=MONEY, B=MONEY)[0].satisfiable


def test_bounds_travel_through_joins() -> None:
    closure, (a, d) = closed([less(D, A), above(D, 10), less(A, None, 20)], A=INT, D=INT)
    assert ends_of(closure, d) == (11, 18)
    assert ends_of(closure, a) == (12, 19)


def test_an_offset_join() -> None:
    closure, (a, b) = closed([less(A, B, 5)], A=INT, B=INT)  # A < B + 5
    assert bound_of(closure, a, b) == (4, False)
    assert closure.bound(b, a) is None


# --- dense columns ------------------------------------------------------------------------------------

# A strict fact needs room of one point of the grid; a cycle has no more facts than there are points in 1.
_DENSE_SIZES = {2: (2, 9), 3: (1, 7)}


@SETTINGS
@given(systems(columns=(2, 3), scale=4, stepped=dense, sizes=_DENSE_SIZES))
def test_dense_systems_are_closed_exactly(system: System) -> None:
    closure, points = system.closure(types_of(system)), system.solutions()
    assert closure.satisfiable == bool(len(points))
    assert_sound(system, closure, points)
    assume(closure.satisfiable)
    n = len(system.refs)
    finite = n * _DENSE_SIZES[n][0]
    for left, right in system.ends():
        bound, most = closure.bound(left, right), system.greatest(points, left, right)
        if bound is None:
            assert most > finite
        else:  # the bound is the least one: reached, or come as near as strict facts let one on this grid
            assert bound[0] - 1 < most < bound[0] if bound[1] else most == bound[0]
    for i, x in enumerate(system.refs):
        value = {int(v) for v in points[:, i]}
        assert closure.pinned[i] == closure.bounded[i] == (len(value) == 1)
        for j, y in enumerate(system.refs):
            gaps = {int(v) for v in system.gap(points, x, y)}
            assert closure.fixed[i, j] == (len(gaps) == 1)
            assert closure.below[i, j] == (max(gaps) <= 0)


@SETTINGS
@given(systems(columns=(2, 3), scale=4, sizes=_DENSE_SIZES, disequalities=True))
def test_mixed_systems_are_sound(system: System) -> None:
    assert_sound(system, system.closure(types_of(system)), system.solutions())


def test_whole_numbers_between_dense_columns_are_rounded() -> None:
    # A <= x < 3 for an INT A and a DOUBLE x makes A <= 2; two INTs around an x are whole numbers apart.
    closure, (a, x) = closed([at_most(A, B), less(B, None, 3)], A=INT, B=DOUBLE)
    assert closure.range(a).high == 2
    assert ends_of(closure, x)[1] == 3 and closure.range(x).high_strict
    closure, (a, x, c) = closed([less(A, B), less(B, C)], A=INT, B=DOUBLE, C=INT)
    assert bound_of(closure, a, c) == (-1, False)
    assert bound_of(closure, a, x) == (ZERO, True)
    half = Fraction(1, 2)
    empty, _ = closed([at_least(B, half), at_most(B, A), at_most(A, None, half)], A=INT, B=DOUBLE)
    assert not empty.satisfiable


def test_dense_columns_are_below_only_without_an_offset() -> None:
    closure, _ = closed([at_most(A, B, 1), at_most(C, D)], A=DOUBLE, B=DOUBLE, C=DOUBLE, D=DOUBLE)
    assert closure.finite[0, 1] and not closure.below[0, 1]
    assert closure.finite[2, 3] and closure.below[2, 3] and not closure.below[3, 2]
    mixed, _ = closed([at_most(A, B, 1)], A=INT, B=DOUBLE)
    assert mixed.below[0, 1]


def test_an_equality_pins_a_dense_column_through_others() -> None:
    closure, (a, b) = closed([*equal(A, B, 1), *equal(B, None, Fraction(1, 3))], A=DOUBLE, B=DOUBLE)
    assert closure.bounded.tolist() == [True, True]
    assert closure.range(a).low == Fraction(4, 3)
    assert closure.has_fixed_difference(b, a)


# --- decimals, large numbers, families ----------------------------------------------------------------


@SETTINGS
@given(st.data())
def test_decimals_beside_integers_are_sound(data: st.DataObject) -> None:
    """A is INT, B is DECIMAL(10,2); constants are on, between and beside both grids."""
    constants = st.integers(-12, 12).map(lambda k: Fraction(k, 8))
    pairs: list[tuple[Ref | None, Ref | None]] = [(A, B), (B, A), (A, None), (None, A), (B, None), (None, B)]
    fact = st.builds(
        lambda p, c, s: Difference(p[0], p[1], c, s), st.sampled_from(pairs), constants, st.booleans()
    )
    facts = data.draw(st.lists(fact, min_size=1, max_size=5))
    system = System((200, 2), 200, 5, tuple(facts))  # points of 1/200: eighths lie on it, cents are every 2nd
    closure, points = system.closure([INT, MONEY]), system.solutions()
    assert_sound(system, closure, points)
    if len(facts) == 1 and len(points):  # a single fact is rounded to the finer of its two grids, no further
        [only] = facts
        bound = closure.bound(only.left, only.right)
        assert bound == (system.greatest(points, only.left, only.right), False)


def test_decimals_are_counted_in_cents() -> None:
    cent = Fraction(1, 100)
    closure, (a, m) = closed([less(B, A), above(B, Fraction(5, 8)), less(A, None, 2)], A=INT, B=MONEY)
    assert closure.range(m).low == 63 * cent
    assert closure.range(m).high == 1 - cent
    assert closure.range(a).high == 1
    assert bound_of(closure, m, a) == (-cent, False)


@pytest.mark.parametrize("far", [2**62, 2**62 - 1, 2**63 - 2])
def test_large_numbers_are_exact(far: int) -> None:
    closure, (a, b, c) = closed(
        [at_least(A, far), less(A, B), less(B, C), at_most(C, None, far + 2)], A=BIGINT, B=BIGINT, C=BIGINT
    )
    assert closure.satisfiable
    assert closure.pinned.tolist() == [True, True, True]
    assert [closure.range(x).low for x in (a, b, c)] == [far, far + 1, far + 2]
    assert closure.solve({}) == {a: Fraction(far), b: Fraction(far + 1), c: Fraction(far + 2)}
    beyond, _ = closed(
        [at_least(A, far), less(A, B), less(B, C), at_most(C, None, far + 1)], A=BIGINT, B=BIGINT, C=BIGINT
    )
    assert not beyond.satisfiable


def test_large_numbers_beside_dense_columns_are_exact() -> None:
    far = 2**62 + 1
    closure, (a, x) = closed([less(A, B), less(B, None, far)], A=BIGINT, B=DOUBLE)
    assert closure.range(a).high == far - 1
    assert ends_of(closure, x)[1] == far and closure.range(x).high_strict
    apart = Disequality(A, None, Fraction(far - 1))
    tightened, (a, _) = closed([less(A, B), less(B, None, far)], [apart], A=BIGINT, B=DOUBLE)
    assert tightened.range(a).high == far - 2


def test_sums_that_outgrow_a_float_are_exact() -> None:
    step = 2**55 + 1
    closure, (a, _, _, d) = closed(
        [*equal(B, A, step), *equal(C, B, step), *equal(D, C, step)], A=BIGINT, B=BIGINT, C=BIGINT, D=BIGINT
    )
    assert bound_of(closure, d, a) == (3 * step, False)
    assert bound_of(closure, a, d) == (-3 * step, False)


def test_families_never_mix() -> None:
    types: dict[str, Any] = {"A": INT, "B": STRING, "C": DATE, "D": BOOLEAN}
    closure, refs = closed(
        [*equal(A, None, 3), *equal(B, None, 3), at_most(C, None, 3), at_least(D, 1)], **types
    )
    for (i, x), (j, y) in product(enumerate(refs), repeat=2):
        if i != j:
            assert closure.bound(x, y) is None
            assert not (closure.finite[i, j] or closure.fixed[i, j] or closure.by_constants[i, j])
            assert not (closure.below[i, j] or closure.through(i)[i, j])
    assert closure.pinned.tolist() == [True, True, False, True]
    assert closure.unbounded_below.tolist() == [False, False, True, False]
    assert closure.unbounded_above.tolist() == [False, False, False, False]
    assert len(set(closure.origin.tolist())) == 4


def test_only_bounded_types_add_their_least_and_greatest_value() -> None:
    closure, (a, b, c) = closed([less(C, A)], A=TINYINT, B=BOOLEAN, C=INT)
    assert ends_of(closure, a) == (-128, 127)
    assert ends_of(closure, b) == (0, 1)
    assert ends_of(closure, c) == (None, 126)
    assert closure.bounded.tolist() == [True, True, False]


def test_a_difference_needs_a_column() -> None:
    closure, _ = closed([], A=INT)
    with pytest.raises(ValueError, match="needs a column"):
        closure.bound(None, None)


def test_no_columns_at_all() -> None:
    closure, _ = closed([])
    assert closure.satisfiable
    assert closure.solve({}) == {}


# --- solving ------------------------------------------------------------------------------------------


def holds(system: System, solution: dict[Ref, Fraction], apart: Sequence[Disequality]) -> bool:
    def value(ref: Ref | None) -> Fraction:
        return solution[ref] if ref is not None else ZERO

    for fact in system.facts:
        gap = value(fact.left) - value(fact.right)
        if gap > fact.bound or (fact.strict and gap == fact.bound):
            return False
    return all(value(d.left) - value(d.right) != d.value for d in apart)


@SETTINGS
@given(systems(stepped=integers), st.data())
def test_any_partial_solution_extends(system: System, data: st.DataObject) -> None:
    closure, points = system.closure(types_of(system)), system.solutions()
    assume(len(points))
    some = points[data.draw(st.integers(0, len(points) - 1))]
    shown = data.draw(st.sets(st.sampled_from(system.refs)))
    given_values = {r: Fraction(int(v)) for r, v in zip(system.refs, some, strict=True) if r in shown}
    solution = closure.solve(given_values)
    assert solution is not None
    assert solution.items() >= given_values.items()
    assert holds(system, solution, ())
    assert all(v.denominator == 1 for v in solution.values())


@SETTINGS
@given(systems(columns=(2, 3), scale=4, stepped=dense, sizes=_DENSE_SIZES), st.data())
def test_any_partial_solution_extends_over_dense_columns(system: System, data: st.DataObject) -> None:
    closure, points = system.closure(types_of(system)), system.solutions()
    assume(len(points))
    some = points[data.draw(st.integers(0, len(points) - 1))]
    shown = data.draw(st.sets(st.sampled_from(system.refs)))
    given_values = {r: Fraction(int(v), 4) for r, v in zip(system.refs, some, strict=True) if r in shown}
    solution = closure.solve(given_values)
    assert solution is not None
    assert solution.items() >= given_values.items()
    assert holds(system, solution, ())


@SETTINGS
@given(systems(columns=(2, 3), scale=4, sizes=_DENSE_SIZES, disequalities=True))
def test_a_solution_respects_disequalities_and_steps(system: System) -> None:
    solution = system.closure(types_of(system)).solve({}, system.apart)
    if solution is not None:
        assert holds(system, solution, system.apart)
        for ref, type_ in zip(system.refs, types_of(system), strict=True):
            assert type_ is DOUBLE or solution[ref].denominator == 1


@SETTINGS
@given(systems(columns=(2, 3), stepped=integers, disequalities=True))
def test_given_values_that_contradict_the_system_have_no_solution(system: System) -> None:
    closure = system.closure(types_of(system))
    assume(closure.satisfiable)
    for point in product((-3, 0, 2), repeat=len(system.refs)):
        values = {r: Fraction(v) for r, v in zip(system.refs, point, strict=True)}
        assert closure.solve(values, system.apart) == (
            values if holds(system, values, system.apart) else None
        )


@pytest.mark.parametrize("type_", [INT, DOUBLE, MONEY, BIGINT], ids=str)
@pytest.mark.parametrize("side", ["low", "high", "both", "none"])
def test_columns_that_must_differ_get_different_values(type_: SqlType, side: str) -> None:
    facts = [at_least(x, 0) for x in (A, B, C, D) if side in ("low", "both")]
    facts += [at_most(x, None, 3) for x in (A, B, C, D) if side in ("high", "both")]
    closure, refs = closed(facts, A=type_, B=type_, C=type_, D=type_)
    apart = [Disequality(x, y, ZERO) for i, x in enumerate(refs) for y in refs[:i]]
    solution = closure.solve({}, apart)
    assert solution is not None
    assert len(set(solution.values())) == 4
    taken = [*apart, *(Disequality(refs[0], None, Fraction(v)) for v in range(4))]
    again = closure.solve({}, taken)
    if type_ in (INT, BIGINT) and side == "both":
        assert again is None
    else:
        assert again is not None and again[refs[0]] not in range(4)


@pytest.mark.parametrize(("narrow", "wide"), [(A, B), (B, A)])
def test_narrow_columns_are_placed_first(narrow: Ref, wide: Ref) -> None:
    # Were the wide one placed at 0 first, the narrow one would have nowhere to go.
    facts = [at_least(wide, 0), at_most(wide, None, 9), *equal(narrow, None, 0)]
    closure, _ = closed(facts, A=INT, B=INT)
    solution = closure.solve({}, [Disequality(A, B, ZERO)])
    assert solution is not None
    assert solution[narrow] == 0 != solution[wide]


def test_of_two_equal_ends_the_open_one_counts() -> None:
    closure, (a, b) = closed([at_most(A, None, 5), less(A, B)], A=INT, B=DOUBLE)
    assert closure.solve({b: Fraction(5)}) == {a: Fraction(4), b: Fraction(5)}
    mirrored, (a, b) = closed([at_least(A, 5), less(B, A)], A=INT, B=DOUBLE)
    assert mirrored.solve({b: Fraction(5)}) == {a: Fraction(6), b: Fraction(5)}
