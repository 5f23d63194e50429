"""The current time as a stream: one row for each moment at which the answer is read.

A select whose conditions name the current time is joined with this stream.  Its answer at a moment are the
results with the row of that moment.
"""

from __future__ import annotations

from collections.abc import Iterable

from millpond.query.expressions import Ref
from millpond.query.model import Column, Occurrence, Query, Select, Table
from millpond.query.trace import list_selects
from millpond.query.types import TIMESTAMP

_NOW = Column("now", TIMESTAMP, nullable=False)
# The rate says that the answer is read once per second.
CLOCK = Table("current time", (_NOW,), True, time=_NOW.name, properties={"rate": "1 per second"})


def is_clock(table: Table) -> bool:
    """Whether a table is the current time."""
    return table.name == CLOCK.name and table.columns == CLOCK.columns


def find_now(occurrences: Iterable[Occurrence]) -> Ref | None:
    """The current time among the tables of a select, as a column."""
    return next((Ref(o.alias, _NOW.name) for o in occurrences if is_clock(o.table)), None)


def has_current_time(select: Select) -> bool:
    """Whether a condition of a select names the current time."""
    return find_now(select.occurrences) is not None


def depends_on_current_time(query: Query) -> bool:
    """Whether a condition of a query or of one of its blocks names the current time."""
    return any(map(has_current_time, list_selects(query)))
