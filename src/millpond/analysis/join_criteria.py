"""Select-project-join: the conditions of paper 1, each as one function.

A condition is decided on the closure of the whole query (section 6 of paper 1 as a constant number of
look-ups a pair of joins) instead of on every locally totally ordered query derived from it.  What a
function returns is a *violation*: the columns that force memory to grow, and the layout of values
from which a certificate is built.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from millpond.analysis.regions import Bools, Ordering
from millpond.query.model import Ref


@dataclass(frozen=True)
class Track:
    """Columns that move together, one window a round, in one region.

    ``slope`` is +1 where later rounds lie higher.  Of two tracks in a region the one with the smaller
    ``level`` lies below the other in every round.
    """

    columns: tuple[Ref, ...]
    region: int
    slope: int = 1
    level: int = 0


@dataclass(frozen=True)
class Violation:
    """Why memory must grow: of ``keeper`` (an occurrence) any number of rows must be told apart.

    ``joins`` are pairs (lower side, upper side) of cross-stream joins.  ``alternatives`` are other tracks
    that may show it.
    """

    code: str
    keeper: str
    columns: tuple[Ref, ...]
    joins: tuple[tuple[Ref, Ref], ...]
    tracks: tuple[Track, ...]
    alternatives: tuple[tuple[Track, ...], ...] = ()


def unbounded_projection(ordering: Ordering, projected: Iterable[Ref], code: str) -> list[Violation]:
    """C1 of Theorems 5.6 and 5.10: every projected column must be bounded."""
    closure = ordering.closure
    out = []
    for ref in projected:
        if ref not in ordering.part.nulls and not closure.is_bounded(ref):
            region = _some_region(ordering, closure.index[ref])
            out.append(Violation(code, ref.occurrence, (ref,), (), (Track((ref,), region),)))
    return out


def unbounded_equality(ordering: Ordering) -> list[Violation]:
    """C2: the columns of an equality join, stated or implied, must be bounded."""
    closure = ordering.closure
    loose = ~closure.bounded
    pairs = np.argwhere(ordering.across & closure.fixed & loose[:, None] & loose[None, :])
    out = []
    for i, j in _preferred(ordering, pairs):
        left, right = closure.nodes[i].ref, closure.nodes[j].ref
        track = Track((left, right), _some_region(ordering, i))
        out.append(
            Violation("unbounded-equality-join", left.occurrence, (left, right), ((left, right),), (track,))
        )
    return out


def counted_inequality(ordering: Ordering) -> list[Violation]:
    """C3 of Theorem 5.6: with duplicates no inequality join may have both ends in one open region."""
    anywhere = np.asarray(ordering.active.any(axis=0))
    out = []
    for i, j in _preferred(ordering, np.argwhere(anywhere)):
        region = int(np.flatnonzero(ordering.active[:, i, j])[0])
        low, high = ordering.closure.nodes[i].ref, ordering.closure.nodes[j].ref
        track = Track((low, high), region)
        keeper = _waiting(ordering, low, high).occurrence
        out.append(Violation("counted-inequality-join", keeper, (low, high), ((low, high),), (track,)))
    return out


def counted_disequality(ordering: Ordering) -> list[Violation]:
    """With duplicates, ``<>`` is a join that must be counted unless the closure orders its two sides."""
    closure = ordering.closure
    out = []
    for d in ordering.part.apart:
        if d.right is None:
            continue
        i, j = closure.index[d.left], closure.index[d.right]
        if not ordering.across[i, j]:
            continue
        if implied_apart(ordering, d.left, d.right):
            continue
        regions = np.flatnonzero(ordering.possible[:, i] & ordering.possible[:, j])
        if len(regions):
            pair, held = (d.left, d.right), _waiting(ordering, d.left, d.right)
            track = Track((held,), int(regions[0]))
            out.append(Violation("counted-disequality-join", held.occurrence, pair, (pair,), (track,)))
    return out


def _waiting(ordering: Ordering, left: Ref, right: Ref) -> Ref:
    """The side of a join whose rows wait for the other's: the left one, unless it comes after the right."""
    time = ordering.time
    a, b = (time.groups[time.group_numbers[ref.occurrence]] for ref in (left, right))
    return right if time.is_not_after(b, a) and not time.is_not_after(a, b) else left


def implied_apart(ordering: Ordering, left: Ref, right: Ref) -> bool:
    """Every disequality between the two columns follows from their order."""
    return all(
        ordering.closure.keeps_apart(left, right, d.value)
        for d in ordering.part.apart
        if (d.left, d.right) == (left, right)
    )


def conflicting_references(ordering: Ordering) -> Violation | None:
    """C3 of Theorem 5.10: two joins of one stream that need different rows of it kept.

    Two joins conflict where both can be active, in the same region or in two, unless the closure makes
    one row serve both (``proofs`` of the criterion: the only cycles that exclude the two at once are the
    look-ups below).
    """
    return _both_lower(ordering) or _both_upper(ordering) or _lower_and_upper(ordering)


def _reached(members: Bools, joined: Bools) -> Bools:
    """reached[s, j]: some column of occurrence s is joined to column j."""
    return np.asarray(members.astype(np.float32) @ joined.astype(np.float32) > 0)


def _regions(ordering: Ordering) -> range:
    return range(ordering.active.shape[0])


def _both_lower(ordering: Ordering) -> Violation | None:
    """A < C and B < E, with C reachable below B: A may rise while B falls."""
    active, below, members, owner = ordering.active, ordering.closure.below, ordering.members, ordering.owner
    reached = [_reached(members, active[r]) for r in _regions(ordering)]
    busy = ordering.is_lower
    for r1, r2 in product(_regions(ordering), repeat=2):
        if r1 > r2:
            continue
        clash = busy[r2][:, None] & reached[r1][owner] & ~below
        for b, c in np.argwhere(clash)[:1]:
            a = _first(active[r1][:, c] & members[owner[b]])
            e = _first(active[r2][b, :])
            return _opposed(ordering, (a, c, r1, 0), (b, e, r2, 1), keeper=a)
    return None


def _both_upper(ordering: Ordering) -> Violation | None:
    """C < A and E < B, the mirror image."""
    active, below, members, owner = ordering.active, ordering.closure.below, ordering.members, ordering.owner
    reached = [_reached(members, active[r].T) for r in _regions(ordering)]
    busy = ordering.is_upper
    for r1, r2 in product(_regions(ordering), repeat=2):
        if r1 < r2:
            continue
        clash = busy[r2][:, None] & reached[r1][owner] & ~below.T
        for b, c in np.argwhere(clash)[:1]:
            a = _first(active[r1][c, :] & members[owner[b]])
            e = _first(active[r2][:, b])
            return _opposed(ordering, (c, a, r1, 1), (e, b, r2, 0), keeper=a)
    return None


def _lower_and_upper(ordering: Ordering) -> Violation | None:
    """C < A and B < E: A wants large, B wants small."""
    active, below, members, owner = ordering.active, ordering.closure.below, ordering.members, ordering.owner
    same = owner[:, None] == owner[None, :]
    is_upper, is_lower = ordering.is_upper, ordering.is_lower
    for r in _regions(ordering):
        for a, b in np.argwhere(is_upper[r][:, None] & is_lower[r][None, :] & same)[:1]:
            c, e = _first(active[r][:, a]), _first(active[r][b, :])
            nodes = ordering.closure.nodes
            columns = tuple(dict.fromkeys(nodes[x].ref for x in (c, a, b, e)))
            joins = ((nodes[c].ref, nodes[a].ref), (nodes[b].ref, nodes[e].ref))
            keeper = nodes[a].ref.occurrence
            return Violation("conflicting-references", keeper, columns, joins, (Track(columns, r),))
    for r1, r2 in product(_regions(ordering), repeat=2):
        if r1 < r2:
            clash = is_upper[r1][:, None] & is_lower[r2][None, :] & same & ~below.T
            for a, b in np.argwhere(clash)[:1]:
                c, e = _first(active[r1][:, a]), _first(active[r2][b, :])
                return _opposed(ordering, (c, a, r1, 0), (b, e, r2, 0), keeper=a, slopes=(1, 1))
        if r1 > r2:
            above, under = _reached(members, active[r1].T), _reached(members, active[r2])
            for s in range(len(members)):
                clash = above[s][:, None] & under[s][None, :] & ~below
                for c, e in np.argwhere(clash)[:1]:
                    a, b = _first(active[r1][c, :] & members[s]), _first(active[r2][:, e] & members[s])
                    return _opposed(ordering, (c, a, r1, 0), (b, e, r2, 0), keeper=a, slopes=(1, 1))
    return None


def _opposed(
    ordering: Ordering,
    first: tuple[int, int, int, int],
    second: tuple[int, int, int, int],
    keeper: int,
    slopes: tuple[int, int] = (1, -1),
) -> Violation:
    nodes = ordering.closure.nodes
    joins = tuple((nodes[low].ref, nodes[high].ref) for low, high, _, _ in (first, second))
    tracks = tuple(
        Track(pair, region, slope, level)
        for pair, (_, _, region, level), slope in zip(joins, (first, second), slopes, strict=True)
    )
    columns = tuple(dict.fromkeys(ref for pair in joins for ref in pair))
    return Violation("conflicting-references", nodes[keeper].ref.occurrence, columns, joins, tracks)


def duplicate_preserving(ordering: Ordering, projected: Iterable[Ref], code: str) -> list[Violation]:
    """Theorem 5.6 on every derived LTO query; empty means bounded."""
    return [
        *unbounded_projection(ordering, projected, code),
        *unbounded_equality(ordering),
        *counted_inequality(ordering),
        *counted_disequality(ordering),
    ]


def duplicate_eliminating(ordering: Ordering, projected: Iterable[Ref], code: str) -> list[Violation]:
    """Theorem 5.10 on every derived LTO query; empty means bounded.  ``<>`` never decides here."""
    conflict = conflicting_references(ordering)
    return [
        *unbounded_projection(ordering, projected, code),
        *unbounded_equality(ordering),
        *([conflict] if conflict is not None else []),
    ]


def _some_region(ordering: Ordering, column: int) -> int:
    """A region in which an unbounded column can go on; the upper end where there is a choice."""
    return int(np.flatnonzero(ordering.possible[:, column])[-1])


def _first(mask: Bools) -> int:
    return int(np.flatnonzero(mask)[0])


def _preferred(ordering: Ordering, pairs: NDArray[np.intp]) -> list[tuple[int, int]]:
    """The pairs that the user wrote or, where all are implied, the first of them."""
    index = ordering.closure.index
    stated = {
        (index[e.difference.left], index[e.difference.right])
        for e in ordering.part.edges
        if e.difference.left is not None and e.difference.right is not None
    }
    every = [(int(i), int(j)) for i, j in pairs]
    written = [(i, j) for i, j in every if (i, j) in stated and ((j, i) not in stated or i < j)]
    return written or every[:1]
