"""Classes of values: what a synopsis tells apart in a column, and what it need not.

Outside the range in which its partners can lie, all values of a column compare alike, so they are one
class below and one above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from millpond.query.closure import Range
from millpond.query.model import Ref
from millpond.query.parts import Part

BELOW = "below"
ABOVE = "above"
NULL = "null"


class NoPlanError(Exception):
    """No synopsis is known for what the checker found bounded."""


@dataclass(frozen=True)
class PartnerRange:
    """Where a join partner tells a column's values apart: at ``anchor`` plus multiples of ``step``.

    A ``step`` of 0 is a dense partner, which tells any two values apart.  None is no end.
    """

    low: Fraction | None
    high: Fraction | None
    step: Fraction
    anchor: Fraction = Fraction(0)


@dataclass(frozen=True)
class ColumnClasses:
    """The classes of a column: each value from ``low`` to ``high``, all below, all above, and NULL.

    A dense column that meets only integers has a class for each of them and for each gap between two;
    ``grid`` is their (anchor, step).  A row with a value in none of the ``allowed`` ranges matches nothing.
    """

    column: Ref
    low: Fraction
    high: Fraction
    values: int
    below: bool
    above: bool
    null: bool
    grid: tuple[Fraction, Fraction] | None = None
    allowed: tuple[Range, ...] = ()

    def admits(self, point: Fraction | None) -> bool:
        """A row with this value can take part in a match."""
        return point is None or not self.allowed or any(point in r for r in self.allowed)

    @property
    def classes(self) -> int:
        return self.values + self.below + self.above + self.null

    def of(self, point: Fraction | None) -> Fraction | str:
        """The class of a value.

        >>> code = ColumnClasses(Ref("S", "B"), Fraction(11), Fraction(19), 9, True, above=False, null=False)
        >>> code.classes, code.of(Fraction(-5)), code.of(Fraction(12))
        (10, 'below', Fraction(12, 1))
        """
        if point is None:
            return NULL
        if point < self.low:
            return BELOW
        if point > self.high:
            return ABOVE
        if self.grid is None:
            return point
        anchor, step = self.grid
        steps = (point - anchor) // step
        on_grid = anchor + steps * step == point
        return point if on_grid else anchor + (steps + Fraction(1, 2)) * step


def build_exact_classes(part: Part, ref: Ref, nullable: bool = True) -> ColumnClasses:
    """Every value of a bounded column is a class of its own; NULL too where it can occur."""
    null = nullable and part.can_be_null(ref)
    if ref in part.nulls:
        return ColumnClasses(ref, Fraction(1), Fraction(0), 0, below=False, above=False, null=True)
    r = part.closure.range(ref)
    if r.low is None or r.high is None:
        raise NoPlanError(f"{ref} is unbounded")
    values = _count(part, ref, r.low, r.high)
    return ColumnClasses(ref, r.low, r.high, values, False, False, null, allowed=tuple(_allowed(part, ref)))


def build_clamped_classes(part: Part, ref: Ref, windows: Sequence[PartnerRange]) -> ColumnClasses:
    """The classes of a joined column, given the window of each of its partners."""
    r = part.closure.range(ref)
    narrowed = [_narrowed(ref, w, r) for w in windows]
    low, high = min(w[0] for w in narrowed), max(w[1] for w in narrowed)
    grid = None
    if not part.closure.nodes[part.closure.index[ref]].type.step and low < high:
        grid = _common_grid(ref, narrowed)
        values = 2 * int((high - low) / grid[1]) + 3
    else:
        values = _count(part, ref, low, high)
    below, above = _beyond(part, ref, r, low, lower=True), _beyond(part, ref, r, high, lower=False)
    return ColumnClasses(ref, low, high, values, below, above, False, grid, tuple(_allowed(part, ref)))


# A window within the column's own range: its ends, its step and its anchor.
_Narrowed = tuple[Fraction, Fraction, Fraction, Fraction]


def _narrowed(ref: Ref, window: PartnerRange, own: Range) -> _Narrowed:
    lows = [x for x in (window.low, own.low) if x is not None]
    highs = [x for x in (window.high, own.high) if x is not None]
    if not lows or not highs:
        raise NoPlanError(f"the partners of {ref} can lie anywhere")
    return max(lows), min(highs), window.step, window.anchor if window.step else max(lows)


def _common_grid(ref: Ref, windows: Sequence[_Narrowed]) -> tuple[Fraction, Fraction]:
    """A grid on which all points lie at which some partner tells values apart."""
    if any(not step and low < high for low, high, step, _ in windows):
        raise NoPlanError(f"{ref} has values without number among those of its partners")
    anchors = {anchor for _, _, _, anchor in windows}
    first = min(anchors)
    lengths = [step for _, _, step, _ in windows if step] + [a - first for a in anchors if a != first]
    unit = Fraction(1, lcm(*(x.denominator for x in lengths)))
    return first, gcd(*(int(x / unit) for x in lengths)) * unit


def _allowed(part: Part, ref: Ref) -> list[Range]:
    """The ranges that disjunctive filters leave to a column, or to one at a fixed distance from it."""
    closure = part.closure
    for name, ranges in part.allowed:
        if name == ref:
            return list(ranges)
        if name in closure.index and closure.has_fixed_difference(ref, name):
            bound = closure.bound(ref, name)
            shift = bound[0] if bound is not None else Fraction(0)
            return [
                Range(
                    None if r.low is None else r.low + shift,
                    None if r.high is None else r.high + shift,
                    r.low_strict,
                    r.high_strict,
                )
                for r in ranges
            ]
    return [closure.range(ref)]


def _count(part: Part, ref: Ref, low: Fraction, high: Fraction) -> int:
    """How many values of a column lie from ``low`` to ``high``."""
    step = part.closure.nodes[part.closure.index[ref]].type.step
    seen: set[tuple[Fraction, Fraction]] = set()
    for r in _allowed(part, ref):
        start = low if r.low is None else max(low, r.low)
        end = high if r.high is None else min(high, r.high)
        if start <= end:
            seen.add((start, end))
    if not step:
        if any(start != end for start, end in seen):
            raise NoPlanError(f"{ref} has values without number between {low} and {high}")
        return len(seen)
    total, reached = 0, None
    for start, end in sorted(seen):
        if reached is not None:
            start = max(start, reached + step)
        if start <= end:
            total += int(end // step - -(-start // step)) + 1
            reached = end
    return total


def _beyond(part: Part, ref: Ref, own: Range, edge: Fraction, lower: bool) -> bool:
    """Values of the column lie beyond an edge."""
    for r in _allowed(part, ref):
        end = r.low if lower else r.high
        limit = own.low if lower else own.high
        if end is None and limit is None:
            return True
        reach = [x for x in (end, limit) if x is not None]
        if (lower and max(reach) < edge) or (not lower and min(reach) > edge):
            return True
    return False
