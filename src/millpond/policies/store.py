"""A bounded store under any policy, in plain NumPy.

This defines what joining and caching in a fixed memory mean; tests hold the compiled loops to it.  The lab
runs policies that have no compiled loop in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millpond.models.array_types import Ints, integers
from millpond.policies.policy import Candidates, Policy, R, S

# The step at which a tuple without a window leaves it.
NEVER = 1 << 60


class Store:
    """At most ``size`` candidates, and the policy that chooses them."""

    def __init__(self, size: int, policy: Policy) -> None:
        self.size = size
        self.policy = policy
        self.kept = Candidates.none()

    def state(self) -> dict[str, Any]:
        """The kept candidates and what the policy has learned, as JSON values."""
        return {"kept": self.kept.to_json(), "policy": self.policy.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.kept = Candidates.from_json(state["kept"])
        self.policy.load(state["policy"])


class JoinStore(Store):
    """The kept tuples of two streams that are joined on equal values."""

    def step(self, now: int, r: Ints, s: Ints, r_end: int = NEVER, s_end: int = NEVER) -> int:
        """Add the arrivals of step ``now``, evict down to the size, and return how many results they gave.

        Results between tuples of the same step do not count: no policy influences them.
        """
        found = 0
        for side, partners in ((R, s), (S, r)):
            for partner in partners:
                hit = (self.kept.side == side) & (self.kept.value == partner) & (now < self.kept.end)
                self.kept.used[hit] = now
                self.kept.uses[hit] += 1
                found += int(hit.sum())
        self.policy.observe(now, r, s)
        arrivals = [(R, r, r_end), (S, s, s_end)]
        # The sides take turns in coming first, so that ties favour neither.
        for side, values, end in arrivals if now % 2 == 0 else reversed(arrivals):
            self.kept = self.kept.with_more(_arrivals(side, values, now, end))
        self._evict(now)
        return found

    def _evict(self, now: int) -> None:
        excess = len(self.kept) - self.size
        if excess > 0:
            scores = self.policy.scores(now, self.kept)
            lowest = np.argsort(scores, kind="stable")[:excess]  # of equal scores the oldest
            stays = np.ones(len(self.kept), bool)
            stays[lowest] = False
            self.policy.discarded(now, self.kept.where(~stays))
            self.kept = self.kept.where(stays)


class CacheStore(Store):
    """The cached rows of a relation that a stream looks up."""

    def refer(self, now: int, key: int) -> bool:
        """Look up a key and return whether it is a hit; a fetched row may replace a cached one."""
        self.policy.observe(now, integers(key), integers([]))
        hit = self.kept.value == key
        if hit.any():
            self.kept.used[hit] = now
            self.kept.uses[hit] += 1
            return True
        self.kept = self.kept.with_more(_arrivals(S, integers(key), now, NEVER))
        if len(self.kept) > self.size:
            scores = self.policy.scores(now, self.kept)
            if not self.policy.bypasses:
                scores[-1] = np.inf
            # Of equal scores the least recently referenced row is evicted.
            worst = np.lexsort((self.kept.used, scores))[0]
            gone = np.arange(len(self.kept)) == worst
            self.policy.discarded(now, self.kept.where(gone))
            self.kept = self.kept.where(~gone)
        return False


def _arrivals(side: int, values: Ints, now: int, end: int) -> Candidates:
    columns = [np.full(len(values), constant, np.int64) for constant in (side, now, now, 0, end)]
    return Candidates(columns[0], values, *columns[1:])
