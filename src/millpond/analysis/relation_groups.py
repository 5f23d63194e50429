"""Groups of the rows of relations, of which some have no partner in a stream: ``relation LEFT JOIN stream``.

Rows of the relations are never final: any of them may still get its first partner.  But the answer of a group
is revised anyway.  It follows from the aggregates of the rows with a partner, which are those of an inner
join, and from whether each row of the relations has one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.plan.state import Kept, State
from millpond.query.expressions import TRUE
from millpond.query.model import Item, Query, Select, Term
from millpond.query.result_times import find_extended
from millpond.query.trees import conjunction, conjuncts, find_aggregates, is_aggregate


def decide_relation_groups(query: Query, decide: Callable[[Query], Verdict]) -> Verdict | None:
    """The verdict on groups by columns of relations if it is bounded; None if it is not, or for others.

    ``decide`` is the verdict on the inner join.
    """
    if len(query.selects) != 1 or query.terms[0].distinct:
        return None
    (select,) = query.selects
    stream = _find_extended_stream(select)
    if stream is None or any(ref.occurrence == stream for ref in select.group_by or ()):
        return None
    inner = decide(_join_inner(query, select))
    if inner.outcome != BOUNDED:
        return None
    rows = [o for o in select.occurrences if o.alias != stream]
    kept = tuple(Kept(o.table.name, o.alias, (), ("whether a row has a partner",), None, None) for o in rows)
    state = State(None, None, (*inner.state.streams, *kept), inner.state.windows)
    return Verdict(BOUNDED, (), state, query)


def is_of_relation_rows(query: Query) -> bool:
    """Whether a query groups rows of relations that may have no partner in a stream."""
    return any(_find_extended_stream(select) is not None for select in query.selects)


def _find_extended_stream(select: Select) -> str | None:
    """The only stream of a select with groups, if only its rows can be missing in a join with relations."""
    if not is_aggregate(select) or not select.joins or select.exists or select.session is not None:
        return None
    streams = [o.alias for o in select.occurrences if o.table.streaming]
    return streams[0] if len(streams) == 1 and find_extended(select) == {*streams} else None


def _join_inner(query: Query, select: Select) -> Query:
    """The aggregates of the rows with a partner, whatever HAVING and the result make of them."""
    on = [each for join in select.joins for each in conjuncts(join.on)]
    aggregates = dict.fromkeys(find_aggregates(select))
    groups = (Item(ref, ref.column) for ref in select.group_by or ())
    items = (*groups, *(Item(each, each.text) for each in aggregates))
    where = conjunction(*conjuncts(select.where), *on)
    joined = replace(select, items=items, joins=(), where=where, having=TRUE)
    columns = tuple(f"column {number}" for number in range(len(items)))
    terms = (Term((joined,), False),)
    return replace(query, terms=terms, columns=columns, windows=(), projection=(), filter=None)
