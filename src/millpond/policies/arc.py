"""ARC (Megiddo and Modha, 2003), a strong classic to compare with: recency and frequency share the cache."""

from __future__ import annotations

import numpy as np

from millpond.models.arrays import Bools, Ints
from millpond.policies.kernels.cache_loop import numbered
from millpond.policies.kernels.compiled import compiled

# The lists a key may be on: cached and seen once or more often lately, and the ghosts of both; or none.
RECENT, FREQUENT, RECENT_GHOST, FREQUENT_GHOST, NOWHERE = range(5)


def arc_cache(keys: Ints, size: int) -> Bools:
    """Which references are hits under ARC."""
    return _loop(numbered(keys), size)


@compiled
def _unlink(key: int, before: Ints, after: Ints) -> None:
    after[before[key]] = after[key]
    before[after[key]] = before[key]


@compiled
def _append(key: int, head: int, before: Ints, after: Ints) -> None:
    newest = before[head]
    after[newest] = key
    before[key] = newest
    after[key] = head
    before[head] = key


@compiled
def _move(key: int, target: int, count: int, place: Ints, length: Ints, before: Ints, after: Ints) -> None:
    """Put the key at the newest end of a list, or on none."""
    if place[key] != NOWHERE:
        _unlink(key, before, after)
        length[place[key]] -= 1
    if target != NOWHERE:
        _append(key, count + target, before, after)
        length[target] += 1
    place[key] = target


@compiled
def _loop(codes: Ints, size: int) -> Bools:
    count = codes.max() + 1 if len(codes) else 0
    hits = np.zeros(len(codes), np.bool_)
    before = np.arange(count + 4)  # the last four entries are the heads of the lists
    after = np.arange(count + 4)
    place = np.full(count, NOWHERE, np.int64)
    length = np.zeros(4, np.int64)
    wanted = 0.0  # how many of the cached rows should be recent ones
    for t in range(len(codes)):
        key = codes[t]
        where = place[key]
        if where in (RECENT, FREQUENT):
            hits[t] = True
            _move(key, FREQUENT, count, place, length, before, after)
            continue
        if where == RECENT_GHOST:
            wanted = min(float(size), wanted + max(1.0, length[FREQUENT_GHOST] / length[RECENT_GHOST]))
        elif where == FREQUENT_GHOST:
            wanted = max(0.0, wanted - max(1.0, length[RECENT_GHOST] / length[FREQUENT_GHOST]))
        elif length[RECENT] + length[RECENT_GHOST] == size:
            oldest = after[count + (RECENT_GHOST if length[RECENT] < size else RECENT)]
            _move(oldest, NOWHERE, count, place, length, before, after)
        elif length.sum() == 2 * size:
            _move(after[count + FREQUENT_GHOST], NOWHERE, count, place, length, before, after)
        if length[RECENT] + length[FREQUENT] == size:
            over = length[RECENT] > wanted or (where == FREQUENT_GHOST and length[RECENT] == wanted)
            if length[RECENT] > 0 and over:
                _move(after[count + RECENT], RECENT_GHOST, count, place, length, before, after)
            else:
                _move(after[count + FREQUENT], FREQUENT_GHOST, count, place, length, before, after)
        target = RECENT if where == NOWHERE else FREQUENT
        _move(key, target, count, place, length, before, after)
    return hits
