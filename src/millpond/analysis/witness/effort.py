"""Limits how much DuckDB evaluates to find a proof, so that ``check`` answers within a few seconds.

The limit is on statements and rows, not on time, so that the verdict does not depend on the machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millpond.query.model import Query

if TYPE_CHECKING:
    from millpond.runtime.query_sql import World

# A proof that is found takes at most half of this, except for a few queries with probes of many rows.
_MOST_STATEMENTS = 120
_MOST_ROWS = 500_000


@dataclass
class _Effort:
    """The statements and rows that are left."""

    statements: int
    rows: int


_left: ContextVar[_Effort | None] = ContextVar("left", default=None)


@contextmanager
def limit_effort() -> Iterator[None]:
    """Inside, all searches for a proof share one limit; a limit inside of another one is that one."""
    if _left.get() is not None:
        yield
        return
    token = _left.set(_Effort(_MOST_STATEMENTS, _MOST_ROWS))
    try:
        yield
    finally:
        _left.reset(token)


def evaluate_limited(query: Query, worlds: Sequence[World]) -> list[Counter[tuple[Any, ...]]]:
    """The answer of a query in each world; UncomputableError if that exceeds the limit, or DuckDB."""
    from millpond.runtime.query_sql import evaluate_worlds  # here, as it imports DuckDB
    from millpond.runtime.row_queries import UncomputableError

    left = _left.get()
    if left is not None:
        left.statements -= 1
        left.rows -= sum(len(rows) for world in worlds for rows in world.values())
        if left.statements < 0 or left.rows < 0:
            raise UncomputableError("the search for a proof takes too long")
    return evaluate_worlds(query, worlds)
