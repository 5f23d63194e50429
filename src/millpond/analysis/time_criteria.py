"""The criteria of paper 2 for streams with application time, as corrected here.

Rows arrive in the order of their timestamps.  A row that must be earlier than its partners has always
arrived before them, so the partners need not be kept for it.

``decide_counted_join_in_time`` corrects Theorem 1 (with duplicates), which requires more than is needed.
``decide_existence_join_in_time`` corrects Theorem 2 (DISTINCT), which accepts some unbounded queries and
refuses some bounded ones; its conditions are C1 and C2 of paper 1, T1 and T2.  ``paper_verdict.py`` has the
theorems as published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from millpond.analysis.column_orders import ColumnOrders, TooManyOrders, enumerate_column_orders
from millpond.analysis.join_criteria import (
    decide_counted_join,
    find_unbounded_equality_joins,
    find_unbounded_projections,
)
from millpond.analysis.regions import Bools, JoinRegions
from millpond.analysis.violations import MovingColumns, Violation, ViolationCode
from millpond.query.expressions import Ref

# The direction of a join's requirement: the lower side should be small, the upper side large.
SMALL, LARGE = 0, 1
# Pairs of joins that are tried when there are too many orders.
_MAX_PAIRS = 200


def decide_counted_join_in_time(
    regions: JoinRegions, projected: Sequence[Ref], code: ViolationCode, keys: Collection[Ref] | None
) -> list[Violation]:
    """Decide Theorem 1 of paper 2, corrected (duplicate-preserving); no violation means bounded.

    It is Theorem 5.6 of paper 1, except that columns projected from the last group may be unbounded if
    results are written at once and not remembered (``keys`` is None), or if they close.
    """
    order = regions.time
    if keys is None:
        kept = tuple(ref for ref in projected if ref.occurrence not in (order.last_group or ()))
    else:
        kept = order.find_remembered_columns(projected, keys)
    return decide_counted_join(regions, kept, code)


def decide_existence_join_in_time(
    regions: JoinRegions, projected: Sequence[Ref], code: ViolationCode, keys: Collection[Ref]
) -> list[Violation]:
    """Decide Theorem 2 of paper 2, corrected (duplicate-eliminating): C1, C2, T1 and T2.

    If results close, columns of the last group may be unbounded.  No violation means bounded; raises
    TooManyOrders if T1 and T2 cannot be decided.
    """
    kept = regions.time.find_remembered_columns(projected, keys)
    found = [*find_unbounded_projections(regions, kept, code), *find_unbounded_equality_joins(regions)]
    try:
        conflict = find_conflict_in_time(regions)
    except TooManyOrders:
        if found:
            return found
        raise
    return [*found, conflict] if conflict is not None else found


def find_conflict_in_time(regions: JoinRegions) -> Violation | None:
    """The first violation of T1 or T2 in a derived query.

    If there are too many derived queries, a sufficient condition may exclude a conflict, and pairs of joins
    may show one; raises TooManyOrders if neither does.
    """
    try:
        return find_conflict_among(regions, regions.find_joined_columns())
    except TooManyOrders:
        if is_free_of_conflict(regions):
            return None
        for columns in _enumerate_join_pairs(regions):
            found = find_conflict_among(regions, columns)
            if found is not None:
                return found
        raise


def is_free_of_conflict(regions: JoinRegions) -> bool:
    """Whether T1 and T2 hold even if no join is redundant and columns are alike only if they always are."""
    columns = regions.find_joined_columns()
    among = np.ix_(columns, columns)
    joins = (regions.joins & regions.across)[among]
    below, nowhere = regions.closure.below[among], np.zeros((1, len(columns)), np.int8)
    criteria = _TimeCriteria(regions, ColumnOrders(columns, below[None], nowhere, joins[None]))
    return not any(criteria.may_conflict(stream) for stream in criteria.streams)


def _enumerate_join_pairs(regions: JoinRegions) -> Iterator[tuple[int, ...]]:
    """The columns of any two cross-stream joins."""
    joins = np.argwhere(regions.joins & regions.across)
    for one, other in islice(combinations(joins.tolist(), 2), _MAX_PAIRS):
        yield tuple(sorted({*one, *other}))


def find_conflict_among(regions: JoinRegions, columns: tuple[int, ...]) -> Violation | None:
    """The first violation of T1 or T2 that involves only these columns; raises TooManyOrders."""
    for orders in enumerate_column_orders(regions, columns):
        criteria = _TimeCriteria(regions, orders)
        for stream in criteria.streams:
            found = criteria.find_conflicting_references(stream) or criteria.find_conflicting_times(stream)
            if found is not None:
                return found
    return None


class _TimeCriteria:
    """T1 and T2 on a batch of derived queries.

    Streams are numbered by their time groups.  Both conditions look at joins with columns *outside* of a
    stream: those of streams whose rows need not be earlier.
    """

    def __init__(self, regions: JoinRegions, orders: ColumnOrders) -> None:
        self.regions = regions
        self.orders = orders
        self.owner = regions.owner[list(orders.columns)]
        self.streams = list(dict.fromkeys(self.owner.tolist()))
        self.alike = orders.alike

    def find_conflicting_references(self, stream: int) -> Violation | None:
        """T1: the stream's joins to columns outside must use one class of columns, in one direction."""
        small, large = self._joins_to(stream, self._outside(stream))
        is_small, is_large = np.asarray(small.any(axis=2)), np.asarray(large.any(axis=2))
        for q in np.flatnonzero(is_small.any(axis=1) & is_large.any(axis=1))[:1]:
            return self._build_violation(int(q), (stream, SMALL, small), (stream, LARGE, large))
        for direction, joins, used in ((SMALL, small, is_small), (LARGE, large, is_large)):
            different = used[:, :, None] & used[:, None, :] & ~self.alike
            for q in np.flatnonzero(different.any(axis=(1, 2)))[:1]:
                x, y = np.argwhere(different[q])[0]
                first, second = np.zeros_like(joins), np.zeros_like(joins)
                first[:, x], second[:, y] = joins[:, x], joins[:, y]
                return self._build_violation(int(q), (stream, direction, first), (stream, direction, second))
        return None

    def find_conflicting_times(self, stream: int) -> Violation | None:
        """T2: the stream and one before it must have the same partners outside, or one of them has none."""
        time = self.regions.time
        outside = self._outside(stream)
        later = self._joins_to(stream, outside)
        before = time.groups_up_to(time.groups[stream])
        for number, group in enumerate(time.groups):
            if group not in before or number == stream or number not in self.streams:
                continue
            if self.regions.wants_late(stream) or self.regions.wants_early(number):
                continue
            earlier = self._joins_to(number, outside)
            mine, theirs = self._partners(later), self._partners(earlier)
            busy = mine.any(axis=(1, 2)) & theirs.any(axis=(1, 2))
            for q in np.flatnonzero(busy & (mine != theirs).any(axis=(1, 2)))[:1]:
                first = _choose(theirs[q] & ~mine[q], theirs[q])
                second = _choose(mine[q] & ~theirs[q], mine[q])
                return self._build_violation(
                    int(q),
                    (number, first[0], self._joins_with(earlier, int(q), first)),
                    (stream, second[0], self._joins_with(later, int(q), second)),
                    kept=stream,
                )
        return None

    def may_conflict(self, stream: int) -> bool:
        """Whether the stream has two different joins outside, or one, and a stream before it has one too."""
        time, outside = self.regions.time, self._outside(stream)
        small, large = (np.asarray(joins.any(axis=(0, 2))) for joins in self._joins_to(stream, outside))
        used = np.flatnonzero(small | large)
        if (small.any() and large.any()) or not self.alike[0][np.ix_(used, used)].all():
            return True
        before = [time.groups.index(group) for group in time.groups_up_to(time.groups[stream])]
        joined = (joins.any() for e in before if e != stream for joins in self._joins_to(e, outside))
        return bool(len(used)) and any(joined)

    def _outside(self, stream: int) -> Bools:
        """The columns of streams that need not be before ``stream``."""
        time = self.regions.time
        inside = {time.groups.index(group) for group in time.groups_up_to(time.groups[stream])}
        return ~np.isin(self.owner, list(inside))

    def _joins_to(self, stream: int, outside: Bools) -> tuple[Bools, Bools]:
        """joins[direction][q, x, z]: column x of the stream has an essential join with z outside."""
        own = self.owner == stream
        mask = own[:, None] & outside[None, :]
        return self.orders.essential & mask, self.orders.essential.transpose(0, 2, 1) & mask

    def _partners(self, joins: tuple[Bools, Bools]) -> Bools:
        """partners[q, direction, z]: there is a join with z or with a column that is alike."""
        found = np.stack([each.any(axis=1) for each in joins], axis=1)
        return np.asarray((found.astype(np.float32) @ self.alike.astype(np.float32)) > 0)

    def _joins_with(self, joins: tuple[Bools, Bools], q: int, partner: tuple[int, int]) -> Bools:
        """The joins with a partner (direction, column) or with columns alike; all, if query q has none."""
        direction, z = partner
        found = joins[direction] & self.alike[:, z][:, None, :]
        return found if found[q].any() else joins[direction]

    def _build_violation(
        self,
        q: int,
        first: tuple[int, int, Bools],
        second: tuple[int, int, Bools],
        kept: int | None = None,
    ) -> Violation:
        """The violation by two (stream, direction, joins) in query q; of T2 if ``kept`` is given, else T1."""
        pairs, places = [], []
        for _, direction, joins in (first, second):
            x, z = np.argwhere(joins[q])[0]
            pairs.append((int(x), int(z)) if direction == SMALL else (int(z), int(x)))
            places.append(int(self.orders.region[q, x]))
        stated = tuple((self._ref(low), self._ref(high)) for low, high in pairs)
        columns = tuple(dict.fromkeys(ref for pair in stated for ref in pair))
        stream = kept if kept is not None else second[0]
        own = {self._ref(int(i)) for i in np.flatnonzero(self.owner == stream)}
        held = next(ref for pair in reversed(stated) for ref in pair if ref in own)
        rank = self._rank(q)
        together = tuple(sorted(columns, key=lambda ref: rank[ref]))
        moves = _propose_moves(stated, together, places, second[1] != first[1])
        code = ViolationCode.CONFLICTING_REFERENCES if kept is None else ViolationCode.CONFLICTING_TIMES
        violation = Violation(code, held.occurrence, columns, stated, moves[0])
        return replace(violation, alternatives=tuple(moves[1:]))

    def _ref(self, column: int) -> Ref:
        return self.regions.closure.nodes[self.orders.columns[column]].ref

    def _rank(self, q: int) -> dict[Ref, int]:
        """The number of columns below each column in query q."""
        below = self.orders.below[q].sum(axis=0)
        return {self._ref(i): int(below[i]) for i in range(len(self.orders.columns))}


def _choose(preferred: NDArray[np.bool_], otherwise: NDArray[np.bool_]) -> tuple[int, int]:
    """The first (direction, column) that is preferred or, if there is none, the first of the others."""
    found = np.argwhere(preferred if preferred.any() else otherwise)[0]
    return int(found[0]), int(found[1])


def _propose_moves(
    joins: Sequence[tuple[Ref, Ref]], together: tuple[Ref, ...], regions: Sequence[int], opposed: bool
) -> list[tuple[MovingColumns, ...]]:
    """Ways to move the columns of two joins in a witness, the most promising first.

    Joins in opposed directions move together; joins in the same direction move against each other, one
    above the other.
    """
    shared = len(together) < 4
    as_one: list[tuple[MovingColumns, ...]] = []
    if len(set(regions)) == 1:
        as_one = [(MovingColumns(together, regions[0], direction),) for direction in (-1, 1)]
    if shared:
        return as_one
    crossing, parallel = (
        [
            (
                MovingColumns(joins[0], regions[0], direction, level),
                MovingColumns(joins[1], regions[1], sign * direction, 1 - level),
            )
            for direction in (-1, 1)
            for level in (0, 1)
        ]
        for sign in (-1, 1)
    )
    return [*as_one, *parallel, *crossing] if opposed else [*crossing, *parallel, *as_one]
