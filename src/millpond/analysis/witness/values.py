"""Solves for the values of a witness: one full assignment of all columns per round (Lemma A.2 of paper 1).

The moving columns of a violation are placed far apart, in one range of values per round, and the closure
fills in every other column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from millpond.analysis.regions import JoinRegions
from millpond.analysis.violations import MovingColumns, Violation
from millpond.query.closure import Closure
from millpond.query.evaluate import compile_expression
from millpond.query.expressions import Ref
from millpond.query.trees import sorted_refs
from millpond.query.types import Domain

Assignment = dict[Ref, Fraction]
# Maps a round to the number of its range of values; must not decrease.
Spacing = Callable[[int], int]


def even_spacing(i: int) -> int:
    """One range of values per round."""
    return i


def midpoint_free_spacing(i: int) -> int:
    """No range is the mean of two others: the binary digits of ``i``, read in base 3.

    >>> [midpoint_free_spacing(i) for i in range(6)]
    [0, 1, 3, 4, 9, 10]
    """
    return int(f"{i:b}", 3)


def doubling_spacing(i: int) -> int:
    """No range is the mean of others: powers of two."""
    return (1 << i) - 1


class ValueLayout:
    """Places the moving columns of a violation in a number of rounds, and solves for all others."""

    def __init__(
        self, regions: JoinRegions, violation: Violation, rounds: int, spacing: Spacing = even_spacing
    ) -> None:
        self._regions = regions
        self._closure: Closure = regions.closure
        self._violation = violation
        self._rounds = rounds
        self._spacing = spacing
        self._windows = spacing(rounds - 1) + 1 if rounds else 1
        self._top = regions.can_grow.shape[0] - 1
        steps = [n.type.step for n in self._closure.nodes if n.type.step] or [Fraction(1)]
        self._step = max(steps)
        times = {n.ref for n in self._closure.nodes if n.type.domain is Domain.TIME}  # see times.py
        differences = [e.difference for e in regions.part.edges if e.difference.left and e.difference.right]
        values = [d for d in differences if d.left not in times]
        reach = sum((abs(d.bound) for d in values), start=Fraction(0))
        self._stride = _ceil(2 * reach + 2 * (len(self._closure.nodes) + 2) * self._step, self._step)
        self._anchor_values = solve_anchors(regions)
        self._fixed = self._anchor_values
        if self._anchor_values and not all(self.assignment(i) for i in (0, max(rounds - 1, 0))):
            self._fixed = self._solve_wide_anchors(max(rounds - 1, 0))

    def assignment(self, i: int, given: Mapping[Ref, Fraction] | None = None) -> Assignment | None:
        """The assignment of all columns in round ``i``, with some ``given``; None if there is none."""
        fixed = self._place_moving(i)
        for ref, point in (given or {}).items():
            if fixed.setdefault(ref, point) != point:
                return None
        fixed = {**self._fixed, **fixed}
        solution = self._closure.solve(fixed, self._regions.part.apart)
        return None if solution is None else self._satisfy_expressions(solution)

    def _place_moving(self, i: int) -> Assignment:
        """The values of the moving columns in round ``i``."""
        found: Assignment = {}
        for moved in self._violation.moving:
            start, gap = self._place(moved, i)
            found |= {ref: start + offset for ref, offset in self._offsets(moved, gap).items()}
        return found

    def _solve_wide_anchors(self, last: int) -> Assignment:
        """Values of relations and finite streams that fit all rounds.

        Columns below the moving ones take their value from the lowest round, columns above them from the
        highest; these are the first and the last round.
        """
        apart = self._regions.part.apart
        ends = [self._closure.solve(self._place_moving(i), apart) for i in (0, last)]
        moving = [self._closure.index[ref] for moved in self._violation.moving for ref in moved.columns]
        found = dict(self._anchor_values)
        for ref in self._anchor_values:
            a = self._closure.index[ref]
            values = [end[ref] for end in ends if end is not None]
            under, over = self._closure.finite[a, moving].any(), self._closure.finite[moving, a].any()
            if values and under != over:
                found[ref] = min(values) if under else max(values)
        return found

    def _satisfy_expressions(self, solution: Assignment) -> Assignment:
        """Set a free column of each derived column's expression so that it has the solved value."""
        for derived, expr in self._regions.part.derived:
            compute = compile_expression(expr, {derived.occurrence: 0})
            for ref in sorted_refs(expr):
                row = {r.column: v for r, v in solution.items() if r.occurrence == ref.occurrence}
                at_0, at_1 = (compute(({**row, ref.column: Fraction(x)},)) for x in (0, 1))
                step = self._closure.nodes[self._closure.index[ref]].type.step
                if not self._is_free(ref) or at_0 is None or at_1 is None or at_0 == at_1:
                    continue
                point = (solution[derived] - at_0) / (at_1 - at_0)
                if not step or point % step == 0:
                    solution[ref] = point
                    break
        return solution

    def _is_free(self, ref: Ref) -> bool:
        """No condition restricts the column."""
        i = self._closure.index[ref]
        apart = {r for d in self._regions.part.apart for r in (d.left, d.right)}
        known = self._closure.finite[i, :].sum() > 1 or self._closure.finite[:, i].sum() > 1
        return bool(
            self._closure.unbounded_below[i]
            and self._closure.unbounded_above[i]
            and not known
            and ref not in apart
        )

    def _place(self, moved: MovingColumns, i: int) -> tuple[Fraction, Fraction]:
        """The start of the range of round ``i``, and the gap between columns within it."""
        levels = sorted({t.level for t in self._violation.moving if t.region == moved.region})
        window = self._spacing(i) if moved.direction > 0 else self._windows - 1 - self._spacing(i)
        window += levels.index(moved.level) * self._windows
        total = len(levels) * self._windows
        smallest, largest = self._constants(moved)
        if moved.region == self._top:
            return largest + (window + 1) * self._stride, self._step
        if moved.region == 0:
            return smallest - (total - window + 1) * self._stride, self._step
        low, high = self._regions.cuts[moved.region - 1], self._regions.cuts[moved.region]
        width = (high - low) / (2 * total + 1)
        return low + (2 * window + 1) * width, width / (2 * len(moved.columns) + 2)

    def _constants(self, moved: MovingColumns) -> tuple[Fraction, Fraction]:
        """The smallest and the largest constant that columns of this family are compared with."""
        family = self._closure.nodes[self._closure.index[moved.columns[0]]].type.family
        ends = [Fraction(0)]
        for node in self._closure.nodes:
            if node.type.family is family:
                r = self._closure.range(node.ref)
                ends += [x for x in (r.low, r.high, self._anchor_values.get(node.ref)) if x is not None]
        return _floor(min(ends), self._step), _ceil(max(ends), self._step)

    def _offsets(self, moved: MovingColumns, gap: Fraction) -> Assignment:
        """Offsets within a range that satisfy the bounds between the moving columns."""
        placed: Assignment = {}
        for ref in moved.columns:
            placed[ref] = self._offset(ref, placed, gap)
        return placed

    def _offset(self, ref: Ref, placed: Assignment, gap: Fraction) -> Fraction:
        """The lowest offset that the columns placed before allow."""
        lows: list[tuple[Fraction, bool]] = []
        highs: list[tuple[Fraction, bool]] = []
        for other, offset in placed.items():
            above, under = self._closure.bound(other, ref), self._closure.bound(ref, other)
            lows += [(offset - above[0], above[1])] if above is not None else []
            highs += [(offset + under[0], under[1])] if under is not None else []
        if not lows and not highs:
            offset, way = Fraction(0), gap
        elif not lows:
            end, strict = min(highs, key=lambda e: (e[0], not e[1]))
            offset, way = end - gap * strict, -gap
        else:
            end, strict = max(lows)
            room = min((h for h, _ in highs), default=None)
            way = gap if room is None or end + gap < room else (room - end) / 2
            offset = end + way * strict
        for _ in self._regions.part.apart:
            if self._collides(ref, offset, placed) and all(offset + way <= h for h, _ in highs):
                offset += way
        return offset

    def _collides(self, ref: Ref, offset: Fraction, placed: Assignment) -> bool:
        """A disequality forbids the offset."""
        for d in self._regions.part.apart:
            if (d.left == ref and d.right in placed and offset - placed[d.right] == d.value) or (
                d.right == ref and d.left in placed and placed[d.left] - offset == d.value
            ):
                return True
        return False


def solve_anchors(regions: JoinRegions) -> Assignment:
    """Values for the columns of relations and finite streams, the same in every round."""
    closure = regions.closure
    solution = closure.solve({}, regions.part.apart) if closure.anchors else None
    return {ref: value for ref, value in (solution or {}).items() if ref in closure.anchors}


def _floor(x: Fraction, step: Fraction) -> Fraction:
    return (x // step) * step


def _ceil(x: Fraction, step: Fraction) -> Fraction:
    return -((-x) // step) * step
