"""Application time (paper 2, corrected): the conditions for streams that are ordered in time.

A row that must be earlier is in the past when the later one comes, so it need not be kept for rows
still to come.  With duplicates this frees the last stream of all (Theorem 1 of paper 2 asks for more
than is needed).  Without, a stream's joins matter only towards those that need not be before it
(Theorem 2 of paper 2 both allows and refuses too much).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from millpond.analysis.derived_orders import Orders, TooManyOrders, derived_orders, joined_columns
from millpond.analysis.join_criteria import (
    Track,
    Violation,
    duplicate_preserving,
    unbounded_equality,
    unbounded_projection,
)
from millpond.analysis.regions import Bools, Ordering
from millpond.query.model import Ref

# Joins that ask for a small value of their own column, and those that ask for a large one.
LOW, HIGH = 0, 1
# Pairs of joins that are looked at by themselves.
_MAX_PAIRS = 200


def counted_in_time(
    ordering: Ordering, projected: Iterable[Ref], code: str, answered_at_once: bool
) -> list[Violation]:
    """Duplicate preserving: Theorem 5.6 of paper 1 but for what the last stream projects.

    ``answered_at_once``: a result is written and forgotten, not added to a group that stays.
    """
    last = ordering.time.last_group
    kept = [ref for ref in projected if not answered_at_once or last is None or ref.occurrence not in last]
    return duplicate_preserving(ordering, kept, code)


def looked_for_in_time(ordering: Ordering, projected: Iterable[Ref], code: str) -> list[Violation]:
    """Duplicate eliminating: C1, C2, T1 and T2; raises TooManyOrders."""
    found = [*unbounded_projection(ordering, projected, code), *unbounded_equality(ordering)]
    try:
        conflict = conflict_in_time(ordering)
    except TooManyOrders:
        if found:
            return found
        raise
    return [*found, conflict] if conflict is not None else found


def conflict_in_time(ordering: Ordering) -> Violation | None:
    """T1 and T2 on every derived query; the first conflict found.

    Where there are too many, all joins at once may rule one out, and two at a time may show one; raises
    TooManyOrders if neither does.
    """
    try:
        return conflict_among(ordering, joined_columns(ordering))
    except TooManyOrders:
        if is_free_of_conflict(ordering):
            return None
        for columns in _two_joins(ordering):
            found = conflict_among(ordering, columns)
            if found is not None:
                return found
        raise


def is_free_of_conflict(ordering: Ordering) -> bool:
    """T1 and T2 hold even if no join were redundant, and no two columns alike but those that always are."""
    columns = joined_columns(ordering)
    among = np.ix_(columns, columns)
    joins = (ordering.joins & ordering.across)[among]
    below, nowhere = ordering.closure.below[among], np.zeros((1, len(columns)), np.int8)
    streams = _Streams(ordering, Orders(columns, below[None], nowhere, joins[None]))
    return not any(streams.may_conflict(stream) for stream in streams.numbers)


def _two_joins(ordering: Ordering) -> Iterator[tuple[int, ...]]:
    """The columns of any two joins across streams."""
    joins = np.argwhere(ordering.joins & ordering.across)
    for one, other in islice(combinations(joins.tolist(), 2), _MAX_PAIRS):
        yield tuple(sorted({*one, *other}))


def conflict_among(ordering: Ordering, columns: tuple[int, ...]) -> Violation | None:
    """The first conflict in the derived queries in terms of some columns; raises TooManyOrders."""
    for orders in derived_orders(ordering, columns):
        streams = _Streams(ordering, orders)
        for stream in streams.numbers:
            found = streams.two_demands(stream) or streams.earlier_and_later(stream)
            if found is not None:
                return found
    return None


class _Streams:
    """The joins of each stream towards those that need not be before some stream."""

    def __init__(self, ordering: Ordering, orders: Orders) -> None:
        self.ordering = ordering
        self.orders = orders
        self.owner = ordering.owner[list(orders.columns)]
        self.numbers = list(dict.fromkeys(self.owner.tolist()))
        self.alike = orders.alike

    def _outside(self, stream: int) -> Bools:
        """Columns of streams that need not be before ``stream``."""
        time = self.ordering.time
        inside = {time.groups.index(group) for group in time.groups_up_to(time.groups[stream])}
        return ~np.isin(self.owner, list(inside))

    def _demands(self, stream: int, outside: Bools) -> tuple[Bools, Bools]:
        """demands[direction][q, x, z]: column x of the stream is joined with z outside."""
        own = self.owner == stream
        mask = own[:, None] & outside[None, :]
        return self.orders.essential & mask, self.orders.essential.transpose(0, 2, 1) & mask

    def may_conflict(self, stream: int) -> bool:
        """Whether it asks streams outside for two things, or for one, and so does a stream before it."""
        time, outside = self.ordering.time, self._outside(stream)
        low, high = (np.asarray(demand.any(axis=(0, 2))) for demand in self._demands(stream, outside))
        used = np.flatnonzero(low | high)
        if (low.any() and high.any()) or not self.alike[0][np.ix_(used, used)].all():
            return True
        before = [time.groups.index(group) for group in time.groups_up_to(time.groups[stream])]
        asking = (d.any() for e in before if e != stream for d in self._demands(e, outside))
        return bool(len(used)) and any(asking)

    def two_demands(self, stream: int) -> Violation | None:
        """T1: its joins to streams outside use one class of columns in one direction."""
        low, high = self._demands(stream, self._outside(stream))
        is_low, is_high = np.asarray(low.any(axis=2)), np.asarray(high.any(axis=2))
        for q in np.flatnonzero(is_low.any(axis=1) & is_high.any(axis=1))[:1]:
            return self._violation(int(q), (stream, LOW, low), (stream, HIGH, high))
        for direction, demand, used in ((LOW, low, is_low), (HIGH, high, is_high)):
            different = used[:, :, None] & used[:, None, :] & ~self.alike
            for q in np.flatnonzero(different.any(axis=(1, 2)))[:1]:
                x, y = np.argwhere(different[q])[0]
                first, second = np.zeros_like(demand), np.zeros_like(demand)
                first[:, x], second[:, y] = demand[:, x], demand[:, y]
                return self._violation(int(q), (stream, direction, first), (stream, direction, second))
        return None

    def earlier_and_later(self, stream: int) -> Violation | None:
        """T2: a stream before it has the same partners outside as it has, or one of the two has none."""
        time = self.ordering.time
        outside = self._outside(stream)
        later = self._demands(stream, outside)
        for group in time.groups_up_to(time.groups[stream]):
            number = time.groups.index(group)
            if number == stream or number not in self.numbers:
                continue
            earlier = self._demands(number, outside)
            mine, theirs = self._partners(later), self._partners(earlier)
            busy = mine.any(axis=(1, 2)) & theirs.any(axis=(1, 2))
            for q in np.flatnonzero(busy & (mine != theirs).any(axis=(1, 2)))[:1]:
                return self._between(int(q), number, earlier, theirs, stream, later, mine)
        return None

    def _partners(self, demands: tuple[Bools, Bools]) -> Bools:
        """partners[q, direction, z]: a join with z, or with a column that is like it."""
        found = np.stack([demand.any(axis=1) for demand in demands], axis=1)
        return np.asarray((found.astype(np.float32) @ self.alike.astype(np.float32)) > 0)

    def _between(
        self,
        q: int,
        early: int,
        earlier: tuple[Bools, Bools],
        theirs: Bools,
        late: int,
        later: tuple[Bools, Bools],
        mine: Bools,
    ) -> Violation:
        """The two joins that differ, where there is a choice."""
        a = _one_of(theirs[q] & ~mine[q], theirs[q])
        b = _one_of(mine[q] & ~theirs[q], mine[q])
        return self._violation(
            q, (early, a[0], self._to(earlier, q, a)), (late, b[0], self._to(later, q, b)), keeper=late
        )

    def _to(self, demands: tuple[Bools, Bools], q: int, partner: tuple[int, int]) -> Bools:
        """The joins with one partner or its like; the like of a partner may be the one that is joined."""
        direction, z = partner
        kept = demands[direction] & self.alike[:, z][:, None, :]
        return kept if kept[q].any() else demands[direction]

    def _violation(
        self,
        q: int,
        first: tuple[int, int, Bools],
        second: tuple[int, int, Bools],
        keeper: int | None = None,
    ) -> Violation:
        pairs, regions = [], []
        for _, direction, demand in (first, second):
            x, z = np.argwhere(demand[q])[0]
            pairs.append((int(x), int(z)) if direction == LOW else (int(z), int(x)))
            regions.append(int(self.orders.region[q, x]))
        joins = tuple((self._ref(low), self._ref(high)) for low, high in pairs)
        columns = tuple(dict.fromkeys(ref for pair in joins for ref in pair))
        stream = keeper if keeper is not None else second[0]
        own = {self._ref(int(i)) for i in np.flatnonzero(self.owner == stream)}
        held = next(ref for pair in reversed(joins) for ref in pair if ref in own)
        together = _sorted(columns, self._rank(q))
        layouts = _layouts(joins, together, regions, second[1] != first[1])
        code = "conflicting-references" if keeper is None else "conflicting-times"
        violation = Violation(code, held.occurrence, columns, joins, layouts[0])
        return replace(violation, alternatives=tuple(layouts[1:]))

    def _ref(self, column: int) -> Ref:
        return self.ordering.closure.nodes[self.orders.columns[column]].ref

    def _rank(self, q: int) -> dict[Ref, int]:
        """How many columns lie below each."""
        below = self.orders.below[q].sum(axis=0)
        return {self._ref(i): int(below[i]) for i in range(len(self.orders.columns))}


def _one_of(preferred: NDArray[np.bool_], otherwise: NDArray[np.bool_]) -> tuple[int, int]:
    found = np.argwhere(preferred if preferred.any() else otherwise)[0]
    return int(found[0]), int(found[1])


def _sorted(columns: Sequence[Ref], rank: dict[Ref, int]) -> tuple[Ref, ...]:
    return tuple(sorted(columns, key=lambda ref: rank[ref]))


def _layouts(
    joins: Sequence[tuple[Ref, Ref]], together: tuple[Ref, ...], regions: Sequence[int], opposed: bool
) -> list[tuple[Track, ...]]:
    """Ways to let the two joins move with the rounds, the likeliest first.

    Opposed demands move together; equal ones in opposite directions, one above the other.
    """
    shared = len(together) < 4
    moving: list[tuple[Track, ...]] = []
    if len(set(regions)) == 1:
        moving = [(Track(together, regions[0], slope),) for slope in (-1, 1)]
    if shared:
        return moving
    crossing: list[tuple[Track, ...]] = [
        (Track(joins[0], regions[0], slope, level), Track(joins[1], regions[1], -slope, 1 - level))
        for slope in (-1, 1)
        for level in (0, 1)
    ]
    parallel: list[tuple[Track, ...]] = [
        (Track(joins[0], regions[0], slope, level), Track(joins[1], regions[1], slope, 1 - level))
        for slope in (-1, 1)
        for level in (0, 1)
    ]
    return [*moving, *parallel, *crossing] if opposed else [*crossing, *parallel, *moving]
