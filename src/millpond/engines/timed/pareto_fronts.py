"""Pareto fronts over time: which partial matches had the weakest requirements, from when until when.

Of two matches with the same key, one that requires no more and is not later makes the other redundant.
Where rows still to come must differ from a value of the match, one such match is not enough: a match is
redundant if, whatever values come, another match that requires no more accepts them.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from millpond.errors import MillpondError

Ints = NDArray[np.int64]
# A time before all timestamps, and a time after them.
ALWAYS, NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max
# The fronts of a bounded query are finite, but no bound is known; a larger front points to a bug.
MAX_FRONT = 10_000
# How many rows are compared with the front at once.
_SLICE = 512


@dataclass(frozen=True)
class FrontHistory:
    """Rows (by number) that were on a front: since when, until when, and at which place.

    At any time, the rows on a front have different places; a place is reused when it is free.
    """

    rows: Ints
    since: Ints
    until: Ints
    places: Ints


def build_front_history(keys: Ints, times: Ints, requirements: Ints, differing: Ints) -> FrontHistory:
    """The history of the fronts of rows that are sorted by key and time.

    ``requirements[i, j]`` is smaller where row i requires less of its j-th partner; ``differing[i, k]`` is
    the value that the k-th such partner must differ from.
    """
    if not requirements.shape[1] and not differing.shape[1]:
        return _build_chain(keys, times, _is_first_of_key(keys))
    if requirements.shape[1] == 1 and not differing.shape[1]:
        return _build_chain(keys, times, _is_improvement(keys, requirements[:, 0]))
    edges = [*np.flatnonzero(_is_first_of_key(keys)).tolist(), len(keys)]
    parts = [_build_front(a, times[a:b], requirements[a:b], differing[a:b]) for a, b in pairwise(edges)]
    nothing = FrontHistory(*(np.zeros(0, np.int64) for _ in range(4)))
    columns = zip(*map(astuple, [nothing, *parts]), strict=True)
    return FrontHistory(*(np.concatenate(column) for column in columns))


# --- fronts of a single row ----------------------------------------------------------------------------


def _is_first_of_key(keys: Ints) -> NDArray[np.bool_]:
    return np.diff(keys, prepend=keys[:1] - 1) != 0 if len(keys) else np.zeros(0, dtype=bool)


def _is_improvement(keys: Ints, requirement: Ints) -> NDArray[np.bool_]:
    """Whether each row requires less than all before it with the same key."""
    if not len(keys):
        return np.zeros(0, dtype=bool)
    # The requirements of each key are moved below those of the keys before: one running minimum serves all.
    number = np.cumsum(_is_first_of_key(keys))
    width = int(requirement.max()) - int(requirement.min()) + 1
    level = requirement - int(requirement.min()) - number * width
    best = np.minimum.accumulate(level)
    return np.concatenate([[True], level[1:] < best[:-1]])


def _build_chain(keys: Ints, times: Ints, kept: NDArray[np.bool_]) -> FrontHistory:
    """Each kept row replaces the one before it with the same key; of equal times the last remains."""
    rows = np.flatnonzero(kept)
    follows = np.zeros(len(rows), dtype=bool)
    if len(rows):
        follows[:-1] = keys[rows[1:]] == keys[rows[:-1]]
    until = np.full(len(rows), NEVER)
    until[:-1][follows[:-1]] = times[rows[1:]][follows[:-1]]
    alive = until > times[rows]
    rows, until = rows[alive], until[alive]
    return FrontHistory(rows, times[rows], until, np.zeros(len(rows), np.int64))


# --- fronts of several rows ----------------------------------------------------------------------------


class _FrontBuilder:
    """Records the rows that enter and leave the front of one key."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.since: list[int] = []
        self.until: list[int] = []
        self.places: list[int] = []
        self.alive: list[int] = []  # positions in the lists above
        self._free: list[int] = []
        self._width = 0

    def current_rows(self) -> Ints:
        return np.array([self.rows[e] for e in self.alive], dtype=np.int64)

    def add(self, row: int, time: int) -> None:
        if not self._free:
            self._free.append(self._width)
            self._width += 1
        self.rows.append(row)
        self.since.append(time)
        self.until.append(int(NEVER))
        self.places.append(self._free.pop())
        self.alive.append(len(self.rows) - 1)
        if len(self.alive) > MAX_FRONT:
            raise MillpondError(
                f"a Pareto front has more than {MAX_FRONT:,} partial matches, though the query is bounded",
                remedy="report this query as a bug",
            )

    def remove(self, redundant: NDArray[np.bool_], time: int) -> None:
        """Remove the rows marked as ``redundant`` from the front."""
        for position in np.flatnonzero(redundant):
            entry = self.alive[position]
            self.until[entry] = time
            self._free.append(self.places[entry])
        self.alive = [e for e, gone in zip(self.alive, redundant, strict=True) if not gone]


def _build_front(first: int, times: Ints, requirements: Ints, differing: Ints) -> FrontHistory:
    """The front of one key, whose rows begin at number ``first``.

    Most rows are redundant.  Whole slices of rows are therefore compared with the front first.
    """
    front = _FrontBuilder()
    for start in range(0, len(times), _SLICE):
        stop = min(start + _SLICE, len(times))
        now = front.current_rows()
        redundant = _is_redundant(
            requirements[start:stop], differing[start:stop], requirements[now], differing[now]
        )
        for row in np.flatnonzero(~redundant) + start:
            alive = front.current_rows()
            one = slice(row, row + 1)
            others = requirements[alive], differing[alive]
            if len(alive) and _is_redundant(requirements[one], differing[one], *others)[0]:
                continue
            time = int(times[row])
            front.add(int(row), time)
            front.remove(_find_replaced(np.append(alive, row), requirements, differing), time)
    rows, since, until = np.array(front.rows), np.array(front.since), np.array(front.until)
    lasted = until > since
    places = np.array(front.places)
    return FrontHistory(rows[lasted] + first, since[lasted], until[lasted], places[lasted])


def _find_replaced(alive: Ints, requirements: Ints, differing: Ints) -> NDArray[np.bool_]:
    """Which rows of a front are redundant now that the last of them has been added."""
    gone = np.zeros(len(alive), dtype=bool)
    candidates = (requirements[alive[-1]] <= requirements[alive]).all(axis=1)
    candidates[-1] = False
    for position in np.flatnonzero(candidates):
        others = np.delete(alive, np.flatnonzero(gone | (np.arange(len(alive)) == position)))
        one = slice(alive[position], alive[position] + 1)
        gone[position] = _is_redundant(
            requirements[one], differing[one], requirements[others], differing[others]
        )[0]
    return gone


def _is_redundant(mine: Ints, values: Ints, others: Ints, their_values: Ints) -> NDArray[np.bool_]:
    """Whether the other rows together make each of my rows redundant."""
    if not len(others):
        return np.zeros(len(mine), dtype=bool)
    weaker = np.asarray((others[None, :, :] <= mine[:, None, :]).all(axis=2))
    if not values.shape[1]:
        return np.asarray(weaker.any(axis=1))
    if values.shape[1] == 1:
        v, w = values[:, 0], their_values[:, 0]
        same = (weaker & (w[None, :] == v[:, None])).any(axis=1)
        lowest = np.where(weaker, w[None, :], NEVER).min(axis=1)
        highest = np.where(weaker, w[None, :], ALWAYS).max(axis=1)
        return np.asarray(same | (weaker.any(axis=1) & (lowest != highest)))
    return np.array(
        [not _can_all_be_excluded(values[i], their_values[weaker[i]], {}) for i in range(len(mine))]
    )


def _can_all_be_excluded(mine: Ints, others: Ints, chosen: dict[int, int]) -> bool:
    """Whether rows still to come could be excluded by every other row, but not by mine.

    ``chosen`` holds the values fixed so far, by column.
    """
    for other in others:
        if any(chosen.get(k) == v for k, v in enumerate(other.tolist())):
            continue
        return any(
            k not in chosen and v != mine[k] and _can_all_be_excluded(mine, others, {**chosen, k: v})
            for k, v in enumerate(other.tolist())
        )
    return True
