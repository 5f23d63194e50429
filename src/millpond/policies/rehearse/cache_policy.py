"""REHEARSE for caching as a :class:`Policy`: the definition of what the compiled caches do."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

from millpond.models.array_types import Floats, Ints
from millpond.models.models import Model
from millpond.policies.heeb import heeb_for_caching
from millpond.policies.lru import Lru
from millpond.policies.policy import Candidates, Policy
from millpond.policies.prob import Prob
from millpond.policies.rehearse.cache import heeb_alphas
from millpond.policies.rehearse.shadow_caches import CLEARLY, MEMORY
from millpond.policies.reuse import Reuse
from millpond.policies.store import CacheStore


class RehearseCaching(Policy):
    """Scores as the leader does: the policy whose shadow cache is clearly ahead of the first one's."""

    def __init__(self, policies: Sequence[Policy], size: int) -> None:
        self._shadows = [CacheStore(size, policy) for policy in policies]
        self._ahead = [0.0] * len(policies)
        self._apart = [0.0] * len(policies)
        self._leader = 0
        self._next = 0

    @classmethod
    def of(cls, size: int, model: Model | None = None) -> RehearseCaching:
        """The policies that :func:`.cache.rehearse_cache` tries, in the same order."""
        policies: list[Policy] = [Reuse(), Lru(), Prob()]
        if model is not None:
            policies = [*(heeb_for_caching(model, alpha) for alpha in heeb_alphas(size)), *policies]
        return cls(policies, size)

    @property
    def leader(self) -> int:
        """The index of the policy that leads."""
        return self._leader

    @property
    def bypasses(self) -> bool:  # type: ignore[override]
        """As the leader does."""
        return self._shadows[self._leader].policy.bypasses

    def observe(self, now: int, r: Ints, s: Ints) -> None:
        for step, key in enumerate(r.tolist(), start=now - len(r) + 1):
            self._leader = self._next  # the leader of a reference is chosen before it
            self._choose_leader([shadow.refer(step, key) for shadow in self._shadows])

    def _choose_leader(self, hits: list[bool]) -> None:
        for i, hit in enumerate(hits):
            self._ahead[i] *= 1 - 1 / MEMORY
            self._apart[i] *= 1 - 1 / MEMORY
            if hit != hits[0]:
                self._ahead[i] += 1.0 if hit else -1.0
                self._apart[i] += 1.0
        if self._ahead[self._next] <= 0.0:
            self._next = 0
        for i, ahead in enumerate(self._ahead):
            if ahead > self._ahead[self._next] and ahead > CLEARLY * sqrt(self._apart[i]):
                self._next = i

    def scores(self, now: int, candidates: Candidates) -> Floats:
        return self._shadows[self._leader].policy.scores(now, candidates)

    def state(self) -> dict[str, Any]:
        return {
            "shadows": [shadow.state() for shadow in self._shadows],
            "ahead": list(self._ahead),
            "apart": list(self._apart),
            "leader": self._leader,
            "next": self._next,
        }

    def load(self, state: dict[str, Any]) -> None:
        for shadow, saved in zip(self._shadows, state["shadows"], strict=True):
            shadow.load(saved)
        self._ahead, self._apart = list(state["ahead"]), list(state["apart"])
        self._leader, self._next = state["leader"], state["next"]
