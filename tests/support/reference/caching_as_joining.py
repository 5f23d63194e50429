"""The reduction of caching to joining (section 2, Theorem 1)."""

from __future__ import annotations

import numpy as np

from millpond.models.array_types import Floats, Ints, integers
from millpond.policies.policy import Candidates, Policy, R


def reduce_to_join(keys: Ints) -> tuple[Ints, Ints]:
    """Streams R' and S' whose join has a result for every cache hit.

    The i-th reference to v becomes (v, i-1) in R' and supplies the row (v, i) in S'; so a row of S' joins
    once, with the next reference to its key.  A pair is packed into one integer.

    >>> r, s = reduce_to_join(np.array([7, 8, 7, 7]))
    >>> [int(np.flatnonzero(r == row)[0]) if row in r else None for row in s]  # which reference uses each row
    [2, None, 3, None]
    """
    codes = np.unique(keys, return_inverse=True)[1].astype(np.int64)
    order = np.argsort(codes, kind="stable")
    starts = np.r_[0, np.flatnonzero(np.diff(codes[order])) + 1] if len(codes) else np.empty(0, np.int64)
    lengths = np.diff(np.r_[starts, len(codes)])
    occurrence = np.empty(len(codes), np.int64)
    occurrence[order] = np.arange(len(codes)) - np.repeat(starts, lengths)
    packed = codes * (len(codes) + 1) + occurrence
    return packed, packed + 1


class ReducedPolicy(Policy):
    """A caching policy on the streams of :func:`reduce_to_join`.

    It is reasonable in the sense of Theorem 1: it first evicts tuples that can never join again, which are
    references and rows that were replaced by a newer copy.
    """

    def __init__(self, policy: Policy, keys: Ints) -> None:
        self._policy = policy
        self._keys = keys
        self._newest: dict[int, int] = {}

    def observe(self, now: int, r: Ints, s: Ints) -> None:
        key = int(self._keys[now])
        self._newest[key] = int(s[-1])
        self._policy.observe(now, integers(key), integers([]))

    def scores(self, now: int, candidates: Candidates) -> Floats:
        keys = self._keys[candidates.arrived]
        stale = np.array([self._newest[key] for key in keys.tolist()]) != candidates.value
        scores = np.full(len(candidates), -np.inf)
        live = ~stale & (candidates.side != R)
        rows = candidates.where(live)
        rows = Candidates(rows.side, keys[live], rows.arrived, rows.used, rows.uses, rows.end)
        scores[live] = self._policy.scores(now, rows)
        if not self._policy.bypasses:
            scores[live & (candidates.arrived == now)] = np.inf
        return scores
