"""What the theorems of paper 2 say of a query, as they were published, where that differs from the verdict.

Theorem 1 (with duplicates) asks for more than is needed.  Theorem 2 (without) is only sufficient, and not
even that: it lets some queries pass whose memory must grow.  Neither knows ``<=`` between timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from millpond.analysis.join_criteria import conflicting_references, unbounded_equality, unbounded_projection
from millpond.analysis.regions import Ordering
from millpond.query.model import Ref, Select
from millpond.query.parts import Part
from millpond.query.time_order import TimeGroup, TimeOrder
from millpond.query.trees import is_aggregate, item_refs

_ONE = "Theorem 1 of Schiff and Özçep would refuse it"
_TWO = "Theorem 2 of Schiff and Özçep"


def published_verdict(select: Select, part: Part, distinct: bool, bounded: bool) -> str | None:
    """What the paper's own theorem says of a part, and why it differs; None where it agrees or is silent."""
    order = TimeOrder(part)
    if is_aggregate(select) or len(order.endless) < 2:
        return None
    if any(order.is_not_after(a, b) and not order.is_before(a, b) for a, b in _pairs(order.endless)):
        return None
    projected = sorted(item_refs(select.items), key=str)
    if distinct:
        failed = theorem_2(Ordering(part), projected)
        if bounded and failed is not None:
            return f"{_TWO} does not cover it: {failed}. The order in time makes that harmless"
        if not bounded and failed is None:
            return f"{_TWO} would accept it: it looks at each stream alone, and not at those before it"
        return None
    failed = theorem_1(part, projected)
    if bounded and failed is not None:
        return f"{_ONE}: {failed}. Counting the partial matches of every set of streams does without"
    return None


def _pairs(groups: Iterable[TimeGroup]) -> Iterable[tuple[TimeGroup, TimeGroup]]:
    for a, b in combinations(groups, 2):
        yield a, b
        yield b, a


def theorem_2(ordering: Ordering, projected: Iterable[Ref]) -> str | None:
    """The first of C1 to C3 that fails."""
    if unbounded_projection(ordering, projected, ""):
        return "its C1 wants every projected column bounded"
    if unbounded_equality(ordering):
        return "its C2 wants every equality join bounded"
    if conflicting_references(ordering) is not None:
        return "its C3 wants a single column of each stream in inequality joins"
    return None


def theorem_1(part: Part, projected: Iterable[Ref]) -> str | None:
    """The first of C1 to C5 that fails."""
    forest = _Forest(TimeOrder(part))
    ordering = Ordering(part)
    for group in forest.groups:
        if len(forest.parents[group]) > 1:
            names = " and ".join(_name(p) for p in forest.parents[group])
            return f"its C1 wants a tree, and both {names} come right after {_name(group)}"
    for edge in part.edges:
        left, right = edge.difference.left, edge.difference.right
        if left is not None and right is not None and not forest.may_join(left, right):
            return f"its C2 allows joins of neighbours only, and {edge.text} is not one"
    for ref in projected:
        depth = forest.depth_of(ref)
        if depth is not None and depth > 1:
            return f"its C3 refuses {ref} in the result, two steps before the last stream"
    kept = [r for r in projected if forest.depth_of(r) != 0 or len(forest.roots) > 1]
    if unbounded_projection(ordering, kept, ""):
        return "its C3 wants projected columns bounded, but for those of the last stream"
    if unbounded_equality(ordering):
        return "its C4 wants equality joins bounded"
    if ordering.active.any():
        return "its C5 allows no inequality join of unbounded columns"
    return None


def _name(group: TimeGroup) -> str:
    return "+".join(group)


@dataclass(frozen=True)
class _Forest:
    """The streams, each below the one that comes right after it."""

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
