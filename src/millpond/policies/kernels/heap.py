"""An indexed binary heap over numbered keys, for compiled loops: any key's score may change."""

from __future__ import annotations

from typing import NamedTuple

from millpond.models.array_types import Ints
from millpond.policies.kernels.compiled import inlined


class Heap(NamedTuple):
    """The key with the lowest score is on top.  A score is the pair of ``major`` and ``minor``.

    The functions below take the number of keys as ``filled``.
    """

    held: Ints  # the keys from the top; the first `filled` entries are in use
    place: Ints  # by key: its index in `held`, or -1
    major: Ints  # by key
    minor: Ints  # by key


@inlined
def _is_below(a: int, b: int, heap: Heap) -> bool:
    major, minor = heap.major, heap.minor
    return bool(major[a] < major[b] or (major[a] == major[b] and minor[a] < minor[b]))


@inlined
def sink(at: int, filled: int, heap: Heap) -> None:
    """Move the key at an index down to its place: its score has grown."""
    held, place = heap.held, heap.place
    key = held[at]
    while True:
        child = 2 * at + 1
        if child >= filled:
            break
        if child + 1 < filled and _is_below(held[child + 1], held[child], heap):
            child += 1
        if not _is_below(held[child], key, heap):
            break
        held[at] = held[child]
        place[held[at]] = at
        at = child
    held[at] = key
    place[key] = at


@inlined
def rise(at: int, heap: Heap) -> None:
    """Move the key at an index up to its place: its score has fallen."""
    held, place = heap.held, heap.place
    key = held[at]
    while at > 0:
        parent = (at - 1) // 2
        if not _is_below(key, held[parent], heap):
            break
        held[at] = held[parent]
        place[held[at]] = at
        at = parent
    held[at] = key
    place[key] = at


@inlined
def push(key: int, filled: int, heap: Heap) -> None:
    """Add a key; the heap then has ``filled`` + 1 keys."""
    heap.held[filled] = key
    heap.place[key] = filled
    rise(filled, heap)


@inlined
def remove(key: int, filled: int, heap: Heap) -> None:
    """Remove a key; the heap then has ``filled`` - 1 keys."""
    held, place = heap.held, heap.place
    at = place[key]
    last = held[filled - 1]
    place[key] = -1
    if last == key:
        return
    held[at] = last
    place[last] = at
    sink(at, filled - 1, heap)
    rise(place[last], heap)
