"""Fronts through time: which partial matches are the least demanding, from when and until when.

Of two matches with the same key the one that demands no more, and was there no later, makes the other
superfluous.  What must differ from a coming value needs more than one: a match is superfluous only if,
whatever the coming values, one that demands no more is left.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from millpond.errors import MillpondError

Ints = NDArray[np.int64]
# The time of what was there before, and the end of what is still there.
ALWAYS, NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max
# A front is bounded, by a number that nobody knows; one beyond this is a sign that something is wrong.
MAX_FRONT = 10_000
# Rows compared with the front, and with each other, at once.
_SLICE = 512


@dataclass(frozen=True)
class History:
    """Rows (by number) that were on a front: since when, until when, and in which of its places."""

    rows: Ints
    since: Ints
    until: Ints
    places: Ints


def history(keys: Ints, times: Ints, demands: Ints, differing: Ints) -> History:
    """The fronts of rows that are sorted by key and time.

    ``demands[i, j]`` is smaller where row i demands less of its j-th partner; ``differing[i, k]`` is the
    value that the k-th such partner must differ from.
    """
    if not demands.shape[1] and not differing.shape[1]:
        return _chain(keys, times, _starts(keys))
    if demands.shape[1] == 1 and not differing.shape[1]:
        return _chain(keys, times, _improvements(keys, demands[:, 0]))
    edges = [*np.flatnonzero(_starts(keys)).tolist(), len(keys)]
    parts = [_front(a, times[a:b], demands[a:b], differing[a:b]) for a, b in pairwise(edges)]
    nothing = History(*(np.zeros(0, np.int64) for _ in range(4)))
    return History(*(np.concatenate(column) for column in zip(*map(astuple, [nothing, *parts]), strict=True)))


def _starts(keys: Ints) -> NDArray[np.bool_]:
    """The first row of each key."""
    return np.diff(keys, prepend=keys[:1] - 1) != 0 if len(keys) else np.zeros(0, dtype=bool)


def _improvements(keys: Ints, demand: Ints) -> NDArray[np.bool_]:
    """Rows that demand less than all before them with the same key."""
    if not len(keys):
        return np.zeros(0, dtype=bool)
    # Every key's demands lie below those of the keys before it, so that one running minimum serves all.
    number = np.cumsum(_starts(keys))
    width = int(demand.max()) - int(demand.min()) + 1
    level = demand - int(demand.min()) - number * width
    best = np.minimum.accumulate(level)
    return np.concatenate([[True], level[1:] < best[:-1]])


def _chain(keys: Ints, times: Ints, kept: NDArray[np.bool_]) -> History:
    """Rows each of which replaces the one before it with the same key; of equal times the last remains."""
    rows = np.flatnonzero(kept)
    follows = np.zeros(len(rows), dtype=bool)
    if len(rows):
        follows[:-1] = keys[rows[1:]] == keys[rows[:-1]]
    until = np.full(len(rows), NEVER)
    until[:-1][follows[:-1]] = times[rows[1:]][follows[:-1]]
    alive = until > times[rows]
    rows, until = rows[alive], until[alive]
    return History(rows, times[rows], until, np.zeros(len(rows), np.int64))


class _Front:
    """A growing record of one key's front."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.since: list[int] = []
        self.until: list[int] = []
        self.places: list[int] = []
        self.alive: list[int] = []  # positions in the lists above
        self._free: list[int] = []
        self._width = 0

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
                f"more than {MAX_FRONT:,} partial matches are all needed, though the query is bounded",
                remedy="report the query; it is worth a look",
            )

    def end(self, superfluous: NDArray[np.bool_], time: int) -> None:
        """The alive ones so marked end."""
        for position in np.flatnonzero(superfluous):
            entry = self.alive[position]
            self.until[entry] = time
            self._free.append(self.places[entry])
        self.alive = [e for e, gone in zip(self.alive, superfluous, strict=True) if not gone]


def _front(first: int, times: Ints, demands: Ints, differing: Ints) -> History:
    """The front of one key, slice by slice: most rows are superfluous, seen against the front as it is."""
    front = _Front()
    for start in range(0, len(times), _SLICE):
        stop = min(start + _SLICE, len(times))
        now = np.array([front.rows[e] for e in front.alive], dtype=np.int64)
        left = np.flatnonzero(
            ~_superfluous(demands[start:stop], differing[start:stop], demands[now], differing[now])
        )
        for row in left + start:
            alive = np.array([front.rows[e] for e in front.alive], dtype=np.int64)
            mine, other = slice(row, row + 1), demands[alive]
            if len(alive) and _superfluous(demands[mine], differing[mine], other, differing[alive])[0]:
                continue
            time = int(times[row])
            front.add(int(row), time)
            alive = np.append(alive, row)
            gone = np.zeros(len(alive), dtype=bool)
            candidates = (demands[row] <= demands[alive]).all(axis=1)
            candidates[-1] = False
            for position in np.flatnonzero(candidates):
                others = np.delete(alive, np.flatnonzero(gone | (np.arange(len(alive)) == position)))
                one = slice(alive[position], alive[position] + 1)
                gone[position] = _superfluous(
                    demands[one], differing[one], demands[others], differing[others]
                )[0]
            front.end(gone, time)
    rows, since, until = np.array(front.rows), np.array(front.since), np.array(front.until)
    lasted = until > since
    places = np.array(front.places)
    return History(rows[lasted] + first, since[lasted], until[lasted], places[lasted])


def _superfluous(mine: Ints, values: Ints, others: Ints, their_values: Ints) -> NDArray[np.bool_]:
    """Whether each row is made superfluous by the others together."""
    if not len(others):
        return np.zeros(len(mine), dtype=bool)
    easier = np.asarray((others[None, :, :] <= mine[:, None, :]).all(axis=2))
    if not values.shape[1]:
        return np.asarray(easier.any(axis=1))
    if values.shape[1] == 1:
        v, w = values[:, 0], their_values[:, 0]
        same = (easier & (w[None, :] == v[:, None])).any(axis=1)
        lowest = np.where(easier, w[None, :], NEVER).min(axis=1)
        highest = np.where(easier, w[None, :], ALWAYS).max(axis=1)
        return np.asarray(same | (easier.any(axis=1) & (lowest != highest)))
    return np.array(
        [not _can_all_be_refused(values[i], their_values[easier[i]], {}) for i in range(len(mine))]
    )


def _can_all_be_refused(mine: Ints, others: Ints, chosen: dict[int, int]) -> bool:
    """Values still to come can equal one of every other row's, and none of mine."""
    for other in others:
        if any(chosen.get(k) == v for k, v in enumerate(other.tolist())):
            continue
        return any(
            k not in chosen and v != mine[k] and _can_all_be_refused(mine, others, {**chosen, k: v})
            for k, v in enumerate(other.tolist())
        )
    return True
