"""The definition of every policy by its name in the registry: a :class:`Policy` for :mod:`.store`.

Whoever adds a policy adds it here, and the lab can run it.  A compiled loop is only needed for speed.  These
policies have no definition of this form, because they do not score candidates: OPT-offline, ARC, and REHEARSE
for joining and HEEB with an online alpha, which choose among policies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millpond.models.array_types import Ints
from millpond.models.lifetime import ObservedLifetime
from millpond.models.models import Model
from millpond.policies.fifo import Fifo
from millpond.policies.flow_expect import FlowExpect
from millpond.policies.heeb import (
    LIFETIMES,
    AdaptiveHeeb,
    heeb_for_caching,
    heeb_for_joining,
    next_step_policy,
)
from millpond.policies.lfd import Lfd
from millpond.policies.lfu import Lfu
from millpond.policies.lru import Lru, LruK
from millpond.policies.policy import Policy
from millpond.policies.prob import Life, Prob
from millpond.policies.rand import RandomEviction
from millpond.policies.rehearse.cache_policy import RehearseCaching
from millpond.policies.reuse import Reuse


@dataclass(frozen=True, eq=False)
class JoinSetting:
    """A join whose policy is to be built; ``ahead`` is FlowExpect's look-ahead."""

    r: Model
    s: Model
    size: int
    alpha: float
    seed: int = 0
    ahead: int = 5


@dataclass(frozen=True, eq=False)
class CacheSetting:
    """A cache whose policy is to be built; ``keys`` is the whole trace, for offline policies."""

    keys: Ints
    size: int
    model: Model | None = None
    seed: int = 0

    @property
    def known_model(self) -> Model:
        """The model, for policies that need one."""
        if self.model is None:
            raise ValueError("this policy needs a model of the keys")
        return self.model


JOIN_DEFINITIONS: dict[str, Callable[[JoinSetting], Policy]] = {
    "rand": lambda join: RandomEviction(join.seed),
    "prob": lambda join: Prob(),
    "life": lambda join: Life(),
    "fifo": lambda join: Fifo(),
    "lru": lambda join: Lru(),
    "lfu": lambda join: Lfu(),
    "heeb": lambda join: heeb_for_joining(join.r, join.s, join.alpha),
    "heeb-adaptive": lambda join: AdaptiveHeeb(join.r, join.s, ObservedLifetime(LIFETIMES[0])),
    "flowexpect": lambda join: FlowExpect(join.r, join.s, join.ahead, join.size),
}
CACHE_DEFINITIONS: dict[str, Callable[[CacheSetting], Policy]] = {
    "rand": lambda cache: RandomEviction(cache.seed),
    "fifo": lambda cache: Fifo(),
    "lru": lambda cache: Lru(),
    "lfu": lambda cache: Prob(),  # for caching, PROB is perfect LFU
    "lfu-cached": lambda cache: Lfu(),
    "lru-2": lambda cache: LruK(2),
    "lfd": lambda cache: Lfd(cache.keys),
    "reuse": lambda cache: Reuse(),
    "heeb": lambda cache: heeb_for_caching(cache.known_model, float(cache.size)),
    "ao": lambda cache: next_step_policy(cache.known_model),
    "rehearse": lambda cache: RehearseCaching.of(cache.size, cache.model),
}
