"""Classes of values: which values of a column a synopsis has to distinguish.

Outside the range of its join partners all values of a column compare alike, so there is one class below that
range and one above it (section 7.1 of paper 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from millpond.query.closure import Range
from millpond.query.expressions import Ref
from millpond.query.finite_columns import count_finite_values
from millpond.query.parts import Part

BELOW = "below"
ABOVE = "above"
NULL = "null"


class NoPlanError(Exception):
    """No criterion fails, but no synopsis is known."""


@dataclass(frozen=True)
class PartnerRange:
    """Where a join partner distinguishes a column's values: at ``anchor`` plus multiples of ``step``.

    A dense partner (``step`` 0) distinguishes any two values.  None is no bound.
    """

    low: Fraction | None
    high: Fraction | None
    step: Fraction
    anchor: Fraction = Fraction(0)


@dataclass(frozen=True)
class ColumnClasses:
    """The classes of a column: each value from ``low`` to ``high``, all below, all above, and NULL.

    A dense column that is joined only with integers has one class for each integer and one for each gap;
    ``grid`` is their (anchor, step).  A row whose value is in none of the ``allowed`` ranges matches nothing.
    If ``is_counted``, only the number of the values is known, not which they are.
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
    is_counted: bool = False

    def admits(self, point: Fraction | None) -> bool:
        """Whether a row with this value can be part of a match."""
        return point is None or not self.allowed or any(point in r for r in self.allowed)

    @property
    def classes(self) -> int:
        """The number of classes."""
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
    """One class for each value of a bounded column, and one for NULL if it can occur."""
    null = nullable and part.can_be_null(ref)
    if ref in part.nulls:
        return ColumnClasses(ref, Fraction(1), Fraction(0), 0, below=False, above=False, null=True)
    r = part.closure.range(ref)
    if ref in part.closure.limited:
        count = count_finite_values(part.select, ref, part.closure)
        if count is not None:
            return ColumnClasses(ref, Fraction(0), Fraction(0), count, False, False, null, is_counted=True)
    if r.low is None or r.high is None:
        raise NoPlanError(f"{ref} is unbounded")
    values = _count_values(part, ref, r.low, r.high)
    allowed = tuple(_allowed_ranges(part, ref))
    return ColumnClasses(ref, r.low, r.high, values, False, False, null, None, allowed)


def build_clamped_classes(part: Part, ref: Ref, partners: Sequence[PartnerRange]) -> ColumnClasses:
    """The classes of a joined column, given the range of each of its partners."""
    r = part.closure.range(ref)
    narrowed = [_narrow(ref, w, r) for w in partners]
    low, high = min(w[0] for w in narrowed), max(w[1] for w in narrowed)
    grid = None
    if not part.closure.nodes[part.closure.index[ref]].type.step and low < high:
        grid = _common_grid(ref, narrowed)
        values = 2 * int((high - low) / grid[1]) + 3
    else:
        values = _count_values(part, ref, low, high)
    below, above = (
        _has_values_beyond(part, ref, r, low, lower=True),
        _has_values_beyond(part, ref, r, high, lower=False),
    )
    return ColumnClasses(ref, low, high, values, below, above, False, grid, tuple(_allowed_ranges(part, ref)))


# A partner's range within the column's own range: low, high, step and anchor.
_Narrowed = tuple[Fraction, Fraction, Fraction, Fraction]


def _narrow(ref: Ref, partner_range: PartnerRange, own: Range) -> _Narrowed:
    lows = [x for x in (partner_range.low, own.low) if x is not None]
    highs = [x for x in (partner_range.high, own.high) if x is not None]
    if not lows or not highs:
        raise NoPlanError(f"the join partners of {ref} are unbounded")
    return (
        max(lows),
        min(highs),
        partner_range.step,
        partner_range.anchor if partner_range.step else max(lows),
    )


def _common_grid(ref: Ref, windows: Sequence[_Narrowed]) -> tuple[Fraction, Fraction]:
    """The coarsest grid that contains every value at which some partner distinguishes values."""
    if any(not step and low < high for low, high, step, _ in windows):
        raise NoPlanError(f"{ref} has infinitely many values between those of its partners")
    anchors = {anchor for _, _, _, anchor in windows}
    first = min(anchors)
    lengths = [step for _, _, step, _ in windows if step] + [a - first for a in anchors if a != first]
    unit = Fraction(1, lcm(*(x.denominator for x in lengths)))
    return first, gcd(*(int(x / unit) for x in lengths)) * unit


def _allowed_ranges(part: Part, ref: Ref) -> list[Range]:
    """The ranges that disjunctive filters allow for a column, or for one at a fixed distance from it."""
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


def _count_values(part: Part, ref: Ref, low: Fraction, high: Fraction) -> int:
    """The number of values of a column from ``low`` to ``high``."""
    step = part.closure.nodes[part.closure.index[ref]].type.step
    seen: set[tuple[Fraction, Fraction]] = set()
    for r in _allowed_ranges(part, ref):
        start = low if r.low is None else max(low, r.low)
        end = high if r.high is None else min(high, r.high)
        if start <= end:
            seen.add((start, end))
    if not step:
        if any(start != end for start, end in seen):
            raise NoPlanError(f"{ref} has infinitely many values between {low} and {high}")
        return len(seen)
    total, reached = 0, None
    for start, end in sorted(seen):
        if reached is not None:
            start = max(start, reached + step)
        if start <= end:
            total += int(end // step - -(-start // step)) + 1
            reached = end
    return total


def _has_values_beyond(part: Part, ref: Ref, own: Range, edge: Fraction, lower: bool) -> bool:
    """Whether the column has values beyond an edge."""
    for r in _allowed_ranges(part, ref):
        end = r.low if lower else r.high
        limit = own.low if lower else own.high
        if end is None and limit is None:
            return True
        reach = [x for x in (end, limit) if x is not None]
        if (lower and max(reach) < edge) or (not lower and min(reach) > edge):
            return True
    return False
