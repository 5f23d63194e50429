"""Enumerates the orders that the columns of each stream can have within the regions.

The conditions T1 and T2 for application time are stated for locally totally ordered (LTO) queries, in which
the columns of each stream are ordered among each other and relative to the constants.  Only columns with an
active join matter, and only their order up to a constant.  So a derived query is a boolean matrix, and many
of them are closed transitively at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from millpond.analysis.regions import Bools, JoinRegions

# Give up beyond this many orders.
MAX_ORDERS = 1_000_000
_MAX_STREAM_ORDERS = 20_000  # of one stream
_CHUNK = 4_096
# Region numbers of a column between the constants, and of one that has no place yet.
_BETWEEN, _UNPLACED = -1, -2

RegionNumbers = NDArray[np.int8]


class TooManyOrders(Exception):
    """The columns can be ordered in more ways than are enumerated."""


@dataclass(frozen=True)
class ColumnOrders:
    """A batch of derived queries, each an order of some ``columns`` (nodes of the closure).

    ``below[q, i, j]``: in query q, column i stays below column j, up to a constant.  ``region[q, i]`` is the
    region of column i.  ``essential[q, i, j]``: i is the lower side of a join with j of another stream, both
    in one region, and no third column lies between them.
    """

    columns: tuple[int, ...]
    below: Bools
    region: RegionNumbers
    essential: Bools

    @property
    def alike(self) -> Bools:
        """alike[q, i, j]: the two columns differ by at most a constant."""
        return np.asarray(self.below & self.below.transpose(0, 2, 1))


def enumerate_column_orders(regions: JoinRegions, columns: tuple[int, ...]) -> Iterator[ColumnOrders]:
    """Every consistent order of the columns, in batches; raises TooManyOrders."""
    if not columns:
        return
    joins = (regions.joins & regions.across)[np.ix_(columns, columns)]
    for below, region in _OrderSearch(regions, columns).enumerate():
        together = (region[:, :, None] == region[:, None, :]) & (region >= 0)[:, :, None]
        strictly = (below & ~below.transpose(0, 2, 1)).astype(np.float32)
        between = (strictly @ strictly) > 0
        yield ColumnOrders(columns, below, region, np.asarray(below & together & joins & ~between))


class _OrderSearch:
    """Depth-first search over streams: combines each order of a stream with the consistent ones before it."""

    def __init__(self, regions: JoinRegions, columns: tuple[int, ...]) -> None:
        self._base = regions.closure.below[np.ix_(columns, columns)]
        self._top = regions.top
        owners = regions.owner[list(columns)]
        streams = [np.flatnonzero(owners == owner) for owner in dict.fromkeys(owners.tolist())]
        self._stream_orders: list[tuple[Bools, RegionNumbers, Bools]] = []
        for own in streams:
            orders = list(
                islice(_enumerate_stream_orders(regions, columns, own, self._base), _MAX_STREAM_ORDERS)
            )
            if len(orders) == _MAX_STREAM_ORDERS:
                raise TooManyOrders
            below, region, never = (np.stack(each) for each in zip(*orders, strict=True))
            self._stream_orders.append((below, region, never))
        self._tried = 0

    def enumerate(self) -> Iterator[tuple[Bools, RegionNumbers]]:
        """Batches of closed ``below`` matrices with the regions of the columns."""
        nothing = np.zeros((1, *self._base.shape), dtype=bool)
        return self._descend(0, self._base[None], nothing, np.full((1, len(self._base)), _UNPLACED, np.int8))

    def _descend(
        self, depth: int, below: Bools, never: Bools, region: RegionNumbers
    ) -> Iterator[tuple[Bools, RegionNumbers]]:
        if depth == len(self._stream_orders):
            yield below, region
            return
        width = max(1, _CHUNK // len(self._stream_orders[depth][0]))
        for start in range(0, len(below), width):
            some = slice(start, start + width)
            found = self._extend(depth, below[some], never[some], region[some])
            if len(found[0]):
                yield from self._descend(depth + 1, *found)

    def _extend(
        self, depth: int, below: Bools, never: Bools, region: RegionNumbers
    ) -> tuple[Bools, Bools, RegionNumbers]:
        """Combine with every order of the next stream, close transitively, drop contradictions."""
        more_below, more_region, more_never = self._stream_orders[depth]
        self._tried += len(below) * len(more_below)
        if self._tried > MAX_ORDERS:
            raise TooManyOrders
        size = len(self._base)
        below = (below[:, None] | more_below).reshape(-1, size, size)
        never = (never[:, None] | more_never).reshape(-1, size, size)
        region = np.maximum(region[:, None], more_region).reshape(-1, size)
        for k in range(size):
            below = below | (below[:, :, k, None] & below[:, None, k, :])
        consistent = ~(below & (never | _in_higher_region(region, self._top))).any(axis=(1, 2))
        return below[consistent], never[consistent], region[consistent]


def _in_higher_region(region: RegionNumbers, top: int) -> Bools:
    """higher[q, i, j]: column i lies in a higher region than j."""
    outside = region >= 0
    higher = (region[:, :, None] > region[:, None, :]) & outside[:, :, None] & outside[:, None, :]
    between = region == _BETWEEN
    higher |= (region == top)[:, :, None] & between[:, None, :]
    higher |= between[:, :, None] & (region == 0)[:, None, :]
    return np.asarray(higher)


def _enumerate_stream_orders(
    regions: JoinRegions, columns: tuple[int, ...], own: NDArray[np.intp], base: Bools
) -> Iterator[tuple[Bools, RegionNumbers, Bools]]:
    """The orders of one stream's columns: which is below which, their regions, which is never below which."""
    size = len(columns)
    for places in product(*(_possible_regions(regions, columns[i]) for i in own)):
        region = np.full(size, _UNPLACED, np.int8)
        region[own] = places
        comparable: dict[tuple[int, int], list[int]] = {}
        for i, place in zip(own.tolist(), places, strict=True):
            if place >= 0:
                comparable.setdefault((place, int(regions.closure.origin[columns[i]])), []).append(i)
        for ranks in product(*(list(_enumerate_rankings(tuple(each))) for each in comparable.values())):
            below, never = np.zeros((size, size), dtype=bool), np.zeros((size, size), dtype=bool)
            for ranking in ranks:
                for (i, a), (j, b) in product(ranking.items(), repeat=2):
                    if i != j:
                        below[i, j], never[i, j] = a <= b, a > b
            if not (never & base).any():
                yield below, region, never


def _enumerate_rankings(items: tuple[int, ...]) -> Iterator[dict[int, int]]:
    """Every weak order of the items, as ranks; equal ranks are ties.

    >>> sum(1 for _ in _enumerate_rankings((7, 8, 9)))
    13
    """
    if not items:
        yield {}
        return
    *others, last = items
    for ranking in _enumerate_rankings(tuple(others)):
        top = max(ranking.values(), default=-1)
        for rank in range(top + 1):
            yield {**ranking, last: rank}
        for rank in range(top + 2):
            yield {**{i: r + (r >= rank) for i, r in ranking.items()}, last: rank}


def _possible_regions(regions: JoinRegions, column: int) -> list[int]:
    """The regions in which a column can lie; an integer column can also lie between the constants."""
    found = [int(r) for r in np.flatnonzero(regions.can_grow[:, column])]
    return [*found, _BETWEEN] if regions.closure.stepped[column] else found
