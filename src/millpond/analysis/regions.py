"""Where joined columns can go on taking new values: the regions beyond and between constants.

Integers crowd only below the smallest and above the largest constant.  Dense values crowd between any
two constants as well.  A join can cost memory only where both its ends can lie in one region.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from millpond.query.closure import Closure
from millpond.query.model import Ref
from millpond.query.parts import Part
from millpond.query.time_order import TimeOrder
from millpond.query.types import Domain

Bools = NDArray[np.bool_]


class Ordering:
    """The cross-stream joins of a part and the regions they can be active in.

    Arrays are indexed by the closure's nodes; regions count upward, 0 being below every constant.
    Streams with equal timestamps are one stream; ``owner`` is its number.
    """

    def __init__(
        self, part: Part, scope: Collection[str] | None = None, outer_columns: Collection[Ref] = ()
    ) -> None:
        """``scope`` restricts the view to some occurrences, and to ``outer_columns`` of the others."""
        self.part = part
        self.closure: Closure = part.closure
        self.time = TimeOrder(part)
        groups = self.time.group_numbers
        self.owner = np.array([groups[n.ref.occurrence] for n in self.closure.nodes], dtype=np.intp)
        values = np.array([n.type.domain is not Domain.TIME for n in self.closure.nodes], dtype=bool)
        self.across: Bools = (self.owner[:, None] != self.owner[None, :]) & values[:, None] & values[None, :]
        if scope is not None:
            inside = np.array([n.ref.occurrence in scope for n in self.closure.nodes], dtype=bool)
            seen = inside | np.array([n.ref in outer_columns for n in self.closure.nodes], dtype=bool)
            self.across &= np.logical_and.outer(seen, seen) & np.logical_or.outer(inside, inside)

    @cached_property
    def joins(self) -> Bools:
        """joins[i, j]: i - j is bounded across streams, and not by constants alone."""
        return self.across & self.closure.finite & ~self.closure.by_constants

    @cached_property
    def possible(self) -> Bools:
        """possible[r, i]: column i can take any number of values in region r."""
        closure = self.closure
        n = len(closure.nodes)
        ranges = [closure.range(node.ref) for node in closure.nodes]
        dense = [i for i in range(n) if not closure.stepped[i]]
        cuts = sorted({x for i in dense for x in (ranges[i].low, ranges[i].high) if x is not None})
        top = max(len(cuts), 1)
        out = np.zeros((top + 1, n), dtype=bool)
        # Dense values crowd between those of relations as well, wherever these may lie.
        loose = ~closure.stepped & ~closure.pinned
        by_itself = closure.with_anchors(()) if closure.anchors else closure
        out[0] = np.where(loose, by_itself.unbounded_below, closure.unbounded_below)
        out[top] = np.where(loose, by_itself.unbounded_above, closure.unbounded_above)
        for i in np.flatnonzero(loose):
            low, high = ranges[i].low, ranges[i].high
            for r in range(1, top):
                out[r, i] = (low is None or low <= cuts[r - 1]) and (high is None or high >= cuts[r])
        self.cuts = tuple(cuts)
        return out

    @cached_property
    def active(self) -> NDArray[np.bool_]:
        """active[r, i, j]: the join i, j with both ends in region r."""
        return self.joins & self.possible[:, :, None] & self.possible[:, None, :]

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
        """members[s, i]: column i belongs to stream s."""
        return np.asarray(np.arange(len(self.time.groups))[:, None] == self.owner[None, :])
