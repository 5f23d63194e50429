"""The criteria of paper 1 for select-project-join queries: Theorems 5.6 and 5.10.

``decide_counted_join`` decides Theorem 5.6 (duplicates kept: matches are counted) and
``decide_existence_join`` decides Theorem 5.10 (DISTINCT: only the existence of a match matters).

The paper states the conditions for every locally totally ordered (LTO) query derived from the query.  Here
each condition is decided at once, on the closure of the whole query (section 6 of paper 1), with a constant
number of look-ups per pair of joins.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from millpond.analysis.regions import Bools, JoinRegions
from millpond.analysis.violations import MovingColumns, Violation, ViolationCode
from millpond.query.expressions import Ref

# --- theorems ----------------------------------------------------------------------------------------


def decide_counted_join(
    regions: JoinRegions, projected: Iterable[Ref], code: ViolationCode
) -> list[Violation]:
    """Decide Theorem 5.6 of paper 1 (duplicate-preserving); no violation means bounded.

    ``code`` is the code for an unbounded projected column.
    """
    return [
        *find_unbounded_projections(regions, projected, code),
        *find_unbounded_equality_joins(regions),
        *find_counted_inequality_joins(regions),
        *find_counted_disequality_joins(regions),
    ]


def decide_existence_join(
    regions: JoinRegions, projected: Iterable[Ref], code: ViolationCode
) -> list[Violation]:
    """Decide Theorem 5.10 of paper 1 (duplicate-eliminating); no violation means bounded.

    ``<>`` joins never make such a query unbounded.  ``code`` is the code for an unbounded projected column.
    """
    conflict = find_conflicting_references(regions)
    return [
        *find_unbounded_projections(regions, projected, code),
        *find_unbounded_equality_joins(regions),
        *([conflict] if conflict is not None else []),
    ]


# --- conditions --------------------------------------------------------------------------------------


def find_unbounded_projections(
    regions: JoinRegions, projected: Iterable[Ref], code: ViolationCode
) -> list[Violation]:
    """C1 of Theorems 5.6 and 5.10: every projected column must be bounded."""
    closure = regions.closure
    out = []
    for ref in projected:
        if ref not in regions.part.nulls and not closure.is_bounded(ref):
            moving = MovingColumns((ref,), regions.find_top_region(closure.index[ref]))
            out.append(Violation(code, ref.occurrence, (ref,), (), (moving,)))
    return out


def find_unbounded_equality_joins(regions: JoinRegions) -> list[Violation]:
    """C2 of Theorems 5.6 and 5.10: the columns of an equality join, stated or implied, must be bounded."""
    closure = regions.closure
    loose, limited = ~closure.known, closure.is_limited
    both = ~np.logical_and.outer(limited, limited) & np.logical_and.outer(loose, loose)
    pairs = np.argwhere(regions.across & closure.fixed & both)
    out = []
    for i, j in _prefer_stated(regions, pairs):
        pair = closure.nodes[i].ref, closure.nodes[j].ref
        moving = MovingColumns(pair, regions.find_top_region(i))
        code = ViolationCode.UNBOUNDED_EQUALITY_JOIN
        out.append(Violation(code, pair[0].occurrence, pair, (pair,), (moving,)))
    return out


def find_counted_inequality_joins(regions: JoinRegions) -> list[Violation]:
    """C3 of Theorem 5.6: no inequality join may have both sides in one region."""
    anywhere = np.asarray(regions.active.any(axis=0))
    out = []
    for i, j in _prefer_stated(regions, np.argwhere(anywhere)):
        region = int(np.flatnonzero(regions.active[:, i, j])[0])
        pair = regions.closure.nodes[i].ref, regions.closure.nodes[j].ref
        kept = _choose_kept_side(regions, *pair).occurrence
        code = ViolationCode.COUNTED_INEQUALITY_JOIN
        out.append(Violation(code, kept, pair, (pair,), (MovingColumns(pair, region),)))
    return out


def find_counted_disequality_joins(regions: JoinRegions) -> list[Violation]:
    """With duplicates, no ``<>`` join may have both sides in one region, unless an order implies it."""
    closure = regions.closure
    out = []
    for d in regions.part.apart:
        if d.right is None:
            continue
        i, j = closure.index[d.left], closure.index[d.right]
        if not regions.across[i, j] or is_implied_disequality(regions, d.left, d.right):
            continue
        shared = np.flatnonzero(regions.can_grow[:, i] & regions.can_grow[:, j])
        if len(shared):
            pair, kept = (d.left, d.right), _choose_kept_side(regions, d.left, d.right)
            moving = MovingColumns((kept,), int(shared[0]))
            code = ViolationCode.COUNTED_DISEQUALITY_JOIN
            out.append(Violation(code, kept.occurrence, pair, (pair,), (moving,)))
    return out


def is_implied_disequality(regions: JoinRegions, left: Ref, right: Ref) -> bool:
    """Every disequality between the two columns follows from their order."""
    return all(
        regions.closure.keeps_apart(left, right, d.value)
        for d in regions.part.apart
        if (d.left, d.right) == (left, right)
    )


def find_conflicting_references(regions: JoinRegions) -> Violation | None:
    """C3 of Theorem 5.10: no two joins of one stream may require different rows of it to be kept.

    Two joins conflict if both can be active, in one region or in two, unless the closure makes one row
    serve both.  The three functions below look up the only cycles that exclude that both are active.
    """
    return _find_both_lower(regions) or _find_both_upper(regions) or _find_lower_and_upper(regions)


def _find_both_lower(regions: JoinRegions) -> Violation | None:
    """A < C and B < E, where B need not stay below C: A can rise while B falls."""
    active, below, members, owner = regions.active, regions.closure.below, regions.members, regions.owner
    reached = [_reached_columns(members, active[r]) for r in regions.numbers]
    busy = regions.is_lower
    for r1, r2 in product(regions.numbers, repeat=2):
        if r1 > r2:
            continue
        clash = busy[r2][:, None] & reached[r1][owner] & ~below
        for b, c in np.argwhere(clash)[:1]:
            a = _first(active[r1][:, c] & members[owner[b]])
            e = _first(active[r2][b, :])
            return _conflict(regions, (a, c, r1, 0), (b, e, r2, 1), kept=a)
    return None


def _find_both_upper(regions: JoinRegions) -> Violation | None:
    """C < A and E < B, the mirror image of ``_find_both_lower``."""
    active, below, members, owner = regions.active, regions.closure.below, regions.members, regions.owner
    reached = [_reached_columns(members, active[r].T) for r in regions.numbers]
    busy = regions.is_upper
    for r1, r2 in product(regions.numbers, repeat=2):
        if r1 < r2:
            continue
        clash = busy[r2][:, None] & reached[r1][owner] & ~below.T
        for b, c in np.argwhere(clash)[:1]:
            a = _first(active[r1][c, :] & members[owner[b]])
            e = _first(active[r2][:, b])
            return _conflict(regions, (c, a, r1, 1), (e, b, r2, 0), kept=a)
    return None


def _find_lower_and_upper(regions: JoinRegions) -> Violation | None:
    """C < A and B < E: one join prefers rows with a large A, the other rows with a small B."""
    active, below, members, owner = regions.active, regions.closure.below, regions.members, regions.owner
    same = owner[:, None] == owner[None, :]
    is_upper, is_lower = regions.is_upper, regions.is_lower
    for r in regions.numbers:
        for a, b in np.argwhere(is_upper[r][:, None] & is_lower[r][None, :] & same)[:1]:
            c, e = _first(active[r][:, a]), _first(active[r][b, :])
            nodes = regions.closure.nodes
            columns = tuple(dict.fromkeys(nodes[x].ref for x in (c, a, b, e)))
            joins = ((nodes[c].ref, nodes[a].ref), (nodes[b].ref, nodes[e].ref))
            kept = nodes[a].ref.occurrence
            code = ViolationCode.CONFLICTING_REFERENCES
            return Violation(code, kept, columns, joins, (MovingColumns(columns, r),))
    for r1, r2 in product(regions.numbers, repeat=2):
        if r1 < r2:
            clash = is_upper[r1][:, None] & is_lower[r2][None, :] & same & ~below.T
            for a, b in np.argwhere(clash)[:1]:
                c, e = _first(active[r1][:, a]), _first(active[r2][b, :])
                return _conflict(regions, (c, a, r1, 0), (b, e, r2, 0), kept=a, directions=(1, 1))
        if r1 > r2:
            above, under = _reached_columns(members, active[r1].T), _reached_columns(members, active[r2])
            for s in range(len(members)):
                clash = above[s][:, None] & under[s][None, :] & ~below
                for c, e in np.argwhere(clash)[:1]:
                    a, b = _first(active[r1][c, :] & members[s]), _first(active[r2][:, e] & members[s])
                    return _conflict(regions, (c, a, r1, 0), (b, e, r2, 0), kept=a, directions=(1, 1))
    return None


# --- helpers -----------------------------------------------------------------------------------------


def _conflict(
    regions: JoinRegions,
    first: tuple[int, int, int, int],
    second: tuple[int, int, int, int],
    kept: int,
    directions: tuple[int, int] = (1, -1),
) -> Violation:
    """The violation by two joins, each given as (lower side, upper side, region, level)."""
    nodes = regions.closure.nodes
    joins = tuple((nodes[low].ref, nodes[high].ref) for low, high, _, _ in (first, second))
    moving = tuple(
        MovingColumns(pair, region, direction, level)
        for pair, (_, _, region, level), direction in zip(joins, (first, second), directions, strict=True)
    )
    columns = tuple(dict.fromkeys(ref for pair in joins for ref in pair))
    code = ViolationCode.CONFLICTING_REFERENCES
    return Violation(code, nodes[kept].ref.occurrence, columns, joins, moving)


def _choose_kept_side(regions: JoinRegions, left: Ref, right: Ref) -> Ref:
    """The side of a join whose rows are kept for the other: the left one, unless it is the later one."""
    time = regions.time
    a, b = (time.group_of(ref.occurrence) for ref in (left, right))
    return right if time.is_not_after(b, a) and not time.is_not_after(a, b) else left


def _reached_columns(members: Bools, joined: Bools) -> Bools:
    """reached[s, j]: some column of stream s is joined to column j."""
    return np.asarray(members.astype(np.float32) @ joined.astype(np.float32) > 0)


def _first(mask: Bools) -> int:
    return int(np.flatnonzero(mask)[0])


def _prefer_stated(regions: JoinRegions, pairs: NDArray[np.intp]) -> list[tuple[int, int]]:
    """The pairs that the user wrote or, if all of them are implied, the first one."""
    index = regions.closure.index
    stated = {
        (index[e.difference.left], index[e.difference.right])
        for e in regions.part.edges
        if e.difference.left is not None and e.difference.right is not None
    }
    every = [(int(i), int(j)) for i, j in pairs]
    written = [(i, j) for i, j in every if (i, j) in stated and ((j, i) not in stated or i < j)]
    return written or every[:1]
