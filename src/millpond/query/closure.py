"""The closure of a conjunction: every difference bound that it implies, computed by shortest paths.

A node is a column, or the origin of a family of comparable types (numbers, dates, strings, booleans).
An edge bounds ``x - y`` from above; ``A < B`` over integers is ``A - B <= -1``, ``A <= k`` is
``A - origin <= k``.  Shortest paths close the system.  The closure is exact over the integers and over
dense domains, and satisfiable iff there is no negative cycle.  If integers are compared with dense
columns, bounds are rounded to the coarser grid and the system is closed again: every bound is then
implied, but a rare contradiction may not be detected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millpond.query.expressions import Ref
from millpond.query.free_value import End, find_free_value
from millpond.query.types import Domain, SqlType

Matrix = NDArray[Any]

# Longer paths are not exact in a float and are computed with Python integers.
_EXACT_FLOAT = float(1 << 51)
# The most rounds of rounding and closing; a pure integer or pure dense system needs one.
_MAX_ROUNDS = 64
# The most times that ``solve`` backtracks because a disequality left a column without a value.
_MAX_STEPS_BACK = 60


@dataclass(frozen=True)
class Node:
    """A column and its type."""

    ref: Ref
    type: SqlType


@dataclass(frozen=True)
class Difference:
    """``left - right <= bound``, or ``<`` if strict; None is the origin of the other side's family."""

    left: Ref | None
    right: Ref | None
    bound: Fraction
    strict: bool = False


@dataclass(frozen=True)
class Disequality:
    """``left - right <> value``; ``right`` None is the origin."""

    left: Ref
    right: Ref | None
    value: Fraction


@dataclass(frozen=True)
class Range:
    """The range of a column's values; None is no bound."""

    low: Fraction | None
    high: Fraction | None
    low_strict: bool = False
    high_strict: bool = False

    def __contains__(self, point: Fraction) -> bool:
        if self.low is not None and (point < self.low or (self.low_strict and point == self.low)):
            return False
        return self.high is None or point < self.high or (point == self.high and not self.high_strict)


class Closure:
    """The transitive closure P+ of a conjunction.

    >>> from millpond.query.types import INT
    >>> a, b = Ref("S", "A"), Ref("T", "B")
    >>> above_10 = Difference(None, a, Fraction(-10), strict=True)
    >>> below_b = Difference(a, b, Fraction(0), strict=True)
    >>> below_13 = Difference(b, None, Fraction(13), strict=True)
    >>> closure = Closure.of([Node(a, INT), Node(b, INT)], [above_10, below_b, below_13])
    >>> closure.satisfiable, closure.range(a).low, closure.range(a).high
    (True, Fraction(11, 1), Fraction(11, 1))
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        unit: Fraction,
        length: Matrix,
        weight: int,
        anchors: Collection[Ref] = (),
        limited: Collection[Ref] = (),
    ) -> None:
        self.nodes = tuple(nodes)
        self.anchors = frozenset(anchors)
        self.limited = frozenset(limited)
        self.unit = unit
        self._weight = weight  # a bound b, strict or not, is stored as b * weight - strict
        self._length = length
        self.index: dict[Ref, int] = {node.ref: i for i, node in enumerate(self.nodes)}
        families = sorted({n.type.family for n in self.nodes}, key=lambda f: f.value)
        self._origin_of_family = {f: len(self.nodes) + i for i, f in enumerate(families)}
        self.origin = np.array([self._origin_of_family[n.type.family] for n in self.nodes], dtype=np.intp)

    @staticmethod
    def of(
        nodes: Sequence[Node],
        differences: Iterable[Difference],
        disequalities: Iterable[Disequality] = (),
    ) -> Closure:
        """Close the system.  Bounded types add their least and greatest value."""
        nodes = list(nodes)
        facts = [*differences, *_type_bounds(nodes)]
        apart = list(disequalities)
        numbers = [d.bound for d in facts] + [d.value for d in apart] + [n.type.step for n in nodes]
        unit = Fraction(1, lcm(*(f.denominator for f in numbers))) if numbers else Fraction(1)
        families = len({n.type.family for n in nodes})
        size = len(nodes) + families
        dense = any(n.type.step == 0 for n in nodes)
        weight = size + 2 if dense else 1
        largest = max((abs(f / unit) for f in numbers), default=Fraction(0))
        exact = (largest + 1) * weight * (size + 2) < _EXACT_FLOAT
        length: Matrix = np.full((size, size), np.inf, dtype=np.float64 if exact else object)
        np.fill_diagonal(length, 0)
        closure = Closure(nodes, unit, length, weight)
        closure._add(facts)
        closure._close()
        closure._tighten(apart)
        return closure

    def with_anchors(self, anchors: Collection[Ref], limited: Collection[Ref] = ()) -> Closure:
        """The same closure, with columns that have finitely many values, though not between constants.

        Those of *anchors* are known from the start; like constants, they bound the columns that are compared
        with them.  Of *limited* columns only the number of values is known, so they bound nothing else.
        """
        return Closure(self.nodes, self.unit, self._length, self._weight, anchors, limited)

    # --- building ----------------------------------------------------------------------------------

    def _endpoints(self, left: Ref | None, right: Ref | None) -> tuple[int, int]:
        if left is None and right is None:
            raise ValueError("a difference needs a column")
        i = self.index[left] if left is not None else int(self.origin[self.index[right]])  # type: ignore[index]
        j = self.index[right] if right is not None else int(self.origin[self.index[left]])  # type: ignore[index]
        return i, j

    @cached_property
    def _grid(self) -> Matrix:
        """The finer step of each pair of nodes, in units; 0 if one of them is dense."""
        steps = [int(n.type.step / self.unit) for n in self.nodes]
        coarsest = max(steps, default=1) or 1
        size = self._length.shape[0]
        column = np.array(steps + [coarsest] * (size - len(steps)), dtype=self._length.dtype)
        # An origin is a multiple of every step.
        return np.minimum.outer(column, column) if size else np.zeros((0, 0))

    def _encode(self, bound: Fraction, strict: bool, grid: Any) -> Any:
        value = bound / self.unit
        if grid:
            steps = value / int(grid)
            whole = steps.numerator // steps.denominator
            if strict and whole == steps:
                whole -= 1
            return whole * int(grid) * self._weight
        return int(value) * self._weight - int(strict)

    def _add(self, differences: Iterable[Difference]) -> None:
        for d in differences:
            i, j = self._endpoints(d.left, d.right)
            edge = self._encode(d.bound, d.strict, 0 if i == j else self._grid[i, j])
            if edge < self._length[i, j]:
                self._length[i, j] = edge

    def _close(self) -> None:
        """Floyd-Warshall, vectorised by node; then round to the grid until nothing changes."""
        length = self._length
        mixed = len({n.type.step for n in self.nodes}) > 1
        for _ in range(_MAX_ROUNDS):
            for k in range(length.shape[0]):
                np.minimum(length, length[:, k, None] + length[None, k, :], out=length)
            if not mixed or not self.satisfiable or not self._round():
                return

    def _round(self) -> bool:
        """Round bounds between discrete nodes down to the grid; True if one changed."""
        moved = False
        for i, j in np.argwhere((self._grid > 0) & np.isfinite(self._length.astype(float))):
            bound, strict = self._decode(self._length[i, j])
            rounded = self._encode(bound, strict, self._grid[i, j])
            if rounded < self._length[i, j]:
                self._length[i, j] = rounded
                moved = True
        return moved

    def _tighten(self, apart: list[Disequality]) -> None:
        """Turn ``x <= y`` with ``x <> y`` into ``x < y``, until nothing changes."""
        moved = True
        while moved and self.satisfiable:
            moved = False
            for d in apart:
                i, j = self._endpoints(d.left, d.right)
                for a, b, value in ((i, j, d.value), (j, i, -d.value)):
                    if a != b and self._length[a, b] == self._encode(value, False, 0):
                        self._length[a, b] = self._encode(value, True, self._grid[a, b])
                        through = self._length[:, a, None] + self._length[a, b] + self._length[None, b, :]
                        np.minimum(self._length, through, out=self._length)
                        moved = True
            if moved and self._weight > 1:
                self._close()

    def _decode(self, length: Any) -> tuple[Fraction, bool]:
        whole = -(-int(length) // self._weight)
        return whole * self.unit, whole * self._weight != int(length)

    # --- queries ------------------------------------------------------------------------------------

    @property
    def satisfiable(self) -> bool:
        """The conjunction has a solution: there is no negative cycle."""
        return bool((np.diagonal(self._length) >= 0).all())

    def bound(self, left: Ref | None, right: Ref | None) -> tuple[Fraction, bool] | None:
        """The least implied upper bound of ``left - right`` and whether it is strict."""
        i, j = self._endpoints(left, right)
        return self._bound(i, j)

    def _bound(self, i: int, j: int) -> tuple[Fraction, bool] | None:
        length = self._length[i, j]
        return None if length == np.inf else self._decode(length)

    def range(self, ref: Ref) -> Range:
        """The range of a column's values."""
        i = self.index[ref]
        zero = int(self.origin[i])
        high, low = self._bound(i, zero), self._bound(zero, i)
        return Range(
            low=-low[0] if low else None,
            high=high[0] if high else None,
            low_strict=bool(low and low[1]),
            high_strict=bool(high and high[1]),
        )

    def keeps_apart(self, left: Ref, right: Ref | None, value: Fraction) -> bool:
        """The bounds imply ``left - right <> value``: the difference is always below or always above."""
        over, under = self.bound(left, right), self.bound(right, left)
        return (over is not None and (over[0], not over[1]) < (value, True)) or (
            under is not None and (under[0], not under[1]) < (-value, True)
        )

    def has_fixed_difference(self, left: Ref, right: Ref) -> bool:
        """The difference of the columns is a constant."""
        i, j = self.index[left], self.index[right]
        return bool(self._length[i, j] + self._length[j, i] == 0)

    @cached_property
    def stepped(self) -> NDArray[np.bool_]:
        """Columns whose types are not dense."""
        return np.array([n.type.step > 0 for n in self.nodes], dtype=bool)

    @cached_property
    def finite(self) -> NDArray[np.bool_]:
        """finite[i, j]: the difference of columns i and j has an upper bound."""
        n = len(self.nodes)
        return np.asarray(self._length[:n, :n] != np.inf)

    @cached_property
    def below(self) -> NDArray[np.bool_]:
        """below[i, j]: i is at most j plus a constant, in every region.

        For dense columns, which have infinitely many values between any two constants, the constant must
        be 0.
        """
        n = len(self.nodes)
        dense = ~self.stepped
        at_most_zero = np.asarray(self._length[:n, :n] <= 0)
        return np.where(np.logical_and.outer(dense, dense), at_most_zero, self.finite)

    @cached_property
    def fixed(self) -> NDArray[np.bool_]:
        """fixed[i, j]: the difference of columns i and j is a constant."""
        n = len(self.nodes)
        inner = self._length[:n, :n]
        with np.errstate(invalid="ignore"):
            return np.asarray(inner + inner.T == 0)

    @cached_property
    def _fixed_points(self) -> list[list[int]]:
        """For each column the nodes that act as constants: its origin and the anchors."""
        anchors = [self.index[ref] for ref in self.anchors if ref in self.index]
        return [[int(z), *anchors] for z in self.origin]

    @cached_property
    def unbounded_below(self) -> NDArray[np.bool_]:
        """Columns without a lower bound."""
        free = [all(self._length[z, i] == np.inf for z in zs) for i, zs in enumerate(self._fixed_points)]
        return np.asarray(free, dtype=bool)

    @cached_property
    def unbounded_above(self) -> NDArray[np.bool_]:
        """Columns without an upper bound."""
        free = [all(self._length[i, z] == np.inf for z in zs) for i, zs in enumerate(self._fixed_points)]
        return np.asarray(free, dtype=bool)

    @cached_property
    def pinned(self) -> NDArray[np.bool_]:
        """Columns with a single value, or at a fixed distance from an anchor."""
        return np.asarray(
            [
                any(self._length[i, z] + self._length[z, i] == 0 for z in zs)
                for i, zs in enumerate(self._fixed_points)
            ],
            dtype=bool,
        )

    @cached_property
    def bounded(self) -> NDArray[np.bool_]:
        """Columns with finitely many values (paper 1, Definition 4.5; section 9 for dense domains)."""
        return self.known | self.is_limited

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Columns with finitely many values that are known from the start."""
        return np.where(self.stepped, ~(self.unbounded_below | self.unbounded_above), self.pinned)

    @cached_property
    def is_limited(self) -> NDArray[np.bool_]:
        """Columns of which only the number of values is known."""
        return np.array([node.ref in self.limited for node in self.nodes], dtype=bool)

    def is_bounded(self, ref: Ref) -> bool:
        """The column has finitely many values."""
        return bool(self.bounded[self.index[ref]])

    @cached_property
    def by_constants(self) -> NDArray[np.bool_]:
        """by_constants[i, j]: the constant bounds of i and of j already imply the bound of i - j."""
        n = len(self.nodes)
        out = np.zeros((n, n), dtype=bool)
        for family, zero in self._origin_of_family.items():
            same = np.array([node.type.family is family for node in self.nodes], dtype=bool)
            out |= np.logical_and.outer(same, same) & self.through(zero)
        for ref in self.anchors:
            if ref in self.index:
                out |= self.through(self.index[ref])
        return out

    def is_implied_by_constants(self, left: Ref | None, right: Ref | None) -> bool:
        """The constant bounds of both columns, without anchors, imply the bound of ``left - right``."""
        if left is None or right is None:
            return True
        i, j = self.index[left], self.index[right]
        return self.nodes[i].type.family is self.nodes[j].type.family and bool(
            self.through(int(self.origin[i]))[i, j]
        )

    def through(self, k: int) -> NDArray[np.bool_]:
        """through(k)[i, j]: the bounds of i and of j against node k already imply the bound of i - j."""
        n = len(self.nodes)
        length = self._length
        return np.asarray((length[:n, k, None] + length[None, k, :n] <= length[:n, :n]) & self.finite)

    # --- solving -----------------------------------------------------------------------------------

    def solve(
        self, given: Mapping[Ref, Fraction], apart: Sequence[Disequality] = ()
    ) -> dict[Ref, Fraction] | None:
        """A value for every column that satisfies the system and the disequalities, with those given.

        In a closed system every partial solution can be extended, so columns get their values one at a
        time.  Only a disequality can exclude a value; then the next value is tried, or the search
        backtracks.  None if there is no solution, or none was found within the limit of backtracking.
        """
        size = self._length.shape[0]
        plain = self._weight == 1 and self._length.dtype == np.float64  # integers that are exact in a float
        value: Matrix = np.zeros(size, dtype=np.float64 if plain else object)
        done = np.zeros(size, dtype=bool)
        done[len(self.nodes) :] = True
        forbidden = self._forbidden(apart)
        for ref, point in given.items():
            i = self.index[ref]
            value[i] = point / self.unit
            done[i] = True
        order = sorted((i for i in range(len(self.nodes)) if not done[i]), key=self._freedom.__getitem__)
        tried: dict[int, set[Fraction]] = {i: set() for i in order}
        at = steps_back = 0
        while at < len(order):
            i = order[at]
            ends = self._plain_bounds_given(i, value, done) if plain else self._bounds_given(i, value, done)
            taken = {Fraction(value[j]) + v / self.unit for j, v in forbidden.get(i, ()) if done[j]}
            step = self.nodes[i].type.step / self.unit
            chosen = find_free_value(*ends, step, taken | tried[i], margin=len(apart))
            if chosen is not None and len(tried[i]) <= len(apart):
                value[i], done[i] = chosen, True
                at += 1
                continue
            steps_back += 1
            blocked = bool(taken or tried[i])  # otherwise the given values contradict the system
            back = self._last_involved(order[:at], i, {j for j, _ in forbidden.get(i, ())})
            if not blocked or back is None or steps_back > _MAX_STEPS_BACK:
                return None
            tried[order[back]].add(Fraction(value[order[back]]))
            for j in order[back + 1 : at + 1]:
                tried[j].clear()
            done[order[back:]] = False
            at = back
        if not (self._plain_holds(value) if plain else self._holds(value)):
            return None
        solution = {node.ref: Fraction(value[i]) * self.unit for i, node in enumerate(self.nodes)}
        return solution if _all_apart(solution, apart) else None

    def _last_involved(self, placed: Sequence[int], i: int, unequal: Collection[int]) -> int | None:
        """The index of the last placed column that is compared with column i."""
        for place in range(len(placed) - 1, -1, -1):
            j = placed[place]
            if j in unequal or self._length[i, j] != np.inf or self._length[j, i] != np.inf:
                return place
        return None

    def _forbidden(self, apart: Sequence[Disequality]) -> dict[int, list[tuple[int, Fraction]]]:
        """For each node, the nodes from which it must differ: x <> other + value."""
        out: dict[int, list[tuple[int, Fraction]]] = {}
        for d in apart:
            i, j = self._endpoints(d.left, d.right)
            out.setdefault(i, []).append((j, d.value))
            out.setdefault(j, []).append((i, -d.value))
        return out

    @cached_property
    def _freedom(self) -> list[tuple[bool, bool, Any]]:
        """The order in which ``solve`` takes columns: discrete before dense ones, then by width.

        Narrow columns come first, because wide ones can still avoid their values; discrete ones come first,
        because there may be no discrete value between two dense ones.
        """
        widths = [self._length[i, z] + self._length[z, i] for i, z in enumerate(self.origin)]
        return [
            (not stepped, w == np.inf, 0 if w == np.inf else w)
            for stepped, w in zip(self.stepped.tolist(), widths, strict=True)
        ]

    def _bounds_given(self, i: int, value: Matrix, done: NDArray[np.bool_]) -> tuple[End, End]:
        """The bounds of column i, in units and with their strictness, given the columns that have a value."""
        low: End = None
        high: End = None
        for j in np.flatnonzero(done & (self._length[i, :] != np.inf)):
            bound, strict = self._decode(self._length[i, j])
            candidate = (value[j] + bound / self.unit, strict)
            high = candidate if high is None else min(high, candidate, key=lambda e: (e[0], not e[1]))
        for j in np.flatnonzero(done & (self._length[:, i] != np.inf)):
            bound, strict = self._decode(self._length[j, i])
            candidate = (value[j] - bound / self.unit, strict)
            low = candidate if low is None else max(low, candidate)
        return low, high

    def _plain_bounds_given(self, i: int, value: Matrix, done: NDArray[np.bool_]) -> tuple[End, End]:
        low = np.max(value[done] - self._length[done, i])
        high = np.min(value[done] + self._length[i, done])
        return (
            None if low == -np.inf else (Fraction(low), False),
            None if high == np.inf else (Fraction(high), False),
        )

    def _plain_holds(self, value: Matrix) -> bool:
        return bool((value[:, None] - value[None, :] <= self._length).all())

    def _holds(self, value: Matrix) -> bool:
        for i, j in np.argwhere(self._length != np.inf):
            bound, strict = self._decode(self._length[i, j])
            gap = (value[i] - value[j]) * self.unit
            if gap > bound or (strict and gap == bound):
                return False
        return True


def _type_bounds(nodes: Iterable[Node]) -> list[Difference]:
    out = []
    for node in nodes:
        if node.type.domain is Domain.BOUNDED:
            assert node.type.low is not None and node.type.high is not None
            out.append(Difference(node.ref, None, node.type.high))
            out.append(Difference(None, node.ref, -node.type.low))
    return out


def _all_apart(solution: Mapping[Ref, Fraction], apart: Iterable[Disequality]) -> bool:
    return all(solution[d.left] - (solution[d.right] if d.right is not None else 0) != d.value for d in apart)
