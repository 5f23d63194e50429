"""Families of matches: rounds of full assignments whose key columns follow a violation's tracks.

Lemma A.2 of paper 1 as a solver: key columns are set far apart, one window a round, and the closure
fills in every other column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from millpond.analysis.join_criteria import Track, Violation
from millpond.analysis.regions import Ordering
from millpond.query.closure import Closure
from millpond.query.evaluate import compile_expression
from millpond.query.model import Ref
from millpond.query.trees import sorted_refs

Assignment = dict[Ref, Fraction]
# The window in which a round lies; must not decrease.
Pace = Callable[[int], int]


def steady(i: int) -> int:
    return i


def without_midpoints(i: int) -> int:
    """No window is the mean of two others: binary digits read in base 3.

    >>> [without_midpoints(i) for i in range(6)]
    [0, 1, 3, 4, 9, 10]
    """
    return int(f"{i:b}", 3)


def doubling(i: int) -> int:
    """No window is the mean of others: powers of two."""
    return (1 << i) - 1


class Layout:
    """Places the tracks of a violation for a number of rounds."""

    def __init__(self, ordering: Ordering, violation: Violation, rounds: int, pace: Pace = steady) -> None:
        self._ordering = ordering
        self._closure: Closure = ordering.closure
        self._violation = violation
        self._rounds = rounds
        self._pace = pace
        self._windows = pace(rounds - 1) + 1 if rounds else 1
        self._top = ordering.possible.shape[0] - 1
        steps = [n.type.step for n in self._closure.nodes if n.type.step] or [Fraction(1)]
        self._step = max(steps)
        reach = sum(
            (
                abs(e.difference.bound)
                for e in ordering.part.edges
                if e.difference.left and e.difference.right
            ),
            start=Fraction(0),
        )
        self._stride = _ceil(2 * reach + 2 * (len(self._closure.nodes) + 2) * self._step, self._step)
        self._around = anchored(ordering)
        self._anchored = self._around
        if self._around and not all(self.assignment(i) for i in (0, max(rounds - 1, 0))):
            self._anchored = self._apart_enough(max(rounds - 1, 0))

    def assignment(self, i: int, given: Mapping[Ref, Fraction] | None = None) -> Assignment | None:
        """The full assignment of round ``i``, with further columns as ``given``; None if there is none."""
        fixed = self._tracked(i)
        for ref, point in (given or {}).items():
            if fixed.setdefault(ref, point) != point:
                return None
        fixed = {**self._anchored, **fixed}
        solution = self._closure.solve(fixed, self._ordering.part.apart)
        return None if solution is None else self._with_expressions(solution)

    def _tracked(self, i: int) -> Assignment:
        """The columns of the tracks in round ``i``."""
        found: Assignment = {}
        for track in self._violation.tracks:
            start, gap = self._place(track, i)
            found |= {ref: start + offset for ref, offset in self._inside(track, gap).items()}
        return found

    def _apart_enough(self, last: int) -> Assignment:
        """Values of relations and of streams that end with all rounds between them.

        What must not be above the tracks is taken from the lowest round, what must not be below them from
        the highest; the first and the last round are these.
        """
        apart = self._ordering.part.apart
        ends = [self._closure.solve(self._tracked(i), apart) for i in (0, last)]
        moving = [self._closure.index[ref] for track in self._violation.tracks for ref in track.columns]
        found = dict(self._around)
        for ref in self._around:
            a = self._closure.index[ref]
            values = [end[ref] for end in ends if end is not None]
            under, over = self._closure.finite[a, moving].any(), self._closure.finite[moving, a].any()
            if values and under != over:
                found[ref] = min(values) if under else max(values)
        return found

    def _with_expressions(self, solution: Assignment) -> Assignment:
        """Where a column stands for an expression, a free column of it is set so that it comes true."""
        for derived, expr in self._ordering.part.derived:
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
        """Nothing at all is known of the column."""
        i = self._closure.index[ref]
        apart = {r for d in self._ordering.part.apart for r in (d.left, d.right)}
        known = self._closure.finite[i, :].sum() > 1 or self._closure.finite[:, i].sum() > 1
        return bool(
            self._closure.unbounded_below[i]
            and self._closure.unbounded_above[i]
            and not known
            and ref not in apart
        )

    def _place(self, track: Track, i: int) -> tuple[Fraction, Fraction]:
        """Where the window of a track's round begins, and the gap to leave between columns inside it."""
        levels = sorted({t.level for t in self._violation.tracks if t.region == track.region})
        window = self._pace(i) if track.slope > 0 else self._windows - 1 - self._pace(i)
        window += levels.index(track.level) * self._windows
        total = len(levels) * self._windows
        smallest, largest = self._constants(track)
        if track.region == self._top:
            return largest + (window + 1) * self._stride, self._step
        if track.region == 0:
            return smallest - (total - window + 1) * self._stride, self._step
        low, high = self._ordering.cuts[track.region - 1], self._ordering.cuts[track.region]
        width = (high - low) / (2 * total + 1)
        return low + (2 * window + 1) * width, width / (2 * len(track.columns) + 2)

    def _constants(self, track: Track) -> tuple[Fraction, Fraction]:
        """The smallest and the largest constant that the track's family is compared with."""
        family = self._closure.nodes[self._closure.index[track.columns[0]]].type.family
        ends = [Fraction(0)]
        for node in self._closure.nodes:
            if node.type.family is family:
                r = self._closure.range(node.ref)
                ends += [x for x in (r.low, r.high, self._around.get(node.ref)) if x is not None]
        return _floor(min(ends), self._step), _ceil(max(ends), self._step)

    def _inside(self, track: Track, gap: Fraction) -> Assignment:
        """Offsets within a window that respect the bounds between the track's columns."""
        placed: Assignment = {}
        for ref in track.columns:
            placed[ref] = self._offset(ref, placed, gap)
        return placed

    def _offset(self, ref: Ref, placed: Assignment, gap: Fraction) -> Fraction:
        """An offset between what the columns placed before allow, as low as may be."""
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
        for _ in self._ordering.part.apart:
            if self._collides(ref, offset, placed) and all(offset + way <= h for h, _ in highs):
                offset += way
        return offset

    def _collides(self, ref: Ref, offset: Fraction, placed: Assignment) -> bool:
        """A disequality forbids the offset."""
        for d in self._ordering.part.apart:
            if (d.left == ref and d.right in placed and offset - placed[d.right] == d.value) or (
                d.right == ref and d.left in placed and placed[d.left] - offset == d.value
            ):
                return True
        return False


def anchored(ordering: Ordering) -> Assignment:
    """Values for the columns of relations and of streams that end, the same in every round."""
    closure = ordering.closure
    solution = closure.solve({}, ordering.part.apart) if closure.anchors else None
    return {ref: value for ref, value in (solution or {}).items() if ref in closure.anchors}


def _floor(x: Fraction, step: Fraction) -> Fraction:
    return (x // step) * step


def _ceil(x: Fraction, step: Fraction) -> Fraction:
    return -((-x) // step) * step
