"""The state of a query that groups by ``session_window``: the sessions that a later row can still extend.

A session does not close for good: rows that follow each other closely keep it open for ever.  But only a
session with a row within the last gap is open, so boundedly many are.  What is kept of each is bounded if
every aggregate has a value of fixed size, or few values to distinguish.
"""

from __future__ import annotations

from millpond.plan.classes import NoPlanError
from millpond.plan.state import COUNT_BYTES, VALUE_BYTES, Kept, State, Window
from millpond.query.aggregate_functions import keeps_values
from millpond.query.durations import format_duration, parse_rate
from millpond.query.model import Query
from millpond.query.trees import find_aggregates


def compute_session_state(query: Query) -> State:
    """The bound of a query with sessions, if it has one; raises NoPlanError for queries that cannot run."""
    if len(query.selects) > 1 or query.terms[0].distinct:
        raise NoPlanError("sessions in a UNION, or with DISTINCT, are not supported")
    (select,) = query.selects
    if select.exists:
        raise NoPlanError("sessions of a stream with EXISTS or IN are not supported")
    session, table = select.session, select.occurrences[0].table
    assert session is not None
    aggregates = find_aggregates(select)
    rate = parse_rate(table.properties.get("rate", ""))
    entries = None if rate is None else rate * (-(-session.gap // 1_000_000) + 1)
    width = VALUE_BYTES * (2 + len(select.group_by or ())) + COUNT_BYTES * max(len(aggregates), 1)
    size = None if entries is None or any(map(keeps_values, aggregates)) else entries * width
    keeps = (f"sessions with a row in the last {format_duration(session.gap)}",)
    kept = Kept(table.name, select.occurrences[0].alias, (), keeps, entries, size, closes=True)
    window = Window(stream=table.name, seconds=session.gap / 1_000_000)
    return State(entries if size is not None else None, size, (kept,), [window])
