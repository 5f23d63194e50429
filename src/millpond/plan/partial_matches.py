"""Which partial matches a timed query keeps: one set for each set of streams whose rows can come first.

Two things are kept of a partial match: the columns that the result needs, and its requirements, a lower or an
upper bound for each column still to come.  A counted need counts the matches with equal values.  An existence
need keeps, of the matches that differ only in their requirements, the Pareto front: the weakest requirements.
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
from millpond.plan.needs import Need, PartnerNeeds, SelectNeeds
from millpond.query.closure import Closure, Range
from millpond.query.expressions import Ref
from millpond.query.model import SemiJoin
from millpond.query.parts import is_threshold, type_of
from millpond.query.time_order import TimeGroup, TimeOrder, find_time_columns
from millpond.query.types import Domain

# The number of sets of streams is exponential.
_MAX_GROUPS = 8
# Columns, each with the slack of its bound.
_Terms = tuple[tuple[Ref, Fraction], ...]


@dataclass(frozen=True)
class Requirement:
    """A bound that partial matches set on columns of rows still to come, the ``partners``.

    If ``low``, a match has the value max(x - slack) over its ``terms`` (x, slack), and requires
    z >= value + shift of each partner (z, shift).  Otherwise it has the value min(x + slack) and requires
    z <= value + shift.  ``strict`` excludes equality.  ``exact``: the bound is both a lower and an upper one.
    ``least``: a value that requires nothing, because the partners' own ranges imply it (None if unknown).
    """

    low: bool
    strict: bool
    terms: tuple[tuple[Ref, Fraction], ...]
    partners: tuple[tuple[Ref, Fraction], ...]
    exact: bool
    least: Fraction | None

    def shift(self, partner: Ref) -> Fraction | None:
        """The shift of a partner's bound; None if the requirement is not on that column."""
        return dict(self.partners).get(partner)

    def find_value_range(self, closure: Closure) -> tuple[Fraction | None, Fraction | None]:
        """The least and the greatest value of a match; None where there is none."""
        sign, pick = (-1, max) if self.low else (1, min)
        ranges = [(closure.range(ref), sign * slack) for ref, slack in self.terms]
        lows = [None if r.low is None else r.low + shift for r, shift in ranges]
        highs = [None if r.high is None else r.high + shift for r, shift in ranges]
        by_one, by_all = (lows, highs) if self.low else (highs, lows)
        least = [] if self.least is None else [self.least]
        strong = pick((x for x in (*by_one, *least) if x is not None), default=None)
        weak = None if None in by_all else pick((x for x in (*by_all, *least) if x is not None), default=None)
        return (strong, weak) if self.low else (weak, strong)


@dataclass(frozen=True)
class PartialMatchSet:
    """The partial matches of a set of streams, with what is kept of each match.

    ``differing`` are columns from which a column of a row still to come must differ.
    """

    groups: tuple[TimeGroup, ...]
    result_columns: tuple[Ref, ...]
    requirements: tuple[Requirement, ...]
    differing: tuple[Ref, ...]

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(alias for group in self.groups for alias in group)

    def find_requirement(self, partner: Ref, low: bool, strict: bool) -> tuple[int, Fraction] | None:
        """The index of the requirement on a column, and the shift of its bound."""
        for number, requirement in enumerate(self.requirements):
            shift = requirement.shift(partner)
            same_side = requirement.low == low or requirement.exact
            if shift is not None and requirement.strict == strict and same_side:
                return number, shift
        return None


@dataclass(frozen=True)
class Arrival:
    """How matches of a set arise: rows of ``new`` arrive at one timestamp and complete matches of ``old``.

    ``old`` is None if all rows of the match arrive at that timestamp.
    """

    new: tuple[TimeGroup, ...]
    old: PartialMatchSet | None


@dataclass(frozen=True)
class PartialMatchPlan:
    """The partial matches of a set of streams, and the ways in which they arise."""

    match_set: PartialMatchSet
    arrivals: tuple[Arrival, ...]


class TimedNeed:
    """Derives the partial matches of one need; ``result_columns`` are the columns of its results."""

    def __init__(self, need: Need, result_columns: Iterable[Ref]) -> None:
        self.need = need
        self.part = need.part
        self.closure: Closure = need.part.closure
        self.order = TimeOrder(need.part)
        self.result_columns = tuple(sorted(set(result_columns), key=str))
        if len(self.order.groups) > _MAX_GROUPS:
            raise NoPlanError(f"the query joins more than {_MAX_GROUPS} time groups")
        self._time_columns = set(find_time_columns(need.part.select).values())
        for group in self.order.groups:
            time_column = self.order.time_columns.get(group[0])
            unbounded = time_column is not None and self.closure.range(time_column).high is None
            if unbounded and self.order.is_finite(group):
                raise NoPlanError(f"the last timestamp of {group[0]} depends on the rows of a relation")
        self._values = [
            n.ref
            for n in self.closure.nodes
            if n.type.domain is not Domain.TIME or self._is_value_timestamp(n.ref)
        ]

    def is_value(self, ref: Ref) -> bool:
        """Whether the column is compared by value, not only by the order of arrival."""
        return ref in self._values

    def _is_value_timestamp(self, ref: Ref) -> bool:
        """Whether the timestamp is compared by value: it is a relation's or compared with a relation's."""
        if ref.occurrence in self.order.relations:
            return True
        relations = [n.ref for n in self.closure.nodes if n.ref.occurrence in self.order.relations]
        return any(
            r in self.closure.index and self.bound(*pair) is not None
            for r in relations
            for pair in ((ref, r), (r, ref))
        )

    @cached_property
    def arriving_groups(self) -> tuple[TimeGroup, ...]:
        """The time groups whose rows arrive; without the virtual stream of MIN and MAX."""
        return tuple(g for g in self.order.groups if all(a in self.aliases for a in g))

    @cached_property
    def aliases(self) -> tuple[str, ...]:
        return tuple(a for a in self.need.scope if not is_threshold(a))

    # --- windows -------------------------------------------------------------------------------------------

    def retention(self, alias: str) -> int | None:
        """For how many microseconds rows of a stream can match later rows within a window; None without one.

        For a stream that shares no window with it, rows can match through a chain in which each is within the
        horizon of the next; the longest possible chain is assumed.
        """
        if not self.order.horizon:
            return None
        longest = self.order.horizon * (len(self.aliases) - 1)
        lags = [self.order.max_lag(other, alias) for other in self.aliases if other != alias]
        return max([longest if lag is None else lag for lag in lags] + [0])

    @cached_property
    def lookback(self) -> int:
        """How many microseconds back rows read past versions of partial matches; 0 without windows."""
        if not self.order.horizon:
            return 0
        return self.order.horizon + max(self.retention(alias) or 0 for alias in self.aliases)

    # --- sets ------------------------------------------------------------------------------------------

    @cached_property
    def sets(self) -> tuple[PartialMatchPlan, ...]:
        """Every set whose rows can come before the others, small sets first; the last has all streams."""
        known: dict[frozenset[TimeGroup], PartialMatchSet] = {}
        plans = []
        for groups in self.order.partial_sets():
            if not all(g in self.arriving_groups for g in groups):
                continue
            match_set = self._derive_match_set(groups)
            known[frozenset(groups)] = match_set
            plans.append(PartialMatchPlan(match_set, tuple(self._find_arrivals(groups, known))))
        return tuple(plans)

    def _find_arrivals(
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

    def _derive_match_set(self, groups: tuple[TimeGroup, ...]) -> PartialMatchSet:
        inside = {alias for group in groups for alias in group}
        own = [ref for ref in self._values if ref.occurrence in inside]
        outside = [ref for ref in self._values if ref.occurrence not in inside]
        columns = tuple(ref for ref in self.result_columns if ref.occurrence in inside)
        requirements = tuple(self._derive_requirements(own, outside))
        return PartialMatchSet(groups, columns, requirements, self._find_differing(inside))

    def _find_differing(self, inside: set[str]) -> tuple[Ref, ...]:
        """Columns from which a column still to come must differ, unless their order implies it."""
        out = []
        for d in self.part.apart:
            if d.right is None or {d.left, d.right} & self._time_columns:
                continue
            if self.closure.keeps_apart(d.left, d.right, d.value):
                continue
            ends = [ref for ref in (d.left, d.right) if ref.occurrence in inside]
            if len(ends) == 1:
                out.append(ends[0])
        return tuple(dict.fromkeys(out))

    def excludable_range(self, ref: Ref) -> Range:
        """The range of values of a ``differing`` column that can exclude a row still to come."""
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

    # --- distances -------------------------------------------------------------------------------------

    def require_exact_distances(self) -> None:
        """Raise NoPlanError if a floating-point column is compared at a distance, where rounding could change
        the answer."""
        for plan in self.sets:
            if not plan.arrivals:
                raise NoPlanError("some partial matches can never be completed")
            for arrival in plan.arrivals:
                for ref, distance in self._find_distances(plan.match_set, arrival):
                    if distance and not type_of(self.part, ref).step:
                        raise NoPlanError(
                            f"{ref} is floating-point and compared at a distance; "
                            "rounding could change the answer"
                        )

    def _find_distances(self, match_set: PartialMatchSet, arrival: Arrival) -> Iterator[tuple[Ref, Fraction]]:
        """Every distance at which rows of an arrival are compared, with the column it is added to."""
        new = {alias for group in arrival.new for alias in group}
        own = [
            n.ref for n in self.closure.nodes if n.ref.occurrence in new and n.type.domain is not Domain.TIME
        ]
        for x, y in permutations(own, 2):
            bound = self.bound(x, y) if x.occurrence != y.occurrence else None
            if bound is not None:
                yield y, bound[0]
        for requirement in match_set.requirements:
            yield from ((x, slack) for x, slack in requirement.terms if x.occurrence in new)
            if arrival.old is not None and any(x.occurrence not in new for x, _ in requirement.terms):
                z, shift = requirement.partners[0]
                known = arrival.old.find_requirement(z, requirement.low, requirement.strict)
                assert known is not None
                yield z, known[1] - shift
        if arrival.old is None:
            return
        for requirement in arrival.old.requirements:
            yield from ((z, shift) for z, shift in requirement.partners if z.occurrence in new)
        for d in self.part.apart:
            if d.right is None or self.closure.keeps_apart(d.left, d.right, d.value):
                continue
            for mine, z in ((d.left, d.right), (d.right, d.left)):
                if mine in arrival.old.differing and z.occurrence in new:
                    yield z, d.value

    # --- requirements ----------------------------------------------------------------------------------

    def bound(self, x: Ref, y: Ref) -> tuple[Fraction, bool] | None:
        """The least bound of ``x - y``; None if there is none or constants alone imply it."""
        i, j = self.closure.index[x], self.closure.index[y]
        if self.closure.origin[i] != self.closure.origin[j] or not self.closure.finite[i, j]:
            return None
        return None if self._by_constants[i, j] else self.closure.bound(x, y)

    @cached_property
    def _by_constants(self) -> NDArray[np.bool_]:
        """Bounds that constants alone imply, without the values of relations and finite streams."""
        return self.closure.with_anchors(()).by_constants

    def _derive_requirements(self, own: Sequence[Ref], outside: Sequence[Ref]) -> list[Requirement]:
        """The requirements of matches with columns ``own`` on the columns ``outside``."""
        found: dict[tuple[bool, bool, bool, _Terms], list[tuple[Ref, Fraction]]] = {}
        for z in outside:
            for low in (True, False):
                for strict in (True, False):
                    terms = self._find_terms(own, z, low, strict)
                    if terms:
                        base = terms[0][1]
                        exact = len(terms) == 1 and self.closure.has_fixed_difference(terms[0][0], z)
                        key = (exact, low, strict, tuple((x, slack - base) for x, slack in terms))
                        found.setdefault(key, []).append((z, -base if low else base))
        every = [self._build_requirement(*key, tuple(partners)) for key, partners in found.items()]
        return [r for r in every if not r.exact or r.low]  # an exact one is both lower and upper

    def _find_terms(self, own: Sequence[Ref], z: Ref, low: bool, strict: bool) -> list[tuple[Ref, Fraction]]:
        """The columns that bound ``z`` (from below if ``low``), without those whose bound another implies."""
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
        """Whether, in every match, the bound set by ``y`` implies the one set by ``x``."""
        pair = (x, y) if low else (y, x)
        i, j = self.closure.index[pair[0]], self.closure.index[pair[1]]
        if self.closure.origin[i] != self.closure.origin[j] or not self.closure.finite[i, j]:
            return False
        bound = self.closure.bound(*pair)
        return bound is not None and bound[0] + slack_y <= slack_x

    def _build_requirement(
        self,
        exact: bool,
        low: bool,
        strict: bool,
        terms: _Terms,
        partners: tuple[tuple[Ref, Fraction], ...],
    ) -> Requirement:
        return Requirement(
            low, strict, terms, partners, exact, None if exact else self._find_least(low, partners)
        )

    def _find_least(self, low: bool, partners: Sequence[tuple[Ref, Fraction]]) -> Fraction | None:
        """The value below which (for upper bounds: above which) nothing is required of any partner."""
        ends = []
        for z, shift in partners:
            r = self.closure.range(z)
            end = r.low if low else r.high
            if end is None:
                return None
            ends.append(end - shift)
        return min(ends) if low else max(ends)


def find_tested_retention(needs: SelectNeeds, partners: PartnerNeeds) -> int:
    """For how many microseconds rows that a test decides are kept to be joined with later ones."""
    found = [0]
    for part, wanted in needs.parts:
        block = part.select.occurrence(partners.alias).table.block if partners.alias in part.aliases else None
        if isinstance(block, SemiJoin) and any(partners.decides(block.alias, test) for test in block.tests):
            found += [TimedNeed(need, ()).retention(partners.alias) or 0 for need in wanted]
    return max(found)
