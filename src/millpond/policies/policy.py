"""The one interface of every policy: what has arrived, and what each candidate is worth.

Joining keeps tuples of two streams, R and S; caching keeps rows of a relation that one stream, R, refers to.
A policy for joining scores tuples of both sides; for caching it scores rows, which stand on side S and so
have R for their partner.  The lowest scores are discarded; :mod:`millpond.policies.store` does it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from millpond.models.arrays import Bools, Floats, Ints

R, S = 0, 1


@dataclass(frozen=True, eq=False)
class Candidates:
    """What may be kept, one entry a candidate in every column."""

    side: Ints
    value: Ints
    arrived: Ints  # the step in which it arrived
    used: Ints  # the step of its last result or hit, else of its arrival
    uses: Ints  # how many results or hits it gave
    end: Ints  # the first step at which its window no longer covers it

    @classmethod
    def none(cls) -> Candidates:
        return cls(*(np.empty(0, np.int64) for _ in fields(cls)))

    def __len__(self) -> int:
        return len(self.side)

    def where(self, chosen: Bools | Ints) -> Candidates:
        """The chosen ones, in the same order."""
        return Candidates(*(getattr(self, column.name)[chosen] for column in fields(self)))

    def to_json(self) -> dict[str, list[int]]:
        """The columns as JSON values."""
        return {column.name: getattr(self, column.name).tolist() for column in fields(self)}

    @classmethod
    def from_json(cls, value: dict[str, list[int]]) -> Candidates:
        """What :meth:`to_json` wrote."""
        return cls(*(np.array(value[column.name], np.int64) for column in fields(cls)))

    def with_more(self, more: Candidates) -> Candidates:
        """These and then the others."""
        columns = (column.name for column in fields(self))
        return Candidates(*(np.concatenate([getattr(self, c), getattr(more, c)]) for c in columns))


class Policy(ABC):
    """Decides what is worth keeping.  Works on whole arrays, so that a batch costs as much as a row."""

    bypasses = True  # whether a fetched row may be left uncached; the classic policies always take it in

    def observe(self, now: int, r: Ints, s: Ints) -> None:  # noqa: B027 (a policy may learn nothing)
        """Learn what arrived up to step ``now``, the latest last; for caching there is nothing in ``s``."""

    @abstractmethod
    def scores(self, now: int, candidates: Candidates) -> Floats:
        """What each candidate is worth after step ``now``.  Only their order matters."""

    def discarded(self, now: int, gone: Candidates) -> None:  # noqa: B027
        """Learn what was discarded after step ``now``."""

    def state(self) -> dict[str, Any]:
        """What the policy has learned, as JSON values."""
        return {}

    def load(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Go on from a state that :meth:`state` gave."""
