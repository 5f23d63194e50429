"""Derives the exact engine's plan from the needs: the synopsis of every stream (section 7 of paper 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from millpond.analysis.join_criteria import is_implied_disequality
from millpond.analysis.regions import JoinRegions
from millpond.plan.classes import (
    ColumnClasses,
    NoPlanError,
    PartnerRange,
    build_clamped_classes,
    build_exact_classes,
)
from millpond.plan.needs import Need, SelectNeeds
from millpond.plan.synopses import (
    AMONG,
    OVER,
    UNDER,
    ExactPlan,
    ExactSelectPlan,
    Extreme,
    StreamPlan,
    SynopsisPlan,
    ZonePattern,
    zone_size,
)
from millpond.query.expressions import Ref
from millpond.query.model import Query, Select
from millpond.query.parts import Part, is_threshold
from millpond.query.trees import is_aggregate, item_refs

# The most columns of a stream that have zones; the number of patterns is exponential.
_MAX_ZONED = 5


def derive_plan(query: Query, needs: Sequence[SelectNeeds]) -> ExactPlan:
    """The plan with a synopsis for every need; raises NoPlanError if none is known."""
    return ExactPlan(query, tuple(_derive_select(n) for n in needs))


def _derive_select(needs: SelectNeeds) -> ExactSelectPlan:
    plans: list[SynopsisPlan] = []
    results: list[tuple[Part, tuple[ColumnClasses, ...]]] = []
    known: list[tuple[ColumnClasses, ...]] = []
    aggregate = is_aggregate(needs.select)
    # The groups of a single stream are its synopsis; those of a join are kept in addition.
    remembered = needs.distinct if not aggregate else len(needs.select.occurrences) > 1
    for part, wanted in needs.parts:
        for need in wanted:
            alone = len(need.part.aliases) == 1 and not aggregate
            plans.append(SynopsisPlan(need, () if alone else _derive_streams(need)))
        if remembered:
            classes = tuple(build_exact_classes(part, ref) for ref in _result_refs(needs.select, aggregate))
            if classes not in known:  # parts with the same results share them
                known.append(classes)
                results.append((part, tuple(_remove_determined(part, classes))))
    return ExactSelectPlan(needs.select, needs.distinct, tuple(plans), tuple(results))


def _result_refs(select: Select, aggregate: bool) -> tuple[Ref, ...]:
    return tuple(select.group_by or ()) if aggregate else tuple(sorted(item_refs(select.items), key=str))


def _remove_determined(part: Part, classes: Sequence[ColumnClasses]) -> list[ColumnClasses]:
    """The classes without those of columns that another column determines."""
    kept: list[ColumnClasses] = []
    for each in classes:
        known = each.column in part.closure.index and not each.null
        if any(c.column == each.column for c in kept):
            continue
        if known and any(
            not c.null
            and c.column in part.closure.index
            and part.closure.has_fixed_difference(c.column, each.column)
            for c in kept
        ):
            continue
        kept.append(each)
    return kept


def _derive_streams(need: Need) -> tuple[StreamPlan, ...]:
    regions = JoinRegions(need.part, need.scope, need.outer_columns)
    derivation = _StreamDerivation(need, regions)
    return tuple(derivation.derive(alias) for alias in need.scope if not is_threshold(alias))


class _StreamDerivation:
    """Derives the synopses of the streams of one need from its joins."""

    def __init__(self, need: Need, regions: JoinRegions) -> None:
        self.need = need
        self.part = need.part
        self.regions = regions
        self.closure = regions.closure
        self.refs = [n.ref for n in self.closure.nodes]

    def derive(self, alias: str) -> StreamPlan:
        """The synopsis of one occurrence."""
        stream = next(o.table.name for o in self.part.select.occurrences if o.alias == alias)
        own = [i for i, ref in enumerate(self.refs) if ref.occurrence == alias]
        exact = [build_exact_classes(self.part, r) for r in self.need.projected if r.occurrence == alias]
        found = (product.find_factor(alias) for product in self.need.measures)
        measures = tuple(dict.fromkeys(each for each in found if each is not None))
        if self.need.counted:
            classes = exact + self._clamped_classes(own, lambda i, j: True)
            classes += self._disequality_classes(own)
            return StreamPlan(alias, stream, True, tuple(self._unite(classes)), measures)
        return self._derive_existence(alias, stream, own, exact)

    # --- classes -----------------------------------------------------------------------------------

    def _clamped_classes(self, own: Iterable[int], wanted: Callable[[int, int], bool]) -> list[ColumnClasses]:
        """Classes for each own column, for its joins for which ``wanted(lower, upper)`` holds."""
        out = []
        for i in own:
            ranges = []
            for j in np.flatnonzero(self.regions.joins[i, :]):
                if wanted(i, int(j)):
                    ranges.append(self._partner_range(i, int(j), lower=True))
            for j in np.flatnonzero(self.regions.joins[:, i]):
                if wanted(int(j), i):
                    ranges.append(self._partner_range(i, int(j), lower=False))
            if ranges:
                out.append(build_clamped_classes(self.part, self.refs[i], ranges))
        return out

    def _partner_range(self, own: int, other: int, lower: bool) -> PartnerRange:
        """Where a join partner distinguishes values of an own column."""
        partner = self.closure.range(self.refs[other])
        step, grid = self.closure.nodes[own].type.step, self.closure.nodes[other].type.step
        pair = (own, other) if lower else (other, own)
        bound = self.closure.bound(self.refs[pair[0]], self.refs[pair[1]])
        assert bound is not None
        slack, strict = bound
        if lower:  # own - other <= slack: what is not above partner.low + slack passes everywhere
            start = _plus(partner.low, slack)
            if start is not None and step:
                start = _next_up(start, step, inclusive=strict and not partner.low_strict)
            return PartnerRange(start, _plus(partner.high, slack), grid, slack)
        end = _plus(partner.high, -slack)
        if end is not None and step:
            end = -_next_up(-end, step, inclusive=strict and not partner.high_strict)
        return PartnerRange(_plus(partner.low, -slack), end, grid, -slack)

    def _disequality_classes(self, own: Sequence[int]) -> list[ColumnClasses]:
        out = []
        for ref, range_ in self._find_disequalities(own):
            if range_ is None:
                raise NoPlanError(f"{ref} is in a <> join, and its values are unbounded")
            out.append(build_clamped_classes(self.part, ref, [range_]))
        return out

    def _find_disequalities(self, own: Sequence[int]) -> list[tuple[Ref, PartnerRange | None]]:
        """Own columns in cross-stream ``<>`` joins, with the range of values that matter, if it is finite."""
        mine = {self.refs[i] for i in own}
        out: list[tuple[Ref, PartnerRange | None]] = []
        for d in self.part.apart:
            if d.right is None or d.left.occurrence == d.right.occurrence:
                continue
            if not all(self._is_visible(ref) for ref in (d.left, d.right)):
                continue
            if is_implied_disequality(self.regions, d.left, d.right):
                continue
            for ref, other, shift in ((d.left, d.right, d.value), (d.right, d.left, -d.value)):
                if ref in mine:
                    out.append((ref, self._overlap(ref, other, shift)))
        return out

    def _is_visible(self, ref: Ref) -> bool:
        return ref.occurrence in self.need.scope or ref in self.need.outer_columns

    def _overlap(self, ref: Ref, other: Ref, shift: Fraction) -> PartnerRange | None:
        a, b = self.closure.range(ref), self.closure.range(other)
        lows = [x for x in (a.low, _plus(b.low, shift)) if x is not None]
        highs = [x for x in (a.high, _plus(b.high, shift)) if x is not None]
        if not lows or not highs:
            return None
        low, high = max(lows), min(highs)
        step, grid = (self.closure.nodes[self.closure.index[r]].type.step for r in (ref, other))
        return PartnerRange(low, high, grid, shift) if step or grid or low >= high else None

    def _unite(self, classes: Iterable[ColumnClasses]) -> list[ColumnClasses]:
        """One set of classes per column, as fine as the finest; without columns that another determines."""
        by_column: dict[Ref, list[ColumnClasses]] = {}
        for each in classes:
            by_column.setdefault(each.column, []).append(each)
        united = []
        for column, same in by_column.items():
            exact = [c for c in same if not c.below and not c.above and c.grid is None]
            if exact:
                united.append(exact[0])
            else:
                united.append(build_clamped_classes(self.part, column, [_to_partner_range(c) for c in same]))
        full = [c for c in united if not c.below and not c.above]
        partial = [c for c in united if c.below or c.above]
        return _remove_determined(self.part, full) + partial

    # --- extremes ----------------------------------------------------------------------------------

    def _derive_existence(
        self, alias: str, stream: str, own: list[int], exact: list[ColumnClasses]
    ) -> StreamPlan:
        """The synopsis for an existence need: one extreme if that is enough, else extremes by zone."""
        differing, classes = [], list(exact)
        for ref, range_ in self._find_disequalities(own):
            if range_ is None:
                differing.append(ref)
            else:
                classes.append(build_clamped_classes(self.part, ref, [range_]))
        classes += self._equality_classes(own)
        for columns in (self._inequality_columns(own), self._active_columns(own)):
            for smallest in (True, False):
                attempt = self._try_one_extreme(own, columns, smallest)
                if attempt is not None:
                    extremes, more = attempt
                    return StreamPlan(
                        alias,
                        stream,
                        False,
                        tuple(self._unite(classes + more)),
                        patterns=(ZonePattern((), extremes),),
                        differing=tuple(dict.fromkeys(differing)),
                    )
        return self._derive_zoned(alias, stream, own, classes, tuple(dict.fromkeys(differing)))

    def _is_equality(self, i: int, j: int) -> bool:
        return bool(self.regions.joins[i, j] and self.closure.fixed[i, j])

    def _equality_classes(self, own: Iterable[int]) -> list[ColumnClasses]:
        return self._clamped_classes(own, self._is_equality)

    def _inequality_columns(self, own: Iterable[int]) -> list[int]:
        joins = self.regions.joins & ~self.closure.fixed
        return [i for i in own if joins[i, :].any() or joins[:, i].any()]

    def _active_columns(self, own: Iterable[int]) -> list[int]:
        busy = np.asarray((self.regions.is_lower | self.regions.is_upper).any(axis=0))
        return [i for i in own if busy[i]]

    def _try_one_extreme(
        self, own: Iterable[int], columns: list[int], smallest: bool
    ) -> tuple[tuple[Extreme, ...], list[ColumnClasses]] | None:
        """One extreme over ``columns``, and classes for all other joins; None if that is impossible."""
        joins = self.regions.joins if smallest else self.regions.joins.T
        partners = [
            int(z)
            for z in np.flatnonzero(joins[columns, :].any(axis=0) if columns else np.zeros(0, dtype=bool))
            if all(self._slack(x, int(z), smallest) is not None for x in columns)
            and not any(self.closure.fixed[x, z] for x in columns)
        ]
        covered = {(x, z) if smallest else (z, x) for x in columns for z in partners}
        used = [x for x in columns if any(joins[x, z] for z in partners)]
        if columns and used != columns:
            return None
        try:
            more = self._clamped_classes(
                own, lambda i, j: (i, j) not in covered and not self._is_equality(i, j)
            )
            extremes = (self._extreme(columns, partners, smallest),) if partners else ()
        except NoPlanError:
            return None
        return extremes, more

    def _slack(self, x: int, z: int, smallest: bool) -> tuple[Fraction, bool] | None:
        left, right = (x, z) if smallest else (z, x)
        if self.closure.origin[x] != self.closure.origin[z]:
            return None
        return self.closure.bound(self.refs[left], self.refs[right])

    def _extreme(self, columns: Sequence[int], partners: Sequence[int], smallest: bool) -> Extreme:
        slacks = []
        for z in partners:
            row = [self._slack(x, z, smallest) for x in columns]
            if any(s is None for s in row):
                raise NoPlanError("requirements on different partners are not comparable")
            slacks.append(tuple(s for s in row if s is not None))
        return Extreme(
            smallest,
            tuple(self.refs[x] for x in columns),
            tuple(self.refs[z] for z in partners),
            tuple(slacks),
            self._count_spreads(columns, slacks),
        )

    def _count_spreads(
        self, columns: Sequence[int], slacks: Sequence[tuple[tuple[Fraction, bool], ...]]
    ) -> int:
        """The number of ways in which the requirements on the partners can differ from each other."""
        steps = [self.closure.nodes[x].type.step for x in columns]
        step = min(steps) if steps else Fraction(0)
        first = slacks[0]
        total = 1
        for row in dict.fromkeys(slacks):
            gaps = [a[0] - b[0] for a, b in zip(first, row, strict=True)]
            width = max(gaps) - min(gaps)
            if width and not step:
                raise NoPlanError("dense columns are compared at different offsets")
            total *= int(width / step) + 1 if width else 1
        flags = {tuple(row[i][1] for row in slacks) for i in range(len(columns))}
        return total * _count_unions(flags)

    # --- zones -------------------------------------------------------------------------------------

    def _derive_zoned(
        self,
        alias: str,
        stream: str,
        own: list[int],
        classes: list[ColumnClasses],
        differing: tuple[Ref, ...],
    ) -> StreamPlan:
        """Keep different rows for partners below and above the constants (Lemma B.6 of paper 1)."""
        columns = self._active_columns(own)
        if len(columns) > _MAX_ZONED:
            raise NoPlanError(f"more than {_MAX_ZONED} columns of {alias} are in unbounded joins")
        zoned = [
            build_clamped_classes(self.part, self.refs[i], [PartnerRange(*self._constants(i), Fraction(0))])
            for i in columns
        ]
        inactive = [i for i in own if i not in columns]
        rest = self._clamped_classes(inactive, lambda i, j: not self._is_equality(i, j))
        patterns = []
        for zones in product((UNDER, AMONG, OVER), repeat=len(columns)):
            if self._can_have_zones(columns, zones) and all(
                zone_size(c, z) for c, z in zip(zoned, zones, strict=True)
            ):
                patterns.append(ZonePattern(zones, self._zone_extremes(columns, zones)))
        return StreamPlan(
            alias,
            stream,
            False,
            tuple(self._unite([*classes, *rest])),
            zoned=tuple(zoned),
            patterns=tuple(patterns),
            differing=differing,
        )

    def _constants(self, i: int) -> tuple[Fraction, Fraction]:
        """The range of the constants of the column's family, widened by every offset in the query."""
        family = self.closure.nodes[i].type.family
        ends = []
        for node in self.closure.nodes:
            if node.type.family is family:
                r = self.closure.range(node.ref)
                ends += [x for x in (r.low, r.high) if x is not None]
        if not ends:
            raise NoPlanError("joins conflict, and no constant separates them")
        offsets = [abs(d.bound) for d in self.part.differences if d.left is not None and d.right is not None]
        step = self.closure.nodes[i].type.step
        margin = sum(offsets, start=step) if step else Fraction(0)
        return min(ends) - margin, max(ends) + margin

    def _can_have_zones(self, columns: Sequence[int], zones: Sequence[int]) -> bool:
        pairs = list(zip(columns, zones, strict=True))
        return not any(a > b and self.closure.below[x, y] for x, a in pairs for y, b in pairs)

    def _zone_extremes(self, columns: Sequence[int], zones: Sequence[int]) -> tuple[Extreme, ...]:
        zone_of = dict(zip(columns, zones, strict=True))
        out = []
        for zone, region in ((UNDER, 0), (OVER, self.regions.active.shape[0] - 1)):
            mine = [x for x in columns if zone_of[x] == zone]
            for smallest in (True, False):
                active = self.regions.active[region] if smallest else self.regions.active[region].T
                partners = [
                    int(z)
                    for z in np.flatnonzero(active[mine, :].any(axis=0) if mine else np.zeros(0, dtype=bool))
                    if self._can_be_partner(int(z), zone, zone_of)
                ]
                used = [x for x in mine if any(active[x, z] for z in partners)]
                if partners:
                    out.append((zone, self._extreme(used, partners, smallest)))
        if len({zone for zone, _ in out}) != len(out):
            raise NoPlanError("rows with the smallest and with the largest value are both required")
        return tuple(extreme for _, extreme in out)

    def _can_be_partner(self, z: int, zone: int, zone_of: dict[int, int]) -> bool:
        below = self.closure.below
        if zone == UNDER:
            return not any(below[y, z] for y, other in zone_of.items() if other > UNDER)
        return not any(below[z, y] for y, other in zone_of.items() if other < OVER)


def _to_partner_range(each: ColumnClasses) -> PartnerRange:
    anchor, step = each.grid or (each.low, Fraction(0))
    return PartnerRange(each.low, each.high, step, anchor)


def _next_up(x: Fraction, step: Fraction, inclusive: bool) -> Fraction:
    """The first multiple of ``step`` above ``x`` (if ``inclusive``: at or above)."""
    multiple = -(-x // step) * step
    return multiple if inclusive or multiple > x else multiple + step


def _plus(x: Fraction | None, y: Fraction) -> Fraction | None:
    return None if x is None else x + y


def _count_unions(flags: set[tuple[bool, ...]]) -> int:
    """The number of different unions of non-empty subsets of the flag vectors."""
    seen: set[tuple[bool, ...]] = set()
    for vector in flags:
        seen |= {tuple(a or b for a, b in zip(vector, other, strict=True)) for other in seen} | {vector}
    return max(len(seen), 1)
