"""A second checker that follows the definition: it applies the theorems to every derived LTO query.

For conjunctions over integers (``generate.Case``).  It implements paper 1, with the corrections listed in
``docs/explained/paper-map.md``, independently of ``millpond.analysis``; it is slow and literal.  If theory
leaves a query open, or the enumeration is too large, the verdict is "unknown".

A condition is a difference-bound matrix: ``d[x, y]`` is the least c with x - y <= c; node 0 is zero.
Many matrices of one shape are closed at once, as an array with a leading axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.generate import Case, Column

BOUNDED, UNBOUNDED, UNKNOWN = "bounded", "unbounded", "unknown"

Matrix = NDArray[np.int32]
Mask = NDArray[np.bool_]
INF = np.int32(1 << 24)
HALF = np.int32(1 << 23)
LARGEST_ENUMERATION = 400_000  # LTO candidates of one query
LARGEST_GROUPS = 64  # values of the grouping columns, for AVG and MEDIAN
CHUNK = 4_000


class TooLargeError(Exception):
    """The enumeration exceeds its limit."""


def decide(case: Case) -> str:
    """Whether the query is computable in bounded memory, by definition."""
    try:
        query = _query(case)
        if not _satisfiable(query):
            return BOUNDED
        if case.aggregate is None:
            return _distinct(query) if case.distinct else _duplicate_preserving(query)
        function, unique, argument = case.aggregate
        free = _unbounded(query.base[None])[0]
        if any(free[x] for x in query.projection):
            return UNBOUNDED  # the answer itself is state
        column = None if argument is None else query.node(argument)
        if unique:
            return _distinct(replace(query, projection=(*query.projection, _known(column))))
        if function in ("MIN", "MAX"):
            return _extremum(query, _known(column), function)
        if function in ("AVG", "MEDIAN"):
            return _repeatable(query, _known(column), function)
        counted = _duplicate_preserving(query)
        if function == "SUM" and _pinned(query.base, _known(column)) == 0:
            return counted if counted == _distinct(query) else UNKNOWN
        return counted
    except TooLargeError:
        return UNKNOWN


def _known(column: int | None) -> int:
    assert column is not None
    return column


# --- a query as a matrix ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """``base`` is closed.  ``unequal`` holds (x, y, c): x - y <> c, y = 0 for a constant; x, y are nodes."""

    columns: tuple[Column | None, ...]  # the column of each node; node 0 has none
    streams: tuple[tuple[str, str], ...]  # (alias, stream) of every occurrence
    base: Matrix
    unequal: tuple[tuple[int, int, int], ...]
    projection: tuple[int, ...]
    constants: tuple[int, ...]

    def node(self, column: Column) -> int:
        return self.columns.index(column)

    @property
    def owner(self) -> NDArray[np.int64]:
        """The number of each node's occurrence, -1 for zero."""
        number = {alias: i for i, (alias, _) in enumerate(self.streams)}
        return np.array([-1 if c is None else number[c[0]] for c in self.columns])

    @property
    def self_joined(self) -> bool:
        return len({stream for _, stream in self.streams}) < len(self.streams)

    def joins_unequal(self) -> list[tuple[int, int, int]]:
        owner = self.owner
        return [(x, y, c) for x, y, c in self.unequal if y != 0 and owner[x] != owner[y]]


def _query(case: Case) -> Query:
    columns: list[Column | None] = [None]
    columns += [(alias, c) for alias, stream in case.occurrences.items() for c in case.streams[stream]]
    size = len(columns)
    base = np.full((size, size), INF, np.int32)
    np.fill_diagonal(base, 0)
    unequal = []

    def at_most(x: int, y: int, c: int) -> None:
        base[x, y] = min(base[x, y], c)

    for left, operator, right in case.atoms:
        x = columns.index(left)
        y, c = (0, right) if isinstance(right, int) else (columns.index(right), 0)
        if operator in ("<", "<=", "="):
            at_most(x, y, c - (operator == "<"))
        if operator in (">", ">=", "="):
            at_most(y, x, -c - (operator == ">"))
        if operator == "<>":
            unequal.append((x, y, c))
    return Query(
        columns=tuple(columns),
        streams=tuple(case.occurrences.items()),
        base=_close(base[None])[0],
        unequal=tuple(dict.fromkeys(unequal)),
        projection=tuple(columns.index(c) for c in case.projection),
        constants=tuple(sorted({right for _, _, right in case.atoms if isinstance(right, int)})),
    )


def _restrict(query: Query, aliases: Sequence[str], constants: tuple[int, ...] | None = None) -> Query:
    """The query over some of its occurrences, with everything that the whole condition implies for them."""
    keep = [i for i, c in enumerate(query.columns) if c is None or c[0] in aliases]
    number = {old: new for new, old in enumerate(keep)}
    base = query.base[np.ix_(keep, keep)]
    unequal = tuple((number[x], number[y], c) for x, y, c in query.unequal if x in number and y in number)
    return Query(
        columns=tuple(query.columns[i] for i in keep),
        streams=tuple((alias, stream) for alias, stream in query.streams if alias in aliases),
        base=base,
        unequal=unequal,
        projection=tuple(number[x] for x in query.projection if x in number),
        constants=query.constants if constants is None else constants,
    )


# --- closure ----------------------------------------------------------------------------------------


def _close(batch: Matrix) -> Matrix:
    """All shortest paths (Floyd-Warshall), for every matrix of the batch."""
    d = batch.copy()
    for k in range(d.shape[1]):
        np.minimum(d, d[:, :, k, None] + d[:, None, k, :], out=d)
        np.minimum(d, INF, out=d)
    d[d > HALF] = INF
    return d


def _consistent(batch: Matrix) -> Matrix:
    """Those without a negative cycle."""
    return batch[(np.diagonal(batch, axis1=1, axis2=2) >= 0).all(axis=1)]


def _satisfiable(query: Query) -> bool:
    """Exactly, over the integers: every ``<>`` is split into its two sides."""
    return _splits(query.base, query.unequal)


def _splits(base: Matrix, unequal: Sequence[tuple[int, int, int]]) -> bool:
    if not len(_consistent(base[None])):
        return False
    if not unequal:
        return True
    (x, y, c), *rest = unequal
    return any(_splits(_with(base, a, b, bound), rest) for a, b, bound in ((x, y, c - 1), (y, x, -c - 1)))


def _with(base: Matrix, x: int, y: int, c: int) -> Matrix:
    d = base.copy()
    d[x, y] = min(d[x, y], c)
    closed: Matrix = _close(d[None])[0]
    return closed


def _tighten(batch: Matrix, unequal: Sequence[tuple[int, int, int]]) -> Matrix:
    """``x <= y AND x <> y`` becomes ``x < y``, to a fixpoint."""
    while len(batch) and unequal:
        d = batch.copy()
        for x, y, c in unequal:
            d[d[:, x, y] == c, x, y] = c - 1
            d[d[:, y, x] == -c, y, x] = -c - 1
        if (d == batch).all():
            break
        batch = _consistent(_close(d))
    return batch


def _unbounded(batch: Matrix) -> Mask:
    """Definition 4.5, negated: no upper or no lower bound (node 0 is bounded)."""
    mask: Mask = (batch[:, :, 0] > HALF) | (batch[:, 0, :] > HALF)
    return mask


def _pinned(base: Matrix, x: int) -> int | None:
    return int(base[x, 0]) if base[x, 0] + base[0, x] == 0 else None


# --- derived LTO queries (Definition 5.2) -----------------------------------------------------------


@lru_cache(maxsize=4096)
def _preorders(size: int, constants: tuple[int, ...]) -> Matrix:
    """Every total preorder of ``size`` columns and the constants, as matrices (node 0, then the columns)."""
    blocks: list[list[tuple[frozenset[int], int | None]]] = [[(frozenset(), k) for k in constants]]
    for column in range(1, size + 1):
        grown = []
        for order in blocks:
            for i, (members, constant) in enumerate(order):
                grown.append([*order[:i], (members | {column}, constant), *order[i + 1 :]])
            for i in range(len(order) + 1):
                grown.append([*order[:i], (frozenset({column}), None), *order[i:]])
        blocks = grown
        if len(blocks) > LARGEST_ENUMERATION:
            raise TooLargeError
    batch = np.full((len(blocks), size + 1, size + 1), INF, np.int32)
    for d, order in zip(batch, blocks, strict=True):
        np.fill_diagonal(d, 0)
        for i, (members, constant) in enumerate(order):
            for x in members:
                for later, bound in order[i:]:
                    strict = 0 if later is members and bound == constant else 1
                    if bound is not None:
                        d[x, 0] = min(d[x, 0], bound - strict)
                    for y in later:
                        d[x, y] = min(d[x, y], -strict)
                for earlier, bound in order[: i + 1]:
                    strict = 0 if earlier is members and bound == constant else 1
                    if bound is not None:
                        d[0, x] = min(d[0, x], -bound - strict)
    closed = _consistent(_close(batch))
    closed.setflags(write=False)
    return closed


def _relevant(query: Query, *, by_stream: bool) -> list[list[int]]:
    """The nodes of every occurrence that are in a predicate or projected; the others never matter.

    By stream: also those that matter in another occurrence of the same stream (for Definition 8.2).
    """
    size = len(query.columns)
    off = (query.base < HALF) & ~np.eye(size, dtype=bool)
    named = {x for x in range(1, size) if off[x].any() or off[:, x].any()}
    named |= {x for x, _, _ in query.unequal} | {y for _, y, _ in query.unequal} | set(query.projection)
    stream_of = dict(query.streams)
    parts = [(stream_of[c[0]], c[1]) if c else ("", "") for c in query.columns]
    if by_stream:
        matter = {parts[x] for x in named}
        named = {x for x in range(1, size) if parts[x] in matter}
    owner = query.owner
    return [[x for x in range(1, size) if owner[x] == i and x in named] for i in range(len(query.streams))]


def _derived(query: Query, *, by_stream: bool = False) -> Iterator[Matrix]:
    """The closed matrices of the satisfiable LTO queries derived from the query, in chunks."""
    nodes = _relevant(query, by_stream=by_stream)
    constants = query.constants
    try:
        pieces = _pieces(query, nodes, constants)
    except TooLargeError:
        # Between the outermost constants every column is bounded, whatever its place there (Figure 2).
        inner = {c for x, y, c in query.unequal if y == 0}
        outer = tuple(sorted({constants[0], constants[-1], *inner})) if constants else ()
        pieces = _pieces(query, nodes, outer)
    yield from _combine(query, query.base[None], pieces)


def _pieces(query: Query, nodes: Sequence[Sequence[int]], constants: tuple[int, ...]) -> list[Matrix]:
    """For every occurrence its orders, closed together with the whole condition."""
    pieces, total = [], 1
    for own in nodes:
        if own:
            orders = _preorders(len(own), constants)
            batch = np.repeat(query.base[None], len(orders), axis=0)
            places = np.ix_(range(len(orders)), [0, *own], [0, *own])
            batch[places] = np.minimum(batch[places], orders)
            batch = _consistent(_close(batch))
            for x, y, c in query.unequal:  # a filter is decided by the order
                if y == 0 or (x in own and y in own):
                    batch = batch[(batch[:, x, y] < c) | (batch[:, y, x] < -c) | (x not in own)]
        else:
            batch = query.base[None]
        pieces.append(batch)
        total *= max(1, len(batch))
        if total > LARGEST_ENUMERATION:
            raise TooLargeError
    return sorted(pieces, key=len)


def _combine(query: Query, batch: Matrix, pieces: Sequence[Matrix]) -> Iterator[Matrix]:
    if not pieces:
        batch = _tighten(batch, query.unequal)
        batch = _split_bounded(batch, query.joins_unequal())
        if len(batch):
            yield batch
        return
    step = max(1, CHUNK // max(1, len(pieces[0])))
    for start in range(0, len(batch), step):
        some = batch[start : start + step]
        both = np.minimum(some[:, None], pieces[0][None]).reshape(-1, *some.shape[1:])
        both = _consistent(_close(both))
        if len(both):
            yield from _combine(query, both, pieces[1:])


def _split_bounded(batch: Matrix, unequal: Sequence[tuple[int, int, int]]) -> Matrix:
    """``<>`` between bounded columns is about finitely many values: split it into its two sides."""
    for x, y, c in unequal:
        free = _unbounded(batch)
        open_ = ~free[:, x] & ~free[:, y] & (batch[:, x, y] >= c) & (batch[:, y, x] >= -c)
        if open_.any():
            below, above = batch[open_].copy(), batch[open_].copy()
            below[:, x, y] = np.minimum(below[:, x, y], c - 1)
            above[:, y, x] = np.minimum(above[:, y, x], -c - 1)
            split = _consistent(_close(np.concatenate([below, above])))
            batch = _tighten(np.concatenate([batch[~open_], split]), unequal)
    return batch


# --- Theorems 5.6 and 5.10 --------------------------------------------------------------------------


def _same_class(batch: Matrix) -> Mask:
    """Definition 4.4: the difference of two elements is fixed."""
    mask: Mask = batch + batch.transpose(0, 2, 1) == 0
    return mask


def _references(batch: Matrix, owner: NDArray[np.int64]) -> Mask:
    """[., x, y]: x below y is a non-redundant inequality join of unbounded columns (4.1 and 5.4)."""
    size = batch.shape[1]
    same = _same_class(batch)
    free = _unbounded(batch)
    joins: Mask = (batch < HALF) & (owner[:, None] != owner[None, :]) & (owner[:, None] >= 0) & (owner >= 0)
    joins &= free[:, :, None] & free[:, None, :]
    for e in range(size):
        between = batch[:, :, e, None] + batch[:, None, e, :] <= batch
        if e:
            between &= ~same[:, :, e, None] & ~same[:, None, e, :]
        joins &= ~between
    return joins


def _fails_outputs_or_equalities(batch: Matrix, owner: NDArray[np.int64], projection: Sequence[int]) -> Mask:
    """C1 and C2 of both theorems, violated."""
    free = _unbounded(batch)
    fails: Mask = np.any(free[:, list(projection)], axis=1)
    across = (owner[:, None] != owner[None, :]) & (owner[:, None] >= 0) & (owner >= 0)
    equal = _same_class(batch) & across & free[:, :, None]
    fails |= equal.any(axis=(1, 2))
    return fails


def _fails_duplicate_preserving(query: Query, batch: Matrix) -> Mask:
    """Theorem 5.6 violated, for LTO queries of more than one stream."""
    owner = query.owner
    fails = _fails_outputs_or_equalities(batch, owner, query.projection)
    fails |= _references(batch, owner).any(axis=(1, 2))
    for x, y, c in query.joins_unequal():
        high = (batch[:, x, 0] > HALF) & (batch[:, y, 0] > HALF)
        low = (batch[:, 0, x] > HALF) & (batch[:, 0, y] > HALF)
        fails |= (high | low) & (batch[:, x, y] >= c) & (batch[:, y, x] >= -c)
    return fails


def _fails_distinct(batch: Matrix, owner: NDArray[np.int64], projection: Sequence[int]) -> Mask:
    """Theorem 5.10 violated."""
    fails = _fails_outputs_or_equalities(batch, owner, projection)
    joins = _references(batch, owner)
    same = _same_class(batch)
    earlier = np.tril(np.ones(same.shape[1:], bool), -1)
    classes = np.zeros((len(batch), int(owner.max(initial=0)) + 1), np.int64)
    below: Mask = np.any(joins, axis=2)
    above: Mask = np.any(joins, axis=1)
    for refs in (below, above):  # MinRef, MaxRef
        repeated = (same & earlier & refs[:, None, :] & (owner[:, None] == owner[None, :])).any(axis=2)
        first = refs & ~repeated
        for x in range(1, len(owner)):
            classes[:, owner[x]] += first[:, x]
    fails |= (classes > 1).any(axis=1)
    return fails


def _duplicate_preserving(query: Query) -> str:
    """Theorems 5.3 and 5.6; self-joins change nothing (8.1)."""
    if len(query.streams) == 1:
        return BOUNDED
    for batch in _derived(query):
        if _fails_duplicate_preserving(query, batch).any():
            return UNBOUNDED
    return BOUNDED


def _distinct(query: Query) -> str:
    """Theorems 5.3 and 5.10; with self-joins section 8.1, corrected."""
    if query.self_joined:
        query = _without_covered(query)
    if not query.self_joined:
        for batch in _derived(query):
            if _fails_distinct(batch, query.owner, query.projection).any():
                return UNBOUNDED
        return BOUNDED
    passes = _pieces_pass(query, by_stream=True) or _pieces_pass(query, by_stream=False)
    return BOUNDED if passes else UNKNOWN


def _pieces_pass(query: Query, *, by_stream: bool) -> bool:
    """Whether every LTO query meets Theorem 5.10 once its covered occurrences are gone."""
    for batch in _derived(query, by_stream=by_stream):
        for d in batch[_fails_distinct(batch, query.owner, query.projection)]:
            rest = _without_covered(replace(query, base=d))
            if _fails_distinct(rest.base[None], rest.owner, rest.projection)[0]:
                return False
    return True


# --- self-joins (Definition 8.2) --------------------------------------------------------------------


def _without_covered(query: Query) -> Query:
    """The equivalent query without redundant occurrences."""
    tightened = _tighten(query.base[None], query.unequal)
    if len(tightened):
        query = replace(query, base=tightened[0])
    for covered, stream in query.streams:
        for covering, other in query.streams:
            if covered != covering and stream == other and _covers(query, covering, covered):
                return _without_covered(_replaced(query, covered, covering))
    return query


def _images(query: Query, covered: str, covering: str) -> list[int]:
    """Where each node goes when the covered occurrence is replaced by the covering one."""
    return [
        query.node((covering, c[1])) if c is not None and c[0] == covered else x
        for x, c in enumerate(query.columns)
    ]


def _covers(query: Query, covering: str, covered: str) -> bool:
    """Definition 8.2: all that P+ says of the covered occurrence it says of the covering one too."""
    image = _images(query, covered, covering)
    d = query.base
    if (d[np.ix_(image, image)] > d).any():
        return False
    if any(d[x, image[x]] != 0 or d[image[x], x] != 0 for x in query.projection):
        return False
    return all(_implied_unequal(query, image[x], image[y], c) for x, y, c in query.unequal)


def _implied_unequal(query: Query, x: int, y: int, c: int) -> bool:
    d = query.base
    if d[x, y] < c or d[y, x] < -c:
        return True
    stated = [*query.unequal, *((b, a, -k) for a, b, k in query.unequal)]
    return any(
        k == c and all(d[p, q] == 0 and d[q, p] == 0 for p, q in ((a, x), (b, y))) for a, b, k in stated
    )


def _replaced(query: Query, covered: str, covering: str) -> Query:
    image = _images(query, covered, covering)
    moved = replace(
        query,
        unequal=tuple(dict.fromkeys((image[x], image[y], c) for x, y, c in query.unequal)),
        projection=tuple(image[x] for x in query.projection),
    )
    return _restrict(moved, [alias for alias, _ in query.streams if alias != covered])


# --- aggregates (8.2, corrected) --------------------------------------------------------------------


def _extremum(query: Query, column: int, function: str) -> str:
    """MAX (MIN): "is there a result above (below) x?" for every x, a DISTINCT query with a stream O(x)."""
    if not _unbounded(query.base[None])[0, column]:
        return _distinct(query)
    size = len(query.columns)
    base = np.full((size + 1, size + 1), INF, np.int32)
    base[:size, :size] = query.base
    base[size, size] = 0
    if function == "MAX":
        base[size, column] = -1
    else:
        base[column, size] = -1
    extended = replace(
        query,
        columns=(*query.columns, ("virtual O", "x")),
        streams=(*query.streams, ("virtual O", "virtual O")),
        base=_close(base[None])[0],
    )
    return _distinct(extended)


def _repeatable(query: Query, column: int, function: str) -> str:
    """AVG and MEDIAN: repeating every result equally often changes nothing.

    For every value of the grouping columns: the component of the aggregated column must be counted,
    unless that column is constant; of the others only the existence of a match matters.
    """
    base = query.base
    ranges = [range(int(-base[0, x]), int(base[x, 0]) + 1) for x in query.projection]
    if np.prod([float(len(r)) for r in ranges]) > LARGEST_GROUPS:
        raise TooLargeError
    verdicts = {_repeatable_in_group(query, values, column, function) for values in product(*ranges)}
    return next(v for v in (UNBOUNDED, UNKNOWN, BOUNDED) if v in verdicts)


def _repeatable_in_group(query: Query, values: Sequence[int], column: int, function: str) -> str:
    base = query.base.copy()
    for x, v in zip(query.projection, values, strict=True):
        base[x, 0], base[0, x] = min(base[x, 0], v), min(base[0, x], -v)
    fixed = replace(query, base=_close(base[None])[0], projection=())
    if not _satisfiable(fixed):
        return BOUNDED
    fixed = replace(fixed, base=_tighten(fixed.base[None], fixed.unequal)[0])
    constant = _pinned(fixed.base, column) is not None
    if function == "MEDIAN" and not constant and _unbounded(fixed.base[None])[0, column]:
        return UNBOUNDED
    verdicts = set()
    for aliases in _components(fixed):
        part = _restrict(fixed, aliases)
        part = replace(part, constants=_constants(part))
        counted = not constant and query.columns[column] in part.columns
        verdict = _duplicate_preserving(part) if counted else _distinct(part)
        if verdict == UNBOUNDED and query.self_joined:
            verdict = UNKNOWN  # the parts of a self-join are not independent
        verdicts.add(verdict)
    return next(v for v in (UNBOUNDED, UNKNOWN, BOUNDED) if v in verdicts)


def _components(query: Query) -> list[list[str]]:
    """The occurrences, connected by the joins that are not implied by filters."""
    d, owner = query.base, query.owner
    aliases = [alias for alias, _ in query.streams]
    linked = np.eye(len(aliases), dtype=bool)
    joins: Any = (d < HALF) & (d < np.minimum(d[:, :1] + d[:1, :], INF))
    for x, y in np.argwhere(joins):
        if x and y:
            linked[owner[x], owner[y]] = linked[owner[y], owner[x]] = True
    for x, y, c in query.joins_unequal():
        ordered = d[x, y] < c or d[y, x] < -c
        if not ordered and _pinned(d, x) is None and _pinned(d, y) is None:
            linked[owner[x], owner[y]] = linked[owner[y], owner[x]] = True
    for _ in aliases:
        linked = linked @ linked
    return [list(p) for p in dict.fromkeys(tuple(np.array(aliases)[row].tolist()) for row in linked)]


def _constants(query: Query) -> tuple[int, ...]:
    """Constants for a query that is given by its closure: the outermost ends of its columns' ranges."""
    d = query.base
    ends = [int(v) for v in d[1:, 0] if v < HALF] + [int(-v) for v in d[0, 1:] if v < HALF]
    inner = {c for _, y, c in query.unequal if y == 0}
    return tuple(sorted({*inner, *((min(ends), max(ends)) if ends else ())}))
