"""Every way in which the columns of each stream can be ordered, far out, where memory can be lost.

The conditions for application time are stated for *locally totally ordered* queries: each stream's
columns are ordered among each other and with the constants.  Only columns that take part in joins
beyond the constants matter, and of their order only what is below what up to a constant; so the
derived queries are boolean matrices, closed many at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from millpond.analysis.regions import Bools, Ordering

# More ways than this are not looked at.
MAX_ORDERS = 1_000_000
_MAX_CHOICES = 20_000  # of one stream
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


def joined_columns(ordering: Ordering) -> tuple[int, ...]:
    """The columns that take part in joins beyond the constants."""
    return tuple(int(i) for i in np.flatnonzero((ordering.is_lower | ordering.is_upper).any(axis=0)))


def derived_orders(ordering: Ordering, columns: tuple[int, ...]) -> Iterator[Orders]:
    """The derived queries in terms of some columns, a few at a time; raises TooManyOrders."""
    if not columns:
        return
    joins = (ordering.joins & ordering.across)[np.ix_(columns, columns)]
    for below, region in _Search(ordering, columns).orders():
        together = (region[:, :, None] == region[:, None, :]) & (region >= 0)[:, :, None]
        strictly = (below & ~below.transpose(0, 2, 1)).astype(np.float32)
        between = (strictly @ strictly) > 0
        yield Orders(columns, below, region, np.asarray(below & together & joins & ~between))


class _Search:
    """Stream by stream, every choice with every consistent one before, depth first and some at a time."""

    def __init__(self, ordering: Ordering, columns: tuple[int, ...]) -> None:
        self._base = ordering.closure.below[np.ix_(columns, columns)]
        self._top = ordering.possible.shape[0] - 1
        owners = ordering.owner[list(columns)]
        streams = [np.flatnonzero(owners == owner) for owner in dict.fromkeys(owners.tolist())]
        self._choices: list[tuple[Bools, Regions, Bools]] = []
        for own in streams:
            choices = list(islice(_choices(ordering, columns, own, self._base), _MAX_CHOICES))
            if len(choices) == _MAX_CHOICES:
                raise TooManyOrders
            more, placed, denied = (np.stack(each) for each in zip(*choices, strict=True))
            self._choices.append((more, placed, denied))
        self._tried = 0

    def orders(self) -> Iterator[tuple[Bools, Regions]]:
        nothing = np.zeros((1, *self._base.shape), dtype=bool)
        return self._from(0, self._base[None], nothing, np.full((1, len(self._base)), _OPEN, np.int8))

    def _from(
        self, depth: int, below: Bools, never: Bools, region: Regions
    ) -> Iterator[tuple[Bools, Regions]]:
        if depth == len(self._choices):
            yield below, region
            return
        width = max(1, _CHUNK // len(self._choices[depth][0]))
        for start in range(0, len(below), width):
            some = slice(start, start + width)
            found = self._extended(depth, below[some], never[some], region[some])
            if len(found[0]):
                yield from self._from(depth + 1, *found)

    def _extended(
        self, depth: int, below: Bools, never: Bools, region: Regions
    ) -> tuple[Bools, Bools, Regions]:
        more, placed, denied = self._choices[depth]
        self._tried += len(below) * len(more)
        if self._tried > MAX_ORDERS:
            raise TooManyOrders
        size = len(self._base)
        below = (below[:, None] | more).reshape(-1, size, size)
        never = (never[:, None] | denied).reshape(-1, size, size)
        region = np.maximum(region[:, None], placed).reshape(-1, size)
        for k in range(size):
            below = below | (below[:, :, k, None] & below[:, None, k, :])
        right = ~(below & (never | _higher(region, self._top))).any(axis=(1, 2))
        return below[right], never[right], region[right]


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
    for regions in product(*(_places(ordering, columns[i]) for i in own)):
        region = np.full(size, _OPEN, np.int8)
        region[own] = regions
        comparable: dict[tuple[int, int], list[int]] = {}
        for i, place in zip(own.tolist(), regions, strict=True):
            if place >= 0:
                comparable.setdefault((place, int(ordering.closure.origin[columns[i]])), []).append(i)
        for ranks in product(*(list(_rankings(tuple(each))) for each in comparable.values())):
            below, never = np.zeros((size, size), dtype=bool), np.zeros((size, size), dtype=bool)
            for ranking in ranks:
                for (i, a), (j, b) in product(ranking.items(), repeat=2):
                    if i != j:
                        below[i, j], never[i, j] = a <= b, a > b
            if not (never & base).any():
                yield below, region, never


def _rankings(items: tuple[int, ...]) -> Iterator[dict[int, int]]:
    """Every order of the items in which some may be alike, by rank.

    >>> sum(1 for _ in _rankings((7, 8, 9)))
    13
    """
    if not items:
        yield {}
        return
    *others, last = items
    for ranking in _rankings(tuple(others)):
        top = max(ranking.values(), default=-1)
        for rank in range(top + 1):
            yield {**ranking, last: rank}
        for rank in range(top + 2):
            yield {**{i: r + (r >= rank) for i, r in ranking.items()}, last: rank}


def _places(ordering: Ordering, column: int) -> list[int]:
    regions = [int(r) for r in np.flatnonzero(ordering.possible[:, column])]
    return [*regions, _INSIDE] if ordering.closure.stepped[column] else regions
