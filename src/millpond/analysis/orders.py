"""Every way in which the columns of each stream can be ordered, far out, where memory can be lost.

The conditions for application time are stated for *locally totally ordered* queries: each stream's
columns are ordered among each other and with the constants.  Only columns that take part in joins
beyond the constants matter, and of their order only what is below what up to a constant; so the
derived queries are boolean matrices, closed many at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from millpond.analysis.ordering import Bools, Ordering

# More ways than this are not looked at.
MAX_ORDERS = 60_000
_CHUNK = 4_096
# A column that does not lie beyond the constants, and one of which nothing is said yet.
_INSIDE, _OPEN = -1, -2

Regions = NDArray[np.int8]


class TooManyOrders(Exception):
    """The columns can be ordered in more ways than are worth looking at."""


@dataclass(frozen=True)
class Orders:
    """Some derived queries over the ``columns`` (nodes of the closure) that matter.

    ``below[q, i, j]``: in query q column i stays below j, up to a constant.  ``region[q, i]`` is where it
    lies.  ``essential[q, i, j]``: i is the lower side of a join with j of another stream, both in one
    region, and no third column lies between them.
    """

    columns: tuple[int, ...]
    below: Bools
    region: Regions
    essential: Bools

    @property
    def alike(self) -> Bools:
        """alike[q, i, j]: the two columns differ by at most a constant."""
        return np.asarray(self.below & self.below.transpose(0, 2, 1))


def derived_orders(ordering: Ordering) -> Iterator[Orders]:
    """The derived queries, some at a time; raises TooManyOrders."""
    columns = tuple(int(i) for i in np.flatnonzero((ordering.is_lower | ordering.is_upper).any(axis=0)))
    if not columns:
        return
    joins = (ordering.joins & ordering.across)[np.ix_(columns, columns)]
    for below, region in _chunks(*_all_orders(ordering, columns)):
        together = (region[:, :, None] == region[:, None, :]) & (region >= 0)[:, :, None]
        strictly = (below & ~below.transpose(0, 2, 1)).astype(np.float32)
        between = (strictly @ strictly) > 0
        yield Orders(columns, below, region, np.asarray(below & together & joins & ~between))


def _chunks(below: Bools, region: Regions) -> Iterator[tuple[Bools, Regions]]:
    for start in range(0, len(below), _CHUNK):
        yield below[start : start + _CHUNK], region[start : start + _CHUNK]


def _all_orders(ordering: Ordering, columns: tuple[int, ...]) -> tuple[Bools, Regions]:
    """Stream by stream, every choice with every consistent one before."""
    base = ordering.closure.below[np.ix_(columns, columns)]
    owners = ordering.owner[list(columns)]
    below, never = base[None], np.zeros((1, *base.shape), dtype=bool)
    region = np.full((1, len(columns)), _OPEN, np.int8)
    for owner in dict.fromkeys(owners.tolist()):
        choices = list(_choices(ordering, columns, np.flatnonzero(owners == owner), base))
        if len(below) * len(choices) > MAX_ORDERS:
            raise TooManyOrders
        more, placed, denied = (np.stack(each) for each in zip(*choices, strict=True))
        below = (below[:, None] | more).reshape(-1, *base.shape)
        never = (never[:, None] | denied).reshape(-1, *base.shape)
        region = np.maximum(region[:, None], placed).reshape(-1, len(columns))
        for k in range(len(columns)):
            below = below | (below[:, :, k, None] & below[:, None, k, :])
        right = ~(below & (never | _higher(region, ordering.possible.shape[0] - 1))).any(axis=(1, 2))
        below, never, region = below[right], never[right], region[right]
    return below, region


def _higher(region: Regions, top: int) -> Bools:
    """higher[q, i, j]: column i lies in a higher region than j."""
    outside = region >= 0
    higher = (region[:, :, None] > region[:, None, :]) & outside[:, :, None] & outside[:, None, :]
    inside = region == _INSIDE
    higher |= (region == top)[:, :, None] & inside[:, None, :]
    higher |= inside[:, :, None] & (region == 0)[:, None, :]
    return np.asarray(higher)


def _choices(
    ordering: Ordering, columns: tuple[int, ...], own: NDArray[np.intp], base: Bools
) -> Iterator[tuple[Bools, Regions, Bools]]:
    """A stream's columns in regions and in order: what is below what, the regions, what is not below what."""
    size = len(columns)
    places = [_places(ordering, columns[i]) for i in own]
    for regions in product(*places):
        region = np.full(size, _OPEN, np.int8)
        region[own] = regions
        pairs = [
            (i, j)
            for i, j in combinations(own.tolist(), 2)
            if region[i] == region[j] >= 0 and _comparable(ordering, columns[i], columns[j])
        ]
        for signs in product((-1, 0, 1), repeat=len(pairs)):
            below, never = np.zeros((size, size), dtype=bool), np.zeros((size, size), dtype=bool)
            for (i, j), sign in zip(pairs, signs, strict=True):
                below[i, j], below[j, i] = sign <= 0, sign >= 0
                never[i, j], never[j, i] = sign > 0, sign < 0
            for k in own:
                below |= below[:, k, None] & below[None, k, :]
            if not (never & (base | below)).any():
                yield below, region, never


def _places(ordering: Ordering, column: int) -> list[int]:
    regions = [int(r) for r in np.flatnonzero(ordering.possible[:, column])]
    return [*regions, _INSIDE] if ordering.closure.stepped[column] else regions


def _comparable(ordering: Ordering, i: int, j: int) -> bool:
    return bool(ordering.closure.origin[i] == ordering.closure.origin[j])
