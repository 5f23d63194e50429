"""ARC (Megiddo and Modha, 2003): a cache that balances recency and frequency by itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millpond.models.array_types import Bools, Ints
from millpond.policies.kernels.cache_loop import number_keys
from millpond.policies.kernels.compiled import compiled, inlined

# The list of a key: cached and seen once recently, or more often; evicted from either (ghosts); or none.
RECENT, FREQUENT, RECENT_GHOST, FREQUENT_GHOST, NOWHERE = range(5)


class _Lists(NamedTuple):
    """Linked lists of keys, oldest first.  The last four entries of the links are the heads of the lists."""

    before: Ints
    after: Ints
    place: Ints  # by key: the list it is on
    length: Ints  # by list


def run_arc(keys: Ints, size: int) -> Bools:
    """Which references are hits under ARC."""
    codes = number_keys(keys)
    count = int(codes.max(initial=-1)) + 1
    links = np.arange(count + 4), np.arange(count + 4)
    lists = _Lists(*links, np.full(count, NOWHERE, np.int64), np.zeros(4, np.int64))
    return _run(codes, size, lists)


@inlined
def _oldest(which: int, lists: _Lists) -> int:
    return int(lists.after[len(lists.place) + which])


@inlined
def _move(key: int, target: int, lists: _Lists) -> None:
    """Move a key to the newest end of a list, or off all lists."""
    before, after, place, length = lists.before, lists.after, lists.place, lists.length
    if place[key] != NOWHERE:
        after[before[key]] = after[key]
        before[after[key]] = before[key]
        length[place[key]] -= 1
    if target != NOWHERE:
        head = len(place) + target
        newest = before[head]
        after[newest] = key
        before[key] = newest
        after[key] = head
        before[head] = key
        length[target] += 1
    place[key] = target


@compiled
def _run(codes: Ints, size: int, lists: _Lists) -> Bools:
    length = lists.length
    hits = np.zeros(len(codes), np.bool_)
    wanted = 0.0  # the target length of RECENT
    for t in range(len(codes)):
        key = codes[t]
        where = lists.place[key]
        if where in (RECENT, FREQUENT):
            hits[t] = True
            _move(key, FREQUENT, lists)
            continue
        if where == RECENT_GHOST:
            wanted = min(float(size), wanted + max(1.0, length[FREQUENT_GHOST] / length[RECENT_GHOST]))
        elif where == FREQUENT_GHOST:
            wanted = max(0.0, wanted - max(1.0, length[RECENT_GHOST] / length[FREQUENT_GHOST]))
        elif length[RECENT] + length[RECENT_GHOST] == size:
            _move(_oldest(RECENT_GHOST if length[RECENT] < size else RECENT, lists), NOWHERE, lists)
        elif length.sum() == 2 * size:
            _move(_oldest(FREQUENT_GHOST, lists), NOWHERE, lists)
        if length[RECENT] + length[FREQUENT] == size:
            over = length[RECENT] > wanted or (where == FREQUENT_GHOST and length[RECENT] == wanted)
            if length[RECENT] > 0 and over:
                _move(_oldest(RECENT, lists), RECENT_GHOST, lists)
            else:
                _move(_oldest(FREQUENT, lists), FREQUENT_GHOST, lists)
        _move(key, RECENT if where == NOWHERE else FREQUENT, lists)
    return hits
