"""An indexed heap over numbered keys: the lowest score is on top, and any key's score may change.

``held`` are the keys from the top, the first ``filled`` of them; ``place`` tells where a key stands, -1
where it does not.  The score of a key is the pair of its ``major`` and its ``minor`` number.
"""

from __future__ import annotations

from millpond.models.arrays import Ints
from millpond.policies.kernels.compiled import compiled


@compiled
def _below(a: int, b: int, major: Ints, minor: Ints) -> bool:
    return bool(major[a] < major[b] or (major[a] == major[b] and minor[a] < minor[b]))


@compiled
def sink(at: int, filled: int, held: Ints, place: Ints, major: Ints, minor: Ints) -> None:
    """Move the key at a place down to where it belongs: its score has grown."""
    key = held[at]
    while True:
        child = 2 * at + 1
        if child >= filled:
            break
        if child + 1 < filled and _below(held[child + 1], held[child], major, minor):
            child += 1
        if not _below(held[child], key, major, minor):
            break
        held[at] = held[child]
        place[held[at]] = at
        at = child
    held[at] = key
    place[key] = at


@compiled
def rise(at: int, held: Ints, place: Ints, major: Ints, minor: Ints) -> None:
    """Move the key at a place up to where it belongs: its score has fallen."""
    key = held[at]
    while at > 0:
        parent = (at - 1) // 2
        if not _below(key, held[parent], major, minor):
            break
        held[at] = held[parent]
        place[held[at]] = at
        at = parent
    held[at] = key
    place[key] = at


@compiled
def push(key: int, filled: int, held: Ints, place: Ints, major: Ints, minor: Ints) -> None:
    """Take in a key; there are then ``filled`` + 1."""
    held[filled] = key
    place[key] = filled
    rise(filled, held, place, major, minor)


@compiled
def remove(key: int, filled: int, held: Ints, place: Ints, major: Ints, minor: Ints) -> None:
    """Take out a key, wherever it stands; there are then ``filled`` - 1."""
    at = place[key]
    last = held[filled - 1]
    place[key] = -1
    if last == key:
        return
    held[at] = last
    place[last] = at
    sink(at, filled - 1, held, place, major, minor)
    rise(place[last], held, place, major, minor)
