"""A second checker for queries over application time that follows the definition.

For conjunctions over integers and timestamps (``time_generate.TimeCase``).  It implements the criteria of
paper 2, as corrected in ``docs/reference/time.md``, independently of ``millpond.analysis``: it derives the
locally totally ordered (LTO) queries and applies the criterion to each.  If the theory leaves a query open,
or the enumeration is too large, the verdict is "unknown".

Streams with equal timestamps are one stream.  A stream whose timestamp is bounded above is finite: its values
are unknown constants, so its columns are bounded, by ``FAR`` on either side, which is further out than every
constant of the query.

Conditions are difference-bound matrices as in ``definition``, many of one shape at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf

import numpy as np
from numpy.typing import NDArray

from tests.support.definition import (
    BOUNDED,
    HALF,
    INF,
    UNBOUNDED,
    UNKNOWN,
    Mask,
    Matrix,
    TooLargeError,
    _close,
    _consistent,
    _pinned,
    _references,
    _same_class,
    _split_bounded,
    _splits,
    _tighten,
    _unbounded,
)
from tests.support.generate import Column
from tests.support.time_generate import START, TimeAtom, TimeCase

__all__ = ["BOUNDED", "UNBOUNDED", "UNKNOWN", "TimeQuery", "decide", "time_order", "time_query"]

LARGEST_ENUMERATION = 40_000  # LTO queries of one query
CHUNK = 5_000  # as many at once
FAR = 1_000
_TICK = 1  # microsecond
VIRTUAL = "virtual O"

Unequal = tuple[int, int, int]


def decide(
    case: TimeCase, *, literal: bool = False, late: Column | None = None, early: Column | None = None
) -> str:
    """Whether the query is computable in bounded memory, by definition.

    ``late`` (``early``) is the column that stands for a timestamp of which MAX (MIN) is asked for.
    Literally, every column is ordered among all others of its stream and all constants.  Else columns
    between the outermost constants are left as they are: they are bounded, whatever their place there.
    """
    query = time_query(case)
    if query is None:
        return BOUNDED
    try:
        wanted = [None if c is None else int(query.owner[query.columns.index(c)]) for c in (late, early)]
        verdict = _decide(case, replace(query, literal=literal, late=wanted[0], early=wanted[1]))
    except TooLargeError:
        return UNKNOWN
    doubled = len(set(case.occurrences.values())) < len(case.occurrences)
    return UNKNOWN if doubled and verdict == UNBOUNDED else verdict


def _decide(case: TimeCase, query: TimeQuery) -> str:
    if case.aggregate is None:
        return _distinct(query) if case.distinct else _duplicate_preserving(query)
    function, unique, argument = case.aggregate
    free = _unbounded(query.base[None])[0]
    if free[list(query.projection)].any():
        return UNBOUNDED  # the answer itself is state
    column = 0 if argument is None else query.columns.index(argument)
    if unique:
        return _distinct(replace(query, projection=(*query.projection, column)))
    if function in ("MIN", "MAX"):
        return _distinct(_asked_for_more(query, column, function) if free[column] else query)
    if function == "MEDIAN" and free[column]:
        return UNBOUNDED
    values = (column,) if function == "MEDIAN" else ()
    counted = _duplicate_preserving(replace(query, projection=(*query.projection, *values)))
    repeatable = function in ("AVG", "MEDIAN")  # what is repeated equally often need not be counted
    if counted == UNBOUNDED and (repeatable or (function == "SUM" and _pinned(query.base, column) == 0)):
        return UNBOUNDED if _distinct(query) == UNBOUNDED else UNKNOWN
    return counted


def is_always_zero(case: TimeCase, column: Column) -> bool:
    """Whether the condition pins a column to 0."""
    query = time_query(case)
    return (
        query is not None
        and column in query.columns
        and _pinned(query.base, query.columns.index(column)) == 0
    )


# --- the order in time ------------------------------------------------------------------------------


@dataclass(frozen=True)
class TimeOrder:
    """What the condition implies for the timestamps.

    ``before`` holds (e, f) where the timestamp of e is at most that of f, for every pair of occurrences
    and (e, e); ``latest`` the bound of each finite occurrence.
    """

    before: frozenset[tuple[str, str]]
    latest: dict[str, int]


def time_order(case: TimeCase) -> TimeOrder | None:
    """The closure of the time atoms, None where they contradict each other."""
    nodes = ["", *case.occurrences]
    base = [[0.0 if a == b else inf for b in nodes] for a in nodes]
    unequal = []
    for atom in case.time_atoms:
        x, operator, y, c = _time_bound(nodes, atom)
        if operator in ("<", "<=", "="):
            base[x][y] = min(base[x][y], c - _TICK * (operator == "<"))
        if operator in (">", ">=", "="):
            base[y][x] = min(base[y][x], -c - _TICK * (operator == ">"))
        if operator == "<>":
            unequal.append((x, y, c))
    if not _time_splits(base, unequal):
        return None
    d = _time_tightened(base, unequal)
    names = range(1, len(nodes))
    return TimeOrder(
        frozenset((nodes[e], nodes[f]) for e in names for f in names if d[e][f] <= 0),
        {nodes[e]: int(d[e][0]) for e in names if d[e][0] < inf},
    )


def ticks(timestamp: datetime) -> int:
    """Microseconds since the start of all random streams."""
    since = timestamp - START
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _time_bound(nodes: Sequence[str], atom: TimeAtom) -> tuple[int, str, int, int]:
    alias, operator, other = atom
    if isinstance(other, datetime):
        return nodes.index(alias), operator, 0, ticks(other)
    return nodes.index(alias), operator, nodes.index(other), 0


def _time_closed(base: list[list[float]]) -> list[list[float]]:
    d = [list(row) for row in base]
    size = range(len(d))
    for k in size:
        for i in size:
            for j in size:
                d[i][j] = min(d[i][j], d[i][k] + d[k][j])
    return d


def _time_splits(base: list[list[float]], unequal: Sequence[Unequal]) -> bool:
    """Satisfiable, every ``<>`` split into its two sides."""
    d = _time_closed(base)
    if any(d[i][i] < 0 for i in range(len(d))):
        return False
    if not unequal:
        return True
    (x, y, c), *rest = unequal
    for a, b, bound in ((x, y, c - _TICK), (y, x, -c - _TICK)):
        side = [list(row) for row in d]
        side[a][b] = min(side[a][b], bound)
        if _time_splits(side, rest):
            return True
    return False


def _time_tightened(base: list[list[float]], unequal: Sequence[Unequal]) -> list[list[float]]:
    """The closure, with ``<=`` and ``<>`` of the same pair made ``<``."""
    d = _time_closed(base)
    while True:
        before = d
        d = [list(row) for row in before]
        for x, y, c in unequal:
            d[x][y] -= _TICK * (d[x][y] == c)
            d[y][x] -= _TICK * (d[y][x] == -c)
        d = _time_closed(d)
        if d == before:
            return d


# --- a query as a matrix ----------------------------------------------------------------------------


@dataclass(frozen=True)
class TimeQuery:
    """``base`` is closed; ``owner`` is each node's stream, equal timestamps being one stream, -1 for zero.

    ``before[e, f]``: stream e is never after stream f.  ``infinite``: the streams that do not end.
    """

    columns: tuple[tuple[str, str] | None, ...]
    owner: NDArray[np.int64]
    before: Mask
    infinite: tuple[int, ...]
    base: Matrix
    unequal: tuple[Unequal, ...]
    projection: tuple[int, ...]
    constants: tuple[int, ...]
    literal: bool = False
    late: int | None = None
    early: int | None = None

    @property
    def last(self) -> int | None:
        """The infinite stream that no other infinite one is ever after."""
        found = [m for m in self.infinite if all(self.before[e, m] for e in self.infinite)]
        return found[0] if found else None


def time_query(case: TimeCase) -> TimeQuery | None:
    """The case as matrices over the columns that matter, None if it can never have a result."""
    order = time_order(case)
    if order is None:
        return None
    named = {c for left, _, right in case.atoms for c in (left, right) if not isinstance(c, int)}
    named |= {*case.projection, *([case.aggregate[2]] if case.aggregate and case.aggregate[2] else [])}
    columns: list[tuple[str, str] | None] = [None]
    columns += [
        (alias, c)
        for alias, stream in case.occurrences.items()
        for c in case.streams[stream]
        if (alias, c) in named
    ]
    merged = {
        e: min(f for f in case.occurrences if {(e, f), (f, e)} <= order.before) for e in case.occurrences
    }
    streams = sorted(set(merged.values()))
    owner = np.array([-1 if c is None else streams.index(merged[c[0]]) for c in columns])

    base = np.full((len(columns), len(columns)), INF, np.int32)
    np.fill_diagonal(base, 0)
    unequal = []
    constants = {right for _, _, right in case.atoms if isinstance(right, int)}
    if order.latest:
        constants |= {-FAR, FAR}
    for x, column in enumerate(columns):
        if column is not None and column[0] in order.latest:
            base[x, 0] = base[0, x] = FAR
    for left, operator, right in case.atoms:
        x = columns.index(left)
        y, c = (0, right) if isinstance(right, int) else (columns.index(right), 0)
        if operator in ("<", "<=", "="):
            base[x, y] = min(base[x, y], c - (operator == "<"))
        if operator in (">", ">=", "="):
            base[y, x] = min(base[y, x], -c - (operator == ">"))
        if operator == "<>":
            unequal.append((x, y, c))
    closed = _close(base[None])
    if not len(_consistent(closed)) or not _splits(closed[0], unequal):
        return None
    return TimeQuery(
        columns=tuple(columns),
        owner=owner,
        before=np.array([[(e, f) in order.before for f in streams] for e in streams]),
        infinite=tuple(i for i, e in enumerate(streams) if e not in order.latest),
        base=_tighten(closed, unequal)[0],
        unequal=tuple(dict.fromkeys(unequal)),
        projection=tuple(columns.index(c) for c in case.projection),
        constants=tuple(sorted(constants)),
    )


# --- derived LTO queries ----------------------------------------------------------------------------


def _derived(query: TimeQuery, *, counted: bool) -> Iterator[Matrix]:
    """The closed matrices of the satisfiable LTO queries, in chunks.

    Joins by ``<>`` are split where every match counts; else they only make ``<=`` strict.
    """
    owner = query.owner
    across = [(x, y, c) for x, y, c in query.unequal if y and owner[x] != owner[y]]
    batch = query.base[None]
    for x, y, c in query.unequal:
        if counted or (x, y, c) not in across:
            batch = _guarded(_below(batch, x, y, c - 1), _below(batch, y, x, -c - 1))
    nodes = range(1, len(owner))
    outermost = (query.constants[:1], query.constants[-1:])
    for x in nodes:
        if query.literal:
            for k in query.constants:
                batch = _ordered(batch, x, 0, k)
            continue
        for low, high in zip(*outermost, strict=True):
            inside = _below(_below(batch, x, 0, high), 0, x, -low)
            batch = _guarded(_below(batch, x, 0, low - 1), inside, _below(batch, 0, x, -high - 1))
    for x in nodes:
        for y in range(x + 1, len(owner)):
            if owner[x] == owner[y]:
                free = _unbounded(batch)
                apart = ~(free[:, x] & free[:, y]) & (not query.literal)
                batch = _guarded(batch[apart], _ordered(batch[~apart], x, y, 0))
    for start in range(0, len(batch), CHUNK):
        some = batch[start : start + CHUNK]
        if across and not counted:
            some = _split_bounded(_tighten(some, across), across)
        if len(some):
            yield some


def _ordered(batch: Matrix, x: int, y: int, c: int) -> Matrix:
    """Every way in which x - y can lie to c: below, at, above."""
    at = _below(_below(batch, x, y, c), y, x, -c)
    return _guarded(_below(batch, x, y, c - 1), at, _below(batch, y, x, -c - 1))


def _below(batch: Matrix, x: int, y: int, c: int) -> Matrix:
    """The closed matrices with x - y <= c added, closed again; those that contradict it are gone."""
    d = batch[batch[:, y, x] + c >= 0]
    through = d[:, :, x, None] + c + d[:, None, y, :]
    closed: Matrix = np.where(through < np.minimum(d, HALF), through, d)
    return closed


def _guarded(*parts: Matrix) -> Matrix:
    if sum(len(part) for part in parts) > LARGEST_ENUMERATION:
        raise TooLargeError
    return np.concatenate(parts)


# --- all matches count ------------------------------------------------------------------------------


def _duplicate_preserving(query: TimeQuery) -> str:
    """Theorem 1 of paper 2, corrected: only the last stream may be unbounded."""
    others = query.owner != (-2 if query.last is None else query.last)
    for batch in _derived(query, counted=True):
        if _fails_counted(query, batch, others).any():
            return UNBOUNDED
    return BOUNDED


def _fails_counted(query: TimeQuery, batch: Matrix, others: Mask) -> Mask:
    """Some column of the others is unbounded and projected, equal to another stream's, or a reference."""
    free = _unbounded(batch) & others
    fails: Mask = np.any(free[:, list(query.projection)], axis=1)
    equal = _same_class(batch) & _across(query.owner)
    joins = _references(batch, query.owner)
    for related in (equal, joins, joins.transpose(0, 2, 1)):
        fails |= (free & related.any(axis=2)).any(axis=1)
    return fails


def _across(owner: NDArray[np.int64]) -> Mask:
    """Pairs of columns of different streams."""
    mask: Mask = (owner[:, None] != owner[None, :]) & (owner[:, None] >= 0) & (owner[None, :] >= 0)
    return mask


# --- DISTINCT ---------------------------------------------------------------------------------------


def _distinct(query: TimeQuery) -> str:
    """Theorem 2 of paper 2, corrected: C1, C2, T1 and T2 of every LTO query."""
    for batch in _derived(query, counted=False):
        if _fails_distinct(query, batch).any():
            return UNBOUNDED
    return BOUNDED


def _fails_distinct(query: TimeQuery, batch: Matrix) -> Mask:
    free = _unbounded(batch)
    fails: Mask = np.any(free[:, list(query.projection)], axis=1)  # C1
    equal = _same_class(batch) & _across(query.owner) & free[:, :, None]
    fails |= equal.any(axis=(1, 2))  # C2
    joins = _essential(batch, query.owner)
    for f in range(len(query.before)):
        outside = (query.owner >= 0) & ~_in_down(query, f)
        fails |= _fails_t1(query, batch, joins, f, outside)
        fails |= _fails_t2(query, joins, f, outside)
    return fails


def _in_down(query: TimeQuery, f: int) -> Mask:
    """The columns of f and of the streams that are never after f."""
    mask: Mask = query.before[query.owner, f] & (query.owner >= 0)
    return mask


def _essential(batch: Matrix, owner: NDArray[np.int64]) -> Mask:
    """[., x, y]: x below y joins unbounded columns, not through constants, with no column x <= e <= y."""
    free = _unbounded(batch)
    same = _same_class(batch)
    joins: Mask = (batch <= 0) & _across(owner) & free[:, :, None] & free[:, None, :] & ~same
    joins &= batch[:, :, 0, None] + batch[:, None, 0, :] > HALF
    for e in range(1, len(owner)):
        between = (batch[:, :, e, None] <= 0) & (batch[:, None, e, :] <= 0)
        joins &= ~(between & ~same[:, :, e, None] & ~same[:, None, e, :])
    return joins


def _fails_t1(query: TimeQuery, batch: Matrix, joins: Mask, f: int, outside: Mask) -> Mask:
    """T1 violated: f has two column classes, or two directions, towards streams outside down(f)."""
    own = np.flatnonzero(query.owner == f)
    same = _same_class(batch)[:, own][:, :, own] & np.tri(len(own), k=-1, dtype=bool)
    count = np.zeros(len(batch), np.int64)
    for directed in (joins, joins.transpose(0, 2, 1)):
        refers: Mask = np.any(directed[:, own] & outside, axis=2)
        count += (refers & ~(same & refers[:, None, :]).any(axis=2)).sum(axis=1)
    fails: Mask = count > 1
    return fails


def _fails_t2(query: TimeQuery, joins: Mask, f: int, outside: Mask) -> Mask:
    """T2 violated: some stream before f refers to streams outside down(f), and not to what f refers to."""
    fails = np.zeros(len(joins), bool)
    of_f = _partners(query, joins, f, outside)
    for e in np.flatnonzero(query.before[:, f]):
        if f == query.late or e == query.early:
            continue  # the last row of f completes all of e; the first row of e serves all of f
        of_e = _partners(query, joins, int(e), outside)
        fails |= of_e.any(axis=1) & of_f.any(axis=1) & (of_e != of_f).any(axis=1)
    return fails


def _partners(query: TimeQuery, joins: Mask, e: int, outside: Mask) -> Mask:
    """O_D(e): the columns outside D above e, then those below e."""
    own = query.owner == e
    above = joins[:, own].any(axis=1) & outside
    below = joins[:, :, own].any(axis=2) & outside
    return np.concatenate([above, below], axis=1)


def _asked_for_more(query: TimeQuery, column: int, function: str) -> TimeQuery:
    """MAX (MIN): "is there a result above (below) x?", x of a stream that no time constraint mentions."""
    size, streams = len(query.columns), len(query.before)
    base = np.full((size + 1, size + 1), INF, np.int32)
    base[:size, :size] = query.base
    base[size, size] = 0
    if function == "MAX":
        base[size, column] = -1
    else:
        base[column, size] = -1
    before = np.eye(streams + 1, dtype=bool)
    before[:streams, :streams] = query.before
    return replace(
        query,
        columns=(*query.columns, (VIRTUAL, "x")),
        owner=np.append(query.owner, streams),
        before=before,
        infinite=(*query.infinite, streams),
        base=_close(base[None])[0],
    )
