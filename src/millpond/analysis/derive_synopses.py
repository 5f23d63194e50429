"""From needs to plans: which classes, which extremes, for every occurrence of every join."""

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
from millpond.plan.needs import THRESHOLD, Need, SelectNeeds
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
from millpond.query.model import Expr, Query, Ref, Select
from millpond.query.parts import Part
from millpond.query.trees import is_aggregate, item_refs, refs

# Columns of a stream that may be told apart by zone; their patterns are exponential in number.
_MAX_ZONED = 5


def derive_plan(query: Query, needs: Sequence[SelectNeeds]) -> ExactPlan:
    """A synopsis for every need; raises NoPlanError where none is known."""
    return ExactPlan(query, tuple(_select_plan(n) for n in needs))


def _select_plan(needs: SelectNeeds) -> ExactSelectPlan:
    plans: list[SynopsisPlan] = []
    results: list[tuple[Part, tuple[ColumnClasses, ...]]] = []
    known: list[tuple[ColumnClasses, ...]] = []
    aggregate = is_aggregate(needs.select)
    # The groups of a single stream are its synopsis; those of a join are kept beside it.
    remembered = needs.distinct if not aggregate else len(needs.select.occurrences) > 1
    for part, wanted in needs.parts:
        for need in wanted:
            alone = len(need.part.aliases) == 1 and not aggregate
            plans.append(SynopsisPlan(need, () if alone else _stream_plans(need)))
        if remembered:
            codes = tuple(build_exact_classes(part, ref) for ref in _result_refs(needs.select, aggregate))
            if codes not in known:  # parts with the same results share them
                known.append(codes)
                results.append((part, tuple(_independent(part, codes))))
    return ExactSelectPlan(needs.select, needs.distinct, tuple(plans), tuple(results))


def _result_refs(select: Select, aggregate: bool) -> tuple[Ref, ...]:
    return tuple(select.group_by or ()) if aggregate else tuple(sorted(item_refs(select.items), key=str))


def _independent(part: Part, codes: Sequence[ColumnClasses]) -> list[ColumnClasses]:
    """Codes without those that another one determines."""
    kept: list[ColumnClasses] = []
    for code in codes:
        known = code.column in part.closure.index and not code.null
        if any(c.column == code.column for c in kept):
            continue
        if known and any(
            not c.null
            and c.column in part.closure.index
            and part.closure.has_fixed_difference(c.column, code.column)
            for c in kept
        ):
            continue
        kept.append(code)
    return kept


def _stream_plans(need: Need) -> tuple[StreamPlan, ...]:
    regions = JoinRegions(need.part, need.scope, need.outer_columns)
    builder = _Builder(need, regions)
    return tuple(builder.plan(alias) for alias in need.scope if alias != THRESHOLD)


class _Builder:
    """Derives stream plans from the joins of one need."""

    def __init__(self, need: Need, regions: JoinRegions) -> None:
        self.need = need
        self.part = need.part
        self.regions = regions
        self.closure = regions.closure
        self.refs = [n.ref for n in self.closure.nodes]

    def plan(self, alias: str) -> StreamPlan:
        stream = next(o.table.name for o in self.part.select.occurrences if o.alias == alias)
        own = [i for i, ref in enumerate(self.refs) if ref.occurrence == alias]
        exact = [build_exact_classes(self.part, r) for r in self.need.projected if r.occurrence == alias]
        measures = tuple(m for m in self.need.measures if _occurrence(m.expression) == alias)
        if self.need.counted:
            codes = exact + self._clamped(own, lambda i, j: True)
            codes += self._disequality_codes(own)
            return StreamPlan(alias, stream, True, tuple(self._united(codes)), measures)
        return self._looked_for(alias, stream, own, exact)

    # --- classes -----------------------------------------------------------------------------------

    def _clamped(self, own: Iterable[int], wanted: Callable[[int, int], bool]) -> list[ColumnClasses]:
        """A code for each own column with joins for which ``wanted(lower, upper)`` holds."""
        out = []
        for i in own:
            windows = []
            for j in np.flatnonzero(self.regions.joins[i, :]):
                if wanted(i, int(j)):
                    windows.append(self._window(i, int(j), lower=True))
            for j in np.flatnonzero(self.regions.joins[:, i]):
                if wanted(int(j), i):
                    windows.append(self._window(i, int(j), lower=False))
            if windows:
                out.append(build_clamped_classes(self.part, self.refs[i], windows))
        return out

    def _window(self, own: int, other: int, lower: bool) -> PartnerRange:
        """Where the partner can tell values of an own column apart."""
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

    def _disequality_codes(self, own: Sequence[int]) -> list[ColumnClasses]:
        out = []
        for ref, window in self._disequalities(own):
            if window is None:
                raise NoPlanError(f"{ref} is compared by <> without bound")
            out.append(build_clamped_classes(self.part, ref, [window]))
        return out

    def _disequalities(self, own: Sequence[int]) -> list[tuple[Ref, PartnerRange | None]]:
        """Own columns in cross-stream ``<>`` joins, with the window of values that matter, if finite."""
        mine = {self.refs[i] for i in own}
        out: list[tuple[Ref, PartnerRange | None]] = []
        for d in self.part.apart:
            if d.right is None or d.left.occurrence == d.right.occurrence:
                continue
            if not all(self._visible(ref) for ref in (d.left, d.right)):
                continue
            if is_implied_disequality(self.regions, d.left, d.right):
                continue
            for ref, other, shift in ((d.left, d.right, d.value), (d.right, d.left, -d.value)):
                if ref in mine:
                    out.append((ref, self._overlap(ref, other, shift)))
        return out

    def _visible(self, ref: Ref) -> bool:
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

    def _united(self, codes: Iterable[ColumnClasses]) -> list[ColumnClasses]:
        """One code a column, as fine as the finest; columns that another determines left out."""
        by_column: dict[Ref, list[ColumnClasses]] = {}
        for code in codes:
            by_column.setdefault(code.column, []).append(code)
        united = []
        for column, same in by_column.items():
            exact = [c for c in same if not c.below and not c.above and c.grid is None]
            if exact:
                united.append(exact[0])
            else:
                united.append(build_clamped_classes(self.part, column, [_as_window(c) for c in same]))
        full = [c for c in united if not c.below and not c.above]
        partial = [c for c in united if c.below or c.above]
        return _independent(self.part, full) + partial

    # --- extremes ----------------------------------------------------------------------------------

    def _looked_for(self, alias: str, stream: str, own: list[int], exact: list[ColumnClasses]) -> StreamPlan:
        differing, codes = [], list(exact)
        for ref, window in self._disequalities(own):
            if window is None:
                differing.append(ref)
            else:
                codes.append(build_clamped_classes(self.part, ref, [window]))
        codes += self._equality_codes(own)
        for columns in (self._inequality_columns(own), self._active_columns(own)):
            for smallest in (True, False):
                attempt = self._one_extreme(own, columns, smallest)
                if attempt is not None:
                    extremes, more = attempt
                    return StreamPlan(
                        alias,
                        stream,
                        False,
                        tuple(self._united(codes + more)),
                        patterns=(ZonePattern((), extremes),),
                        differing=tuple(dict.fromkeys(differing)),
                    )
        return self._zoned(alias, stream, own, codes, tuple(dict.fromkeys(differing)))

    def _is_equality(self, i: int, j: int) -> bool:
        return bool(self.regions.joins[i, j] and self.closure.fixed[i, j])

    def _equality_codes(self, own: Iterable[int]) -> list[ColumnClasses]:
        return self._clamped(own, self._is_equality)

    def _inequality_columns(self, own: Iterable[int]) -> list[int]:
        joins = self.regions.joins & ~self.closure.fixed
        return [i for i in own if joins[i, :].any() or joins[:, i].any()]

    def _active_columns(self, own: Iterable[int]) -> list[int]:
        busy = np.asarray((self.regions.is_lower | self.regions.is_upper).any(axis=0))
        return [i for i in own if busy[i]]

    def _one_extreme(
        self, own: Iterable[int], columns: list[int], smallest: bool
    ) -> tuple[tuple[Extreme, ...], list[ColumnClasses]] | None:
        """One extreme over ``columns``, the other joins told apart by classes; None if that fails."""
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
            more = self._clamped(own, lambda i, j: (i, j) not in covered and not self._is_equality(i, j))
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
                raise NoPlanError("demands on different partners are not comparable")
            slacks.append(tuple(s for s in row if s is not None))
        return Extreme(
            smallest,
            tuple(self.refs[x] for x in columns),
            tuple(self.refs[z] for z in partners),
            tuple(slacks),
            self._spreads(columns, slacks),
        )

    def _spreads(self, columns: Sequence[int], slacks: Sequence[tuple[tuple[Fraction, bool], ...]]) -> int:
        """In how many ways the demands on the partners can differ from each other."""
        steps = [self.closure.nodes[x].type.step for x in columns]
        step = min(steps) if steps else Fraction(0)
        first = slacks[0]
        total = 1
        for row in dict.fromkeys(slacks):
            gaps = [a[0] - b[0] for a, b in zip(first, row, strict=True)]
            width = max(gaps) - min(gaps)
            if width and not step:
                raise NoPlanError("offsets between dense columns")
            total *= int(width / step) + 1 if width else 1
        flags = {tuple(row[i][1] for row in slacks) for i in range(len(columns))}
        return total * _unions(flags)

    # --- zones -------------------------------------------------------------------------------------

    def _zoned(
        self, alias: str, stream: str, own: list[int], codes: list[ColumnClasses], differing: tuple[Ref, ...]
    ) -> StreamPlan:
        """Different rows serve partners below and above the constants (Lemma B.6 of paper 1)."""
        columns = self._active_columns(own)
        if len(columns) > _MAX_ZONED:
            raise NoPlanError(f"more than {_MAX_ZONED} columns of {alias} take part in unbounded joins")
        zoned = [
            build_clamped_classes(self.part, self.refs[i], [PartnerRange(*self._cuts(i), Fraction(0))])
            for i in columns
        ]
        inactive = [i for i in own if i not in columns]
        rest = self._clamped(inactive, lambda i, j: not self._is_equality(i, j))
        patterns = []
        for zones in product((UNDER, AMONG, OVER), repeat=len(columns)):
            if self._zones_possible(columns, zones) and all(
                zone_size(c, z) for c, z in zip(zoned, zones, strict=True)
            ):
                patterns.append(ZonePattern(zones, self._zone_extremes(columns, zones)))
        return StreamPlan(
            alias,
            stream,
            False,
            tuple(self._united([*codes, *rest])),
            zoned=tuple(zoned),
            patterns=tuple(patterns),
            differing=differing,
        )

    def _cuts(self, i: int) -> tuple[Fraction, Fraction]:
        """The constants of the column's family, widened by every offset in the query."""
        family = self.closure.nodes[i].type.family
        ends = []
        for node in self.closure.nodes:
            if node.type.family is family:
                r = self.closure.range(node.ref)
                ends += [x for x in (r.low, r.high) if x is not None]
        if not ends:
            raise NoPlanError("conflicting joins without constants")
        offsets = [abs(d.bound) for d in self.part.differences if d.left is not None and d.right is not None]
        step = self.closure.nodes[i].type.step
        margin = sum(offsets, start=step) if step else Fraction(0)
        return min(ends) - margin, max(ends) + margin

    def _zones_possible(self, columns: Sequence[int], zones: Sequence[int]) -> bool:
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
                    if self._partner_possible(int(z), zone, zone_of)
                ]
                used = [x for x in mine if any(active[x, z] for z in partners)]
                if partners:
                    out.append((zone, self._extreme(used, partners, smallest)))
        if len({zone for zone, _ in out}) != len(out):
            raise NoPlanError("rows that demand both least and most")
        return tuple(extreme for _, extreme in out)

    def _partner_possible(self, z: int, zone: int, zone_of: dict[int, int]) -> bool:
        below = self.closure.below
        if zone == UNDER:
            return not any(below[y, z] for y, other in zone_of.items() if other > UNDER)
        return not any(below[z, y] for y, other in zone_of.items() if other < OVER)


def _as_window(code: ColumnClasses) -> PartnerRange:
    anchor, step = code.grid or (code.low, Fraction(0))
    return PartnerRange(code.low, code.high, step, anchor)


def _next_up(x: Fraction, step: Fraction, inclusive: bool) -> Fraction:
    """The first multiple of ``step`` above ``x``, or at it."""
    multiple = -(-x // step) * step
    return multiple if inclusive or multiple > x else multiple + step


def _plus(x: Fraction | None, y: Fraction) -> Fraction | None:
    return None if x is None else x + y


def _unions(flags: set[tuple[bool, ...]]) -> int:
    """How many different unions of non-empty subsets of the flag vectors there are."""
    seen: set[tuple[bool, ...]] = set()
    for vector in flags:
        seen |= {tuple(a or b for a, b in zip(vector, other, strict=True)) for other in seen} | {vector}
    return max(len(seen), 1)


def _occurrence(expr: Expr) -> str | None:
    return next((r.occurrence for r in refs(expr)), None)
