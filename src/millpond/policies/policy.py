"""The interface of every policy: it observes what arrives and scores the candidates for eviction.

Joining keeps tuples of two streams, R and S.  Caching keeps rows of a relation that one stream, R, looks up;
cached rows count as tuples of S, because their partner stream is R.  The lowest scores are evicted, by
:mod:`millpond.policies.store` or by a compiled loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from millpond.models.array_types import Bools, Floats, Ints

R, S = 0, 1


@dataclass(frozen=True, eq=False)
class Candidates:
    """The tuples or rows among which a policy chooses: columns with one entry for each candidate."""

    side: Ints
    value: Ints
    arrived: Ints  # the step in which it arrived
    used: Ints  # the step of its last result or hit; at first that of its arrival
    uses: Ints  # the number of its results or hits
    end: Ints  # the first step at which its window no longer covers it

    @classmethod
    def none(cls) -> Candidates:
        return cls(*(np.empty(0, np.int64) for _ in fields(cls)))

    def __len__(self) -> int:
        return len(self.side)

    def where(self, chosen: Bools | Ints) -> Candidates:
        """The chosen candidates, in the same order."""
        return Candidates(*(getattr(self, column.name)[chosen] for column in fields(self)))

    def to_json(self) -> dict[str, list[int]]:
        """The columns as JSON values."""
        return {column.name: getattr(self, column.name).tolist() for column in fields(self)}

    @classmethod
    def from_json(cls, value: dict[str, list[int]]) -> Candidates:
        """The candidates that :meth:`to_json` wrote."""
        return cls(*(np.array(value[column.name], np.int64) for column in fields(cls)))

    def with_more(self, more: Candidates) -> Candidates:
        """These candidates followed by ``more``."""
        columns = (column.name for column in fields(self))
        return Candidates(*(np.concatenate([getattr(self, c), getattr(more, c)]) for c in columns))


class Policy(ABC):
    """Scores candidates.  All arguments are arrays, so a batch takes as many calls as a single tuple."""

    bypasses = True  # whether a fetched row may stay out of the cache; classic policies always cache it

    def observe(self, now: int, r: Ints, s: Ints) -> None:  # noqa: B027 (a policy may learn nothing)
        """Learn the values that arrived up to step ``now``, the latest last; ``s`` is empty for caching."""

    @abstractmethod
    def scores(self, now: int, candidates: Candidates) -> Floats:
        """The score of each candidate after step ``now``.  Only the order of scores matters."""

    def discarded(self, now: int, gone: Candidates) -> None:  # noqa: B027
        """Learn which candidates were evicted after step ``now``."""

    def state(self) -> dict[str, Any]:
        """What the policy has learned, as JSON values."""
        return {}

    def load(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Restore what :meth:`state` returned."""


def outside_first(now: int, candidates: Candidates, scores: Floats) -> Floats:
    """The scores, with -1 for tuples that the window no longer covers at the next step."""
    return np.where(now + 1 >= candidates.end, -1.0, scores)
