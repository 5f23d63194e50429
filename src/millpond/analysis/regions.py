"""The regions of the value axis in which joined columns can take infinitely many values.

Integers do so only below the smallest and above the largest constant; dense values also between any two
constants.  A join can cost memory only where both its sides can lie in one region.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from millpond.query.closure import Closure
from millpond.query.expressions import Ref
from millpond.query.parts import THRESHOLD, Part
from millpond.query.time_order import TimeOrder
from millpond.query.types import Domain

Bools = NDArray[np.bool_]


class JoinRegions:
    """The cross-stream joins of a part, and the regions in which each of them is active.

    Arrays are indexed by the nodes (columns) of the closure.  Regions are numbered upward; region 0 lies
    below every constant.  Streams with equal timestamps count as one stream: ``owner`` is the number of the
    time group that a column belongs to.
    """

    def __init__(
        self, part: Part, scope: Collection[str] | None = None, outer_columns: Collection[Ref] = ()
    ) -> None:
        """Restrict the joins to occurrences in ``scope`` (None: all) and ``outer_columns`` of the others."""
        self.part = part
        self.closure: Closure = part.closure
        self.time = TimeOrder(part)
        numbers = self.time.group_numbers
        self.owner = np.array([numbers[n.ref.occurrence] for n in self.closure.nodes], dtype=np.intp)
        values = np.array([n.type.domain is not Domain.TIME for n in self.closure.nodes], dtype=bool)
        self.across: Bools = (self.owner[:, None] != self.owner[None, :]) & values[:, None] & values[None, :]
        if scope is not None:
            inside = np.array([n.ref.occurrence in scope for n in self.closure.nodes], dtype=bool)
            seen = inside | np.array([n.ref in outer_columns for n in self.closure.nodes], dtype=bool)
            self.across &= np.logical_and.outer(seen, seen) & np.logical_or.outer(inside, inside)

    def wants_late(self, stream: int) -> bool:
        """Whether MAX of the stream's timestamp is asked for: of all its rows, the last one is the best.

        A later row of the stream completes the best match of the streams before it, so T2 holds.
        """
        return (stream, True) in self._time_extremes

    def wants_early(self, stream: int) -> bool:
        """Whether MIN of the stream's timestamp is asked for: its first row is the best for later rows."""
        return (stream, False) in self._time_extremes

    @cached_property
    def _time_extremes(self) -> frozenset[tuple[int, bool]]:
        """The streams of whose timestamp MAX (True) or MIN (False) is asked for."""
        found = set()
        threshold = Ref(THRESHOLD, "x")
        for column, expr in self.part.derived:
            alias = column.occurrence
            if expr == self.time.time_columns.get(alias) and threshold in self.closure.index:
                is_largest = self.closure.bound(threshold, column) is not None
                found.add((self.time.group_numbers[alias], is_largest))
        return frozenset(found)

    @cached_property
    def joins(self) -> Bools:
        """joins[i, j]: i - j is bounded across streams, and not by constants alone."""
        return self.across & self.closure.finite & ~self.closure.by_constants

    @cached_property
    def cuts(self) -> tuple[Fraction, ...]:
        """The constants between which dense columns have regions; region r lies below cut r."""
        ranges = [self.closure.range(node.ref) for node in self.closure.nodes]
        dense = np.flatnonzero(~self.closure.stepped)
        return tuple(sorted({x for i in dense for x in (ranges[i].low, ranges[i].high) if x is not None}))

    @cached_property
    def can_grow(self) -> Bools:
        """can_grow[r, i]: column i can take infinitely many values in region r."""
        closure, cuts = self.closure, self.cuts
        top = self.top
        out = np.zeros((top + 1, len(closure.nodes)), dtype=bool)
        # Dense values can crowd between the values of relations too, wherever these lie.
        loose = ~closure.stepped & ~closure.pinned
        by_itself = closure.with_anchors(()) if closure.anchors else closure
        out[0] = np.where(loose, by_itself.unbounded_below, closure.unbounded_below)
        out[top] = np.where(loose, by_itself.unbounded_above, closure.unbounded_above)
        for i in np.flatnonzero(loose):
            values = closure.range(closure.nodes[i].ref)
            for r in range(1, top):
                out[r, i] = (values.low is None or values.low <= cuts[r - 1]) and (
                    values.high is None or values.high >= cuts[r]
                )
        return out

    @property
    def numbers(self) -> range:
        """The numbers of the regions."""
        return range(self.top + 1)

    @property
    def top(self) -> int:
        """The number of the region above every constant."""
        return max(len(self.cuts), 1)

    @cached_property
    def active(self) -> NDArray[np.bool_]:
        """active[r, i, j]: the join i, j with both sides in region r.

        Two columns with limited numbers of values grow in no region.
        """
        limited = self.closure.is_limited
        joins = self.joins & ~np.logical_and.outer(limited, limited)
        return joins & self.can_grow[:, :, None] & self.can_grow[:, None, :]

    @cached_property
    def is_lower(self) -> Bools:
        """is_lower[r, i]: column i is the lower side of a join active in region r."""
        return np.asarray(self.active.any(axis=2))

    @cached_property
    def is_upper(self) -> Bools:
        """is_upper[r, i]: column i is the upper side of a join active in region r."""
        return np.asarray(self.active.any(axis=1))

    @cached_property
    def members(self) -> Bools:
        """members[s, i]: column i belongs to time group s."""
        return np.asarray(np.arange(len(self.time.groups))[:, None] == self.owner[None, :])

    def find_joined_columns(self) -> tuple[int, ...]:
        """The columns that take part in an active join."""
        return tuple(int(i) for i in np.flatnonzero((self.is_lower | self.is_upper).any(axis=0)))

    def find_top_region(self, column: int) -> int:
        """The highest region in which an unbounded column can grow."""
        return int(np.flatnonzero(self.can_grow[:, column])[-1])
