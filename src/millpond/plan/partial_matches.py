"""What is kept of partial matches: for every set of streams that can wait for the others.

Of a partial match, the future asks only for what the result needs of it, and for what it demands of the
columns still to come: a lower or an upper end for each.  With duplicates its combinations are counted;
without, of those that differ in their demands alone the least demanding are kept, a *front*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from millpond.plan.classes import NoPlanError
from millpond.plan.needs import Need
from millpond.query.closure import Closure, Range
from millpond.query.model import Ref
from millpond.query.parts import type_of
from millpond.query.time_order import TimeGroup, TimeOrder, find_time_columns
from millpond.query.types import Domain

# Sets of streams are exponential in number.
_MAX_GROUPS = 8
# Columns, each with its slack.
_Terms = tuple[tuple[Ref, Fraction], ...]


@dataclass(frozen=True)
class Requirement:
    """What partial matches ask of columns that are still to come.

    ``low``: of all partners z to be at least the value, which is the largest ``x - slack`` over its terms;
    else at most the value, the smallest ``x + slack``.  ``strict`` excludes the value itself.  ``partners``
    say by how much the end differs from the value: z >= value + shift.  ``exact``: the end is both lower
    and upper.  ``least`` is a lower end that all partners have anyway (for upper demands an upper one).
    """

    low: bool
    strict: bool
    terms: tuple[tuple[Ref, Fraction], ...]
    partners: tuple[tuple[Ref, Fraction], ...]
    exact: bool
    least: Fraction | None

    def shift(self, partner: Ref) -> Fraction | None:
        return dict(self.partners).get(partner)


@dataclass(frozen=True)
class PartialMatchSet:
    """A set of streams whose partial matches are kept: columns of the result, demands, and values that a
    coming row must differ from."""

    groups: tuple[TimeGroup, ...]
    result_columns: tuple[Ref, ...]
    requirements: tuple[Requirement, ...]
    differing: tuple[Ref, ...]

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(alias for group in self.groups for alias in group)

    def find_requirement(self, partner: Ref, low: bool, strict: bool) -> tuple[int, Fraction] | None:
        """The number of the demand on a column, and the shift of its end."""
        for number, demand in enumerate(self.requirements):
            shift = demand.shift(partner)
            if shift is not None and demand.strict == strict and (demand.low == low or demand.exact):
                return number, shift
        return None


@dataclass(frozen=True)
class Arrival:
    """How matches of a set come about: rows of ``new`` arrive together, those of ``old`` were there."""

    new: tuple[TimeGroup, ...]
    old: PartialMatchSet | None


@dataclass(frozen=True)
class PartialMatchPlan:
    """A set of streams with the ways in which its matches come about."""

    match_set: PartialMatchSet
    arrivals: tuple[Arrival, ...]


class TimedNeed:
    """The partial matches of one need; ``shown`` are the columns that its results are made of."""

    def __init__(self, need: Need, result_columns: Iterable[Ref]) -> None:
        self.need = need
        self.part = need.part
        self.closure: Closure = need.part.closure
        self.order = TimeOrder(need.part)
        self.result_columns = tuple(sorted(set(result_columns), key=str))
        if len(self.order.groups) > _MAX_GROUPS:
            raise NoPlanError(f"more than {_MAX_GROUPS} streams are joined in time")
        self._clocks = set(find_time_columns(need.part.select).values())
        for group in self.order.groups:
            clock = self.order.time_columns.get(group[0])
            if clock is not None and self.order.is_finite(group) and self.closure.range(clock).high is None:
                raise NoPlanError(f"{group[0]} ends at timestamps of a relation")
        self._values = [
            n.ref for n in self.closure.nodes if n.type.domain is not Domain.TIME or self._known(n.ref)
        ]

    def is_value(self, ref: Ref) -> bool:
        return ref in self._values

    def _known(self, ref: Ref) -> bool:
        """A timestamp that is a value: that of a relation, or a clock that is compared with one."""
        if ref.occurrence in self.order.relations:
            return True
        relations = [n.ref for n in self.closure.nodes if n.ref.occurrence in self.order.relations]
        return any(
            r in self.closure.index and self.bound(*pair) is not None
            for r in relations
            for pair in ((ref, r), (r, ref))
        )

    @cached_property
    def real(self) -> tuple[TimeGroup, ...]:
        """The groups whose rows arrive; the virtual stream of MIN and MAX never does."""
        return tuple(g for g in self.order.groups if all(a in self.aliases for a in g))

    @cached_property
    def aliases(self) -> tuple[str, ...]:
        return tuple(a for a in self.need.scope if a != "?")

    # --- sets ------------------------------------------------------------------------------------------

    @cached_property
    def sets(self) -> tuple[PartialMatchPlan, ...]:
        """Every set that can wait, smaller ones first; the last is the set of all streams."""
        known: dict[frozenset[TimeGroup], PartialMatchSet] = {}
        plans = []
        for groups in self.order.partial_sets():
            if not all(g in self.real for g in groups):
                continue
            waiting = self._waiting(groups)
            known[frozenset(groups)] = waiting
            plans.append(PartialMatchPlan(waiting, tuple(self._arrivals(groups, known))))
        return tuple(plans)

    def _arrivals(
        self, groups: tuple[TimeGroup, ...], known: dict[frozenset[TimeGroup], PartialMatchSet]
    ) -> Iterable[Arrival]:
        whole = frozenset(groups)
        for old in sorted(known, key=len):
            new = tuple(g for g in groups if g not in old)
            if not old < whole or self.order.relations in new or not self.order.can_come_together(new):
                continue
            if self.order.can_come_after(new, old):
                yield Arrival(new, known[old])
        if self.order.can_come_together(groups) and (
            not self.order.relations or groups == (self.order.relations,)
        ):
            yield Arrival(groups, None)

    def _waiting(self, groups: tuple[TimeGroup, ...]) -> PartialMatchSet:
        inside = {alias for group in groups for alias in group}
        own = [ref for ref in self._values if ref.occurrence in inside]
        outside = [ref for ref in self._values if ref.occurrence not in inside]
        shown = tuple(ref for ref in self.result_columns if ref.occurrence in inside)
        demands = tuple(self._demands(own, outside))
        return PartialMatchSet(groups, shown, demands, self._differing(inside))

    def _differing(self, inside: set[str]) -> tuple[Ref, ...]:
        """Columns that a coming column must differ from, where no order says so already."""
        out = []
        for d in self.part.apart:
            if d.right is None or {d.left, d.right} & self._clocks:
                continue
            if self.closure.keeps_apart(d.left, d.right, d.value):
                continue
            ends = [ref for ref in (d.left, d.right) if ref.occurrence in inside]
            if len(ends) == 1:
                out.append(ends[0])
        return tuple(dict.fromkeys(out))

    def excludable_range(self, ref: Ref) -> Range:
        """Where the values of a column lie that a coming one can be equal to, as far as that is known."""
        lows: list[Fraction | None] = []
        highs: list[Fraction | None] = []
        for d in self.part.apart:
            for mine, other, shift in ((d.left, d.right, d.value), (d.right, d.left, -d.value)):
                if mine == ref and other is not None and other.occurrence != ref.occurrence:
                    r = self.closure.range(other)
                    lows.append(None if r.low is None else r.low + shift)
                    highs.append(None if r.high is None else r.high + shift)
        return Range(
            min((x for x in lows if x is not None), default=None) if None not in lows else None,
            max((x for x in highs if x is not None), default=None) if None not in highs else None,
        )

    # --- distances -----------------------------------------------------------------------------------------

    def require_exact_distances(self) -> None:
        """Raise NoPlanError if a floating-point column is compared at a distance, where rounding could change
        the answer."""
        for plan in self.sets:
            if not plan.arrivals:
                raise NoPlanError("a set of streams that nothing can complete")
            for arrival in plan.arrivals:
                for ref, distance in self._distances(plan.match_set, arrival):
                    if distance and not type_of(self.part, ref).step:
                        raise NoPlanError(f"{ref} is compared at a distance, and such numbers are rounded")

    def _distances(self, waiting: PartialMatchSet, arrival: Arrival) -> Iterator[tuple[Ref, Fraction]]:
        """Every distance at which rows of an arrival are compared, with the column that it is added to."""
        new = {alias for group in arrival.new for alias in group}
        own = [
            n.ref for n in self.closure.nodes if n.ref.occurrence in new and n.type.domain is not Domain.TIME
        ]
        for x, y in permutations(own, 2):
            bound = self.bound(x, y) if x.occurrence != y.occurrence else None
            if bound is not None:
                yield y, bound[0]
        for demand in waiting.requirements:
            yield from ((x, slack) for x, slack in demand.terms if x.occurrence in new)
            if arrival.old is not None and any(x.occurrence not in new for x, _ in demand.terms):
                z, shift = demand.partners[0]
                known = arrival.old.find_requirement(z, demand.low, demand.strict)
                assert known is not None
                yield z, known[1] - shift
        if arrival.old is None:
            return
        for demand in arrival.old.requirements:
            yield from ((z, shift) for z, shift in demand.partners if z.occurrence in new)
        for d in self.part.apart:
            if d.right is None or self.closure.keeps_apart(d.left, d.right, d.value):
                continue
            for mine, z in ((d.left, d.right), (d.right, d.left)):
                if mine in arrival.old.differing and z.occurrence in new:
                    yield z, d.value

    # --- demands ---------------------------------------------------------------------------------------

    def bound(self, x: Ref, y: Ref) -> tuple[Fraction, bool] | None:
        """The least bound of ``x - y`` that is not implied by constants."""
        i, j = self.closure.index[x], self.closure.index[y]
        if self.closure.origin[i] != self.closure.origin[j] or not self.closure.finite[i, j]:
            return None
        return None if self._by_origin[i, j] else self.closure.bound(x, y)

    @cached_property
    def _by_origin(self) -> NDArray[np.bool_]:
        """What constants alone imply; the values of relations and streams that end are kept."""
        return self.closure.with_anchors(()).by_constants

    def _demands(self, own: Sequence[Ref], outside: Sequence[Ref]) -> list[Requirement]:
        found: dict[tuple[bool, bool, bool, _Terms], list[tuple[Ref, Fraction]]] = {}
        for z in outside:
            for low in (True, False):
                for strict in (True, False):
                    terms = self._terms(own, z, low, strict)
                    if terms:
                        base = terms[0][1]
                        exact = len(terms) == 1 and self.closure.has_fixed_difference(terms[0][0], z)
                        key = (exact, low, strict, tuple((x, slack - base) for x, slack in terms))
                        found.setdefault(key, []).append((z, -base if low else base))
        demands = [self._demand(*key, tuple(partners)) for key, partners in found.items()]
        return [d for d in demands if not d.exact or d.low]  # an exact demand is lower and upper in one

    def _terms(self, own: Sequence[Ref], z: Ref, low: bool, strict: bool) -> list[tuple[Ref, Fraction]]:
        """The columns that bound ``z`` (from below if ``low``), without those that others imply."""
        bounds = {}
        for x in own:
            bound = self.bound(x, z) if low else self.bound(z, x)
            if bound is not None and bound[1] == strict:
                bounds[x] = bound[0]
        kept: list[tuple[Ref, Fraction]] = []
        for x, slack in bounds.items():
            if not any(
                self._implies(y, bounds[y], x, slack, low)
                and not (
                    self._implies(x, slack, y, bounds[y], low)
                    and list(bounds).index(x) < list(bounds).index(y)
                )
                for y in bounds
                if y != x
            ):
                kept.append((x, slack))
        return kept

    def _implies(self, y: Ref, slack_y: Fraction, x: Ref, slack_x: Fraction, low: bool) -> bool:
        """What ``y`` demands of a column covers what ``x`` demands, in every match that has both."""
        pair = (x, y) if low else (y, x)
        i, j = self.closure.index[pair[0]], self.closure.index[pair[1]]
        if self.closure.origin[i] != self.closure.origin[j] or not self.closure.finite[i, j]:
            return False
        bound = self.closure.bound(*pair)
        return bound is not None and bound[0] + slack_y <= slack_x

    def _demand(
        self,
        exact: bool,
        low: bool,
        strict: bool,
        terms: _Terms,
        partners: tuple[tuple[Ref, Fraction], ...],
    ) -> Requirement:
        return Requirement(low, strict, terms, partners, exact, None if exact else self._least(low, partners))

    def _least(self, low: bool, partners: Sequence[tuple[Ref, Fraction]]) -> Fraction | None:
        """Below this (above it, for upper demands) a value demands nothing of any partner."""
        ends = []
        for z, shift in partners:
            r = self.closure.range(z)
            end = r.low if low else r.high
            if end is None:
                return None
            ends.append(end - shift)
        return min(ends) if low else max(ends)
