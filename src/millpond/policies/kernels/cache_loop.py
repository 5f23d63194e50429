"""The compiled loop of caching under scores that change between references: score tables and LFD.

Under these scores the fetched row is a candidate for eviction like the cached ones (bypass); of equal scores
the least recently referenced row goes.  :class:`millpond.policies.store.CacheStore` defines the same in plain
Python.  The classic policies run in :mod:`millpond.policies.kernels.heap_cache`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millpond.models.array_types import Bools, Ints
from millpond.policies.kernels.compiled import compiled
from millpond.policies.kernels.heap_cache import HeapCache
from millpond.policies.kernels.kinds import CacheScore
from millpond.policies.kernels.score_lookup import AlignedTables, look_up_score, no_tables
from millpond.policies.store import NEVER


class _References(NamedTuple):
    """The keys in order, their numbers from 0 on, and the step of the next reference to the same key."""

    keys: Ints
    codes: Ints
    following: Ints


def number_keys(keys: Ints) -> Ints:
    """The keys replaced by numbers from 0 on."""
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def next_uses(codes: Ints) -> Ints:
    """For each reference, the step of the next one to the same key."""
    following = np.full(len(codes), NEVER, np.int64)
    order = np.argsort(codes, kind="stable")
    same = codes[order[1:]] == codes[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    return following


def run_cache(
    keys: Ints,
    size: int,
    kind: CacheScore,
    table: AlignedTables | None = None,
    depth: int = 2,
    seed: int = 0,
) -> Bools:
    """Which references are hits when the lowest scores are evicted; ``depth`` is the k of LRU_K."""
    codes = number_keys(keys)
    count = int(codes.max(initial=-1)) + 1
    if kind not in (CacheScore.TABLE, CacheScore.NEXT_USE):
        return HeapCache(size, kind, depth, seed).refer(codes, np.ones(count, np.int64))
    if table is None:
        if kind == CacheScore.TABLE:
            raise ValueError("scores by table need a table")
        table = no_tables()
    following = next_uses(codes) if kind == CacheScore.NEXT_USE else np.zeros(1, np.int64)
    references = _References(np.ascontiguousarray(keys, np.int64), codes, following)
    return _run(references, count, size, kind == CacheScore.TABLE, table)


@compiled
def _run(references: _References, count: int, size: int, by_table: bool, table: AlignedTables) -> Bools:
    keys, codes, following = references.keys, references.codes, references.following
    scores, factors = table.scores[0], table.factors[0]
    hits = np.zeros(len(keys), np.bool_)
    slot = np.full(count, -1, np.int64)
    held = np.empty(size + 1, np.int64)
    used = np.full(count, -1, np.int64)
    due = np.full(count, NEVER, np.int64)
    value = np.zeros(count, np.int64)
    filled = 0
    for t in range(len(keys)):
        key = codes[t]
        used[key] = t
        value[key] = keys[t]
        if not by_table:
            due[key] = following[t]
        if slot[key] >= 0:
            hits[t] = True
            continue
        slot[key] = filled
        held[filled] = key
        filled += 1
        if filled <= size:
            continue
        worst = -1
        lowest = np.inf
        for i in range(filled):
            candidate = held[i]
            if by_table:
                row = scores[table.row[t]]
                score = look_up_score(row, factors, table.shape, table.origin[t], value[candidate])
            else:
                score = -float(due[candidate])
            if score < lowest or (score == lowest and used[candidate] < used[held[worst]]):
                lowest = score
                worst = i
        slot[held[worst]] = -1
        filled -= 1
        if worst < filled:
            held[worst] = held[filled]
            slot[held[worst]] = worst
    return hits
