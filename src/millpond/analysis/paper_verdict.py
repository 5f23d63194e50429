"""What the theorems of paper 2, as published, say about a query, where that differs from the verdict.

Theorem 1 (with duplicates) requires more than is needed.  Theorem 2 (DISTINCT) is meant to be sufficient, but
accepts some queries whose memory must grow.  Neither covers ``<=`` between timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from millpond.analysis.join_criteria import (
    find_conflicting_references,
    find_unbounded_equality_joins,
    find_unbounded_projections,
)
from millpond.analysis.regions import JoinRegions
from millpond.analysis.violations import ViolationCode
from millpond.query.expressions import Ref
from millpond.query.model import Select
from millpond.query.parts import Part
from millpond.query.time_order import TimeGroup, TimeOrder, find_result_keys
from millpond.query.trees import is_aggregate, item_refs

_THEOREM_1 = "Theorem 1 of Schiff and Özçep"
_THEOREM_2 = "Theorem 2 of Schiff and Özçep"
_PROJECTION = ViolationCode.UNBOUNDED_PROJECTION


def describe_published_verdict(select: Select, part: Part, distinct: bool, bounded: bool) -> str | None:
    """How the published theorem differs from the verdict, and why; None if it agrees or does not apply."""
    order = TimeOrder(part)
    if is_aggregate(select) or len(order.endless) < 2 or order.horizon:
        return None
    if order.find_closing_columns(find_result_keys(select, distinct)):
        return None
    if any(order.is_not_after(a, b) and not order.is_before(a, b) for a, b in _pairs(order.endless)):
        return None
    projected = sorted(item_refs(select.items), key=str)
    if distinct:
        failed = find_failing_condition_of_theorem_2(JoinRegions(part), projected)
        if bounded and failed is not None:
            return f"{_THEOREM_2} does not cover it: {failed}. The order in time makes that harmless"
        if not bounded and failed is None:
            return f"{_THEOREM_2} would accept it: it ignores the streams that come before a stream"
        return None
    failed = find_failing_condition_of_theorem_1(part, projected)
    if bounded and failed is not None:
        return f"{_THEOREM_1} would refuse it: {failed}. Counting partial matches makes that unnecessary"
    return None


def _pairs(groups: Iterable[TimeGroup]) -> Iterable[tuple[TimeGroup, TimeGroup]]:
    for a, b in combinations(groups, 2):
        yield a, b
        yield b, a


def find_failing_condition_of_theorem_2(regions: JoinRegions, projected: Iterable[Ref]) -> str | None:
    """The first condition of Theorem 2 of paper 2, as published, that fails (C1 to C3)."""
    if find_unbounded_projections(regions, projected, _PROJECTION):
        return "its C1 requires every projected column to be bounded"
    if find_unbounded_equality_joins(regions):
        return "its C2 requires every equality join to be bounded"
    if find_conflicting_references(regions) is not None:
        return "its C3 requires a single column of each stream in inequality joins"
    return None


def find_failing_condition_of_theorem_1(part: Part, projected: Iterable[Ref]) -> str | None:
    """The first condition of Theorem 1 of paper 2, as published, that fails (C1 to C5)."""
    forest = _TimeForest(TimeOrder(part))
    regions = JoinRegions(part)
    for group in forest.groups:
        if len(forest.parents[group]) > 1:
            names = " and ".join(_name(p) for p in forest.parents[group])
            return f"its C1 requires a tree, and both {names} come right after {_name(group)}"
    for edge in part.edges:
        left, right = edge.difference.left, edge.difference.right
        if left is not None and right is not None and not forest.may_join(left, right):
            return f"its C2 allows only joins of neighbours, and {edge.text} is not one"
    for ref in projected:
        depth = forest.depth_of(ref)
        if depth is not None and depth > 1:
            return f"its C3 refuses {ref} in the result, two steps before the last stream"
    kept = [r for r in projected if forest.depth_of(r) != 0 or len(forest.roots) > 1]
    if find_unbounded_projections(regions, kept, _PROJECTION):
        return "its C3 requires projected columns to be bounded, except those of the last stream"
    if find_unbounded_equality_joins(regions):
        return "its C4 requires equality joins to be bounded"
    if regions.active.any():
        return "its C5 allows no inequality join of unbounded columns"
    return None


def _name(group: TimeGroup) -> str:
    return "+".join(group)


@dataclass(frozen=True)
class _TimeForest:
    """The time groups as a forest: the parent of a group comes right after it."""

    order: TimeOrder

    @property
    def groups(self) -> tuple[TimeGroup, ...]:
        return self.order.endless

    @cached_property
    def parents(self) -> dict[TimeGroup, list[TimeGroup]]:
        after = {g: [h for h in self.groups if self.order.is_before(g, h)] for g in self.groups}
        return {
            g: [h for h in later if not any(self.order.is_before(k, h) for k in later)]
            for g, later in after.items()
        }

    @cached_property
    def roots(self) -> list[TimeGroup]:
        return [g for g in self.groups if not self.parents[g]]

    def _depth(self, group: TimeGroup) -> int:
        return 1 + self._depth(self.parents[group][0]) if self.parents[group] else 0

    def _root(self, group: TimeGroup) -> TimeGroup:
        return self._root(self.parents[group][0]) if self.parents[group] else group

    def _group(self, ref: Ref) -> TimeGroup | None:
        group = self.order.groups[self.order.group_numbers[ref.occurrence]]
        return group if group in self.groups else None

    def depth_of(self, ref: Ref) -> int | None:
        group = self._group(ref)
        return None if group is None else self._depth(group)

    def may_join(self, left: Ref, right: Ref) -> bool:
        """C2: a stream with its parent or a sibling, or two roots."""
        a, b = self._group(left), self._group(right)
        clocks = set(self.order.time_columns.values())
        if a is None or b is None or a == b or left in clocks:
            return True
        if self._root(a) != self._root(b):
            return self._depth(a) == self._depth(b) == 0
        return b in self.parents[a] or a in self.parents[b] or self.parents[a] == self.parents[b]
