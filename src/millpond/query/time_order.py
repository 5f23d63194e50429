"""The order in time that a part implies for its streams: which come before which, which at the same time.

Rows of all streams arrive in the order of their timestamps, so a row that must be earlier has arrived when
the later one does.  Occurrences whose timestamps are equal, or never further apart than a window, form a
*time group*.  The relations form one too, which is complete from the start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations, permutations

from millpond.query.buckets import find_bucket, find_time_function
from millpond.query.closure import Closure
from millpond.query.expressions import Arithmetic, Expr, Literal, Ref
from millpond.query.model import Select
from millpond.query.parts import Part, is_threshold
from millpond.query.trees import is_aggregate
from millpond.query.types import Domain, Family

# The aliases of occurrences with equal timestamps, or within a window of each other.
TimeGroup = tuple[str, ...]


def find_time_column(select: Select, alias: str) -> Ref | None:
    """The time column of an occurrence; None if it is a relation or has none."""
    table = next((o.table for o in select.occurrences if o.alias == alias), None)
    return Ref(alias, table.time) if table is not None and table.streaming and table.time else None


def find_time_columns(select: Select) -> dict[str, Ref]:
    """The time column of each occurrence that has one."""
    found = {o.alias: find_time_column(select, o.alias) for o in select.occurrences}
    return {alias: ref for alias, ref in found.items() if ref is not None}


def find_result_keys(select: Select, distinct: bool) -> tuple[Ref, ...]:
    """The columns that every result has for itself: those of GROUP BY or, under DISTINCT, of the select list.

    None if duplicates are kept: then no result is remembered.
    """
    if is_aggregate(select):
        return tuple(select.group_by or ())
    found = [find_key_column(item.expression) for item in select.items] if distinct else []
    return tuple(dict.fromkeys(ref for ref in found if ref is not None))


def find_key_column(expr: Expr) -> Ref | None:
    """The column that the value of an expression determines."""
    match expr:
        case Ref():
            return expr
        case Arithmetic(operator="+" | "-", left=Ref() as ref, right=Literal()):
            return ref
    return None


def is_timed(part: Part, keys: Collection[Ref] = ()) -> bool:
    """Whether timestamps matter.

    The part compares timestamps of streams, has finite streams, relations, or columns of which only the
    number of values is known; or its results, which are told apart by ``keys``, close.
    """
    order = TimeOrder(part)
    if part.closure.anchors or part.closure.limited or order.relations:
        return True
    if any(order.is_finite(group) for group in order.groups):
        return True
    if order.find_closing_columns(keys):
        return True
    if any(len(group) > 1 for group in order.groups):
        return True
    return any(
        order.is_not_after(a, b) or order.is_not_after(b, a) or order.is_never_together(a, b)
        for a, b in combinations(order.groups, 2)
    )


@dataclass(frozen=True)
class TimeOrder:
    """What a part implies for the timestamps of its occurrences.

    A time group is *finite* if it has finitely many rows (relations, and streams whose timestamps are bounded
    above) and *endless* otherwise.
    """

    part: Part

    @cached_property
    def _closure(self) -> Closure:
        return self.part.closure

    @cached_property
    def time_columns(self) -> dict[str, Ref]:
        """The time columns that conditions mention."""
        known = find_time_columns(self.part.select)
        return {alias: ref for alias, ref in known.items() if ref in self._closure.index}

    @cached_property
    def relations(self) -> TimeGroup:
        """The occurrences of relations."""
        return tuple(o.alias for o in self.part.select.occurrences if not o.table.streaming)

    @cached_property
    def groups(self) -> tuple[TimeGroup, ...]:
        """The time groups: the relations first, if there are any, then the streams."""
        groups: list[list[str]] = [list(self.relations)] if self.relations else []
        for alias in self.part.aliases:
            if alias in self.relations:
                continue
            mine = self.time_columns.get(alias)
            for group in groups:
                other = self.time_columns.get(group[0])
                if mine is not None and other is not None and self._share_a_window(mine, other):
                    group.append(alias)
                    break
            else:
                groups.append([alias])
        return tuple(tuple(group) for group in groups)

    def _share_a_window(self, one: Ref, other: Ref) -> bool:
        """Whether the two timestamps are equal, or their distance is bounded in both directions."""
        if self._closure.has_fixed_difference(one, other):
            return True
        return self._lag(one, other) is not None and self._lag(other, one) is not None

    def _lag(self, one: Ref, other: Ref) -> tuple[Fraction, bool] | None:
        """The bound of ``one - other`` and whether it is strict; None without one.

        Two timestamps that are only compared with constants are not bounded by each other.
        """
        bound = self._closure.bound(one, other)
        if bound is None or bound[0] <= 0:
            return bound
        i, j = self._closure.index[one], self._closure.index[other]
        return None if self._closure.by_constants[i, j] else bound

    @cached_property
    def group_numbers(self) -> dict[str, int]:
        """The number of each occurrence's time group."""
        return {alias: i for i, group in enumerate(self.groups) for alias in group}

    def group_of(self, alias: str) -> TimeGroup:
        """The time group of an occurrence."""
        return self.groups[self.group_numbers[alias]]

    def is_not_after(self, earlier: TimeGroup, later: TimeGroup) -> bool:
        """Whether ``earlier`` comes before ``later`` or, with windows, at most a fixed time after it."""
        return self._bound(earlier, later) is not None

    def is_before(self, earlier: TimeGroup, later: TimeGroup) -> bool:
        """Whether ``earlier.ts < later.ts`` in every match."""
        bound = self._bound(earlier, later)
        return bound is not None and bound[1]

    def is_never_together(self, a: TimeGroup, b: TimeGroup) -> bool:
        """Whether ``a.ts <> b.ts`` in every match."""
        if self.is_before(a, b) or self.is_before(b, a):
            return True
        mine = {self.time_columns[alias] for alias in a if alias in self.time_columns}
        other = {self.time_columns[alias] for alias in b if alias in self.time_columns}
        return any(
            (d.left in mine and d.right in other) or (d.left in other and d.right in mine)
            for d in self.part.apart
        )

    def _bound(self, a: TimeGroup, b: TimeGroup) -> tuple[int, bool] | None:
        """(0, whether ``a`` is before ``b``) if ``a`` is not after ``b``, else None."""
        if a == self.relations or b == self.relations:
            return (0, True) if a == self.relations and a != b else None
        x, y = self.time_columns.get(a[0]), self.time_columns.get(b[0])
        if x is None or y is None or a == b:
            return None
        bound = self._lag(x, y)
        if bound is None:
            return None
        return 0, bound[0] < 0 or (bound[0] == 0 and bound[1])

    # --- windows -------------------------------------------------------------------------------------------

    def max_lag(self, alias: str, behind: str) -> int | None:
        """By how many microseconds a row can be later than the row of ``behind`` that it matches at most.

        A negative number if it must be earlier, None if it can be any time later.
        """
        if alias not in self.time_columns or behind not in self.time_columns:
            return None
        bound = self._lag(self.time_columns[alias], self.time_columns[behind])
        return None if bound is None else int(bound[0] - bound[1])

    @cached_property
    def horizon(self) -> int:
        """The longest distance, in microseconds, at which conditions compare timestamps; 0 without windows.

        For rows further apart than that, conditions on timestamps hold if their groups are in order.
        """
        widths = self._bucket_widths
        apart = [
            int(abs(d.value)) + widths[d.left] + widths[d.right]
            for d in self.part.apart
            if d.left in widths and d.right in widths
        ]
        stated = [
            (abs(d.bound), widths[d.left] + widths[d.right])
            for d in (edge.difference for edge in self.part.edges)
            if d.left is not None and d.right is not None and d.left.occurrence != d.right.occurrence
            if d.left in widths and d.right in widths
        ]
        if not any(apart) and not any(distance or width for distance, width in stated):
            return 0
        pairs = [
            (a, b)
            for a, b in permutations(self.time_columns, 2)
            if not self._closure.by_constants[self._position(a), self._position(b)]
        ]
        lags = [abs(lag) for pair in pairs if (lag := self.max_lag(*pair)) is not None]
        return max(
            [*lags, *apart, *(int(distance) + width for distance, width in stated if width)], default=0
        )

    @cached_property
    def _bucket_widths(self) -> dict[Ref | None, int]:
        """The time columns and their buckets, with the most by which a row can be later than its bucket."""
        widths: dict[Ref | None, int] = dict.fromkeys(self.time_columns.values(), 0)
        for node in self._closure.nodes:
            time = self.time_columns.get(node.ref.occurrence)
            if time is None or node.ref == time:
                continue
            late = self._closure.bound(time, node.ref)
            is_function = find_time_function(self.part.select, node.ref) is not None
            is_bucket = is_function and node.type.domain is Domain.TIME
            if late is not None and (is_bucket or self._is_near(node.ref, time)):
                widths[node.ref] = int(late[0])
        return widths

    def _is_near(self, ref: Ref, time: Ref) -> bool:
        """Whether it is known of a timestamp of a row that it is near its time, in both directions."""
        stated = {(edge.difference.left, edge.difference.right) for edge in self.part.edges}
        is_time = self._closure.nodes[self._closure.index[ref]].type.family is Family.TIME
        return is_time and {(ref, time), (time, ref)} <= stated

    def _position(self, alias: str) -> int:
        """The node of an occurrence's time column in the closure."""
        return self._closure.index[self.time_columns[alias]]

    def is_finite(self, group: TimeGroup) -> bool:
        """Whether the group has finitely many rows."""
        if group == self.relations:
            return True
        ref = self.time_columns.get(group[0])
        return ref is not None and not self._closure.unbounded_above[self._closure.index[ref]]

    @cached_property
    def endless(self) -> tuple[TimeGroup, ...]:
        """The groups that are not finite."""
        return tuple(group for group in self.groups if not self.is_finite(group))

    def groups_up_to(self, group: TimeGroup) -> frozenset[TimeGroup]:
        """The group itself and the endless groups that are not after it."""
        return frozenset({group} | {other for other in self.endless if self.is_not_after(other, group)})

    @cached_property
    def last_group(self) -> TimeGroup | None:
        """The group that no other endless group comes after: its rows are answered at once and not kept."""
        streams = [group for group in self.endless if not all(map(is_threshold, group))]
        for group in streams:
            if all(other == group or self.is_not_after(other, group) for other in streams):
                return group
        return None

    # --- results that close ----------------------------------------------------------------------------

    def find_closing_columns(self, keys: Collection[Ref]) -> tuple[Ref, ...]:
        """The time columns of the last group of which the keys of a result contain a value, or a bucket.

        If there is one, the result *closes*: its rows come only within a window of that timestamp or bucket,
        and after that it never changes again.
        """
        select, last = self.part.select, self.last_group or ()
        closing = [alias for alias in last if find_bucket(select, alias, keys) is not None]
        found = (find_time_column(select, alias) for alias in closing)
        return tuple(ref for ref in found if ref is not None)

    def find_remembered_columns(self, columns: Sequence[Ref], keys: Collection[Ref]) -> tuple[Ref, ...]:
        """The columns of results that are remembered for ever; none of the last group if results close."""
        exempt = (self.last_group or ()) if self.find_closing_columns(keys) else ()
        return tuple(ref for ref in columns if ref.occurrence not in exempt)

    # --- partial matches -------------------------------------------------------------------------------

    def can_be_partial(self, members: Collection[TimeGroup]) -> bool:
        """Whether rows of ``members`` can have arrived while those of all other groups are still to come."""
        return not any(
            self.is_not_after(other, member)
            for member in members
            for other in self.groups
            if other not in members
        )

    def can_come_together(self, members: Collection[TimeGroup]) -> bool:
        """Whether rows of all ``members`` can arrive at one timestamp (with windows: within the horizon)."""
        return self.horizon > 0 or not any(self.is_never_together(a, b) for a, b in combinations(members, 2))

    def can_come_after(self, members: Collection[TimeGroup], earlier: Collection[TimeGroup]) -> bool:
        """Whether rows of ``members`` can arrive, at one timestamp, after those of ``earlier``."""
        return not any(self.is_not_after(member, other) for member in members for other in earlier)

    def partial_sets(self) -> Iterator[tuple[TimeGroup, ...]]:
        """The sets of groups that can be partial matches, all with the relations; the last has all groups."""
        streams = [g for g in self.groups if g != self.relations]
        past = (self.relations,) if self.relations else ()
        for size in range(len(streams) + 1):
            for chosen in combinations(streams, size):
                members = (*past, *chosen)
                if members and self.can_be_partial(members):
                    yield members
