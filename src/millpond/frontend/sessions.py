"""``session_window`` in GROUP BY: sessions are groups of one stream, not columns of its rows."""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import SqlError
from millpond.frontend.constants import Bound
from millpond.frontend.scope import Scope
from millpond.frontend.time_calls import is_session, pick_edge
from millpond.query.expressions import Ref
from millpond.query.model import Select, Session
from millpond.query.trees import find_aggregates, item_refs, refs
from millpond.query.types import WINDOW

_ONLY_GROUPED = "group by it; its start and end may then be in the select list and in HAVING"


def split_session(
    scope: Scope, group_by: tuple[Ref, ...] | None, node: exp.Expr | None
) -> tuple[Session | None, tuple[Ref, ...] | None]:
    """The session window among the columns of GROUP BY, and the other columns."""
    starts = [ref for ref in group_by or () if is_session(scope.column(ref))]
    if not starts:
        return None, group_by
    assert node is not None and group_by is not None
    place = scope.statement.keyword_at(node, "GROUP")
    if len(starts) > 1:
        raise SqlError("more than one session_window in GROUP BY is not supported", place)
    if len(scope.occurrences) > 1:
        raise SqlError("session_window over a join is not supported", place)
    (start,) = starts
    derivation, time = scope.column(start).derivation, scope.occurrences[0].table.time
    assert derivation is not None and derivation.gap is not None and time is not None
    end = pick_edge(scope, Bound(start, WINDOW, ""), "end", grouped=True).expression
    assert isinstance(end, Ref)
    session = Session(Ref(start.occurrence, time), derivation.gap, start, end)
    return session, tuple(ref for ref in group_by if ref != start)


def refuse_misplaced_sessions(select: Select) -> None:
    """Refuse a session window that the select does not group by, or in WHERE or an aggregate."""
    allowed = {select.session.start, select.session.end} if select.session else set()
    outside = (item_refs(select.items) | refs(select.having)) - allowed
    for ref in sorted(outside | refs(select.where), key=str):
        if is_session(select.occurrence(ref.occurrence).table.column(ref.column)):
            raise SqlError("session_window is only supported in GROUP BY", select.position, _ONLY_GROUPED)
    if any(ref in allowed for each in find_aggregates(select) for ref in refs(each)):
        raise SqlError("an aggregate of a session_window is not supported", select.position)
