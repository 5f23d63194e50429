"""A bounded store under a policy, in plain NumPy: what the compiled loops mean, and a base for operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from millpond.models.arrays import Ints, integers
from millpond.policies.policy import Candidates, Policy, R, S

NEVER = 1 << 60


class Store:
    """What is kept, and the policy that decides it."""

    def __init__(self, size: int, policy: Policy) -> None:
        self.size = size
        self.policy = policy
        self.kept = Candidates.none()

    def state(self) -> dict[str, Any]:
        """What is kept and what the policy has learned, as JSON values."""
        return {"kept": self.kept.to_json(), "policy": self.policy.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state that :meth:`state` gave."""
        self.kept = Candidates.from_json(state["kept"])
        self.policy.load(state["policy"])


class JoinStore(Store):
    """The kept tuples of two streams that are joined on equal values."""

    def step(self, now: int, r: Ints, s: Ints, r_end: int = NEVER, s_end: int = NEVER) -> int:
        """Take in what arrived in step ``now``; the number of results it finds among the kept tuples.

        Tuples that arrive together are not counted with each other: no policy has a say in those results.
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
        for side, values, end in arrivals if now % 2 == 0 else reversed(arrivals):  # neither side is favoured
            self.kept = self.kept.with_more(_arrivals(side, values, now, end))
        self._shrink(now)
        return found

    def _shrink(self, now: int) -> None:
        excess = len(self.kept) - self.size
        if excess > 0:
            scores = self.policy.scores(now, self.kept)
            lowest = np.argsort(scores, kind="stable")[:excess]  # of equal scores the oldest
            stays = np.ones(len(self.kept), bool)
            stays[lowest] = False
            self.policy.discarded(now, self.kept.where(~stays))
            self.kept = self.kept.where(stays)


class CacheStore(Store):
    """The cached rows of a relation that a stream refers to."""

    def refer(self, now: int, key: int) -> bool:
        """Whether the row is cached; if not it is fetched, and may be cached in place of another."""
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
            # Of equal scores the least recently referenced row goes.
            worst = np.lexsort((self.kept.used, scores))[0]
            gone = np.arange(len(self.kept)) == worst
            self.policy.discarded(now, self.kept.where(gone))
            self.kept = self.kept.where(~gone)
        return False


def _arrivals(side: int, values: Ints, now: int, end: int) -> Candidates:
    columns = [np.full(len(values), constant, np.int64) for constant in (side, now, now, 0, end)]
    return Candidates(columns[0], values, *columns[1:])
