"""The eviction policies of Millpond: their names, what they do, and which commands offer them.

This is the only list of policies.  ``millpond run --policy``, the lookup relations and ``millpond lab`` read
it.  It imports no policy, so that the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from millpond.errors import MillpondError

if TYPE_CHECKING:
    from millpond.models.models import Model


class Use(Enum):
    """Where a policy can be chosen by its name."""

    RUN = "run"  # joins on a memory budget: `millpond run --memory N --policy NAME`, `millpond.sql`
    LOOKUP = "lookup"  # the cache of a lookup relation
    LAB_JOIN = "lab join"
    LAB_CACHE = "lab cache"


class PolicyKind(Enum):
    """What a policy decides about: which tuples of two streams to keep, or which rows of a relation."""

    JOINING = "joining"
    CACHING = "caching"
    BOTH = "joining and caching"


_JOINING = frozenset({Use.RUN, Use.LAB_JOIN})
_CACHING = frozenset({Use.LOOKUP, Use.LAB_CACHE})


@dataclass(frozen=True)
class PolicyInfo:
    """One policy.  ``label`` names it in figures; with ``needs_model`` it scores by a model of the stream."""

    name: str
    label: str
    description: str
    uses: frozenset[Use]
    needs_model: bool = False

    @property
    def kind(self) -> PolicyKind:
        if not self.uses & _CACHING:
            return PolicyKind.JOINING
        return PolicyKind.BOTH if self.uses & _JOINING else PolicyKind.CACHING


def _info(name: str, label: str, description: str, *uses: Use, needs_model: bool = False) -> PolicyInfo:
    return PolicyInfo(name, label, description, frozenset(uses), needs_model)


_EVERYWHERE = (Use.RUN, Use.LOOKUP, Use.LAB_JOIN, Use.LAB_CACHE)
_LAB = (Use.LAB_JOIN, Use.LAB_CACHE)

# In the order in which commands list them.
POLICIES = (
    _info("auto", "AUTO", "HEEB for joins; for lookups REHEARSE, or LRU against LFU", Use.RUN, Use.LOOKUP),
    _info("heeb", "HEEB", "evicts the lowest expected benefit (paper 3)", *_EVERYWHERE, needs_model=True),
    _info(
        "prob",
        "PROB",
        "evicts the value that the partner stream had least often",
        Use.RUN,
        Use.LOOKUP,
        Use.LAB_JOIN,
    ),
    _info("lru", "LRU", "evicts the least recently used", *_EVERYWHERE),
    _info("lfu", "LFU (perfect)", "evicts the least used; caches count every reference", *_EVERYWHERE),
    _info("fifo", "FIFO", "evicts the oldest", *_EVERYWHERE),
    _info("rand", "RAND", "evicts at random", *_EVERYWHERE),
    _info("life", "LIFE", "PROB times the time left in the window", Use.LAB_JOIN),
    _info("lfu-cached", "LFU (of cached rows)", "LFU that forgets a count on eviction", Use.LAB_CACHE),
    _info("lru-2", "LRU-2", "evicts the row whose second last reference is oldest", Use.LAB_CACHE),
    _info("lfd", "LFD with bypass", "the optimum of caching: evicts the row needed last", Use.LAB_CACHE),
    _info("arc", "ARC", "balances recency and frequency (Megiddo and Modha)", Use.LAB_CACHE),
    _info("reuse", "REUSE", "scores rows by the reuse distances of their class", Use.LAB_CACHE),
    _info(
        "heeb-adaptive",
        "HEEB, observed lifetime",
        "HEEB; alpha follows the observed lifetime",
        Use.LAB_JOIN,
        needs_model=True,
    ),
    _info(
        "heeb-online",
        "HEEB, alpha online",
        "HEEB; alpha is chosen by shadow caches",
        Use.LAB_CACHE,
        needs_model=True,
    ),
    _info("ao", "A_o", "evicts the row least likely to be used next", Use.LAB_CACHE, needs_model=True),
    _info("rehearse", "REHEARSE", "tries several policies and follows the best", *_LAB, Use.LOOKUP),
    _info("flowexpect", "FLOWEXPECT", "plans ahead by min-cost flow", Use.LAB_JOIN, needs_model=True),
    _info("opt", "OPT-offline", "the optimum of joining, which knows the streams", Use.LAB_JOIN),
)
_BY_NAME = {info.name: info for info in POLICIES}


def policy_info(name: str) -> PolicyInfo:
    """The policy of that name."""
    return _BY_NAME[name]


def policy_names(use: Use) -> tuple[str, ...]:
    """The names that can be chosen for a use."""
    return tuple(info.name for info in POLICIES if use in info.uses)


@dataclass(frozen=True)
class PolicyChoice:
    """The policy of a join on a memory budget.

    ``models`` gives the models of streams that are known; those of other streams are identified.  ``alpha``
    replaces the one that paper 3 chooses for HEEB.
    """

    name: str = "auto"
    models: Mapping[str, Model] = field(default_factory=dict)
    alpha: float | None = None

    def __post_init__(self) -> None:
        known = policy_names(Use.RUN)
        if self.name not in known:
            raise MillpondError(f"there is no policy {self.name!r}", remedy=f"choose from {', '.join(known)}")

    @property
    def expects(self) -> bool:
        """Whether scores are expected numbers of partners, as HEEB's are."""
        return self.name in ("auto", "heeb")
